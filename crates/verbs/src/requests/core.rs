//! What the futures of a queue pair share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

use driver::TaskPoll;
use engine::{Completion, PostError, SystemRefusal};

use super::outstanding::{Finished, RequestError};
use super::slots::{Due, Side, Slots, Work};
use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::memory::MemoryRegion;
use crate::queue_pair::{Depth, Object};

/// The size of the result of an atomic.
pub(super) const WORD: usize = 8;

/// A queue pair whose completions all come here, and its requests.
///
/// Whoever waits takes completions out of the queue, and wakes the tasks of others. While all of them wait, the next completion wakes a
/// [`Dispatcher`], which takes it and wakes the task whose request is complete.
pub(super) struct Core {
    context: Context,
    completions: CompletionQueue,
    object: Object,
    /// Where the results of atomics go.
    words: MemoryRegion,
    slots: Mutex<Slots>,
    dispatcher: Waker,
}

/// Woken by the next completion.
struct Dispatcher(Weak<Core>);

impl Wake for Dispatcher {
    fn wake(self: Arc<Self>) {
        if let Some(core) = self.0.upgrade() {
            core.drive(None);
        }
    }
}

impl Core {
    pub(super) fn new(
        context: Context,
        completions: CompletionQueue,
        object: Object,
        words: MemoryRegion,
        depth: Depth,
    ) -> Arc<Self> {
        let slots = Slots::new(depth.sends, depth.receives);
        Arc::new_cyclic(|core| Self {
            context,
            completions,
            object,
            words,
            slots: Mutex::new(slots),
            dispatcher: Waker::from(Arc::new(Dispatcher(Weak::clone(core)))),
        })
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Posts a request, at once if there is room. Returns its slot.
    pub(super) fn add(&self, work: Work) -> usize {
        let side = work.side();
        let slot = self.slots().add(work);
        self.post_waiting(side);
        if self.slots().is_waiting(side) {
            // Perhaps nobody awaits those before it.
            self.drive(None);
        }
        slot
    }

    /// Takes the result of a request.
    pub(super) fn take(&self, slot: usize) -> Option<Result<Finished, RequestError>> {
        self.slots().take(slot)
    }

    /// As [`take`](Self::take), also if the device has completed it meanwhile.
    pub(super) fn take_soon(&self, slot: usize) -> Option<Result<Finished, RequestError>> {
        self.take_present();
        self.take(slot)
    }

    /// Takes the completions that the device has now.
    pub(super) fn take_present(&self) {
        while let Ok(Some(completion)) = self.completions.take() {
            self.complete(completion);
        }
    }

    /// As [`take`](Self::take), for a task, which is woken when there is a result. Takes completions of the device for that.
    pub(super) fn poll(&self, slot: usize, task: &Waker) -> Option<Result<Finished, RequestError>> {
        let done = self.take(slot);
        if done.is_some() {
            return done;
        }
        let former = self.slots().add_task(slot, task.clone());
        drop(former);
        self.drive(Some((slot, task)));
        let done = self.take(slot);
        if done.is_none() {
            self.completions.note_wait("a request");
        }
        done
    }

    /// Nobody waits for a request any more.
    pub(super) fn abandon(&self, slot: usize, side: Side) {
        let dropped = self.slots().abandon(slot, side);
        drop(dropped);
    }

    /// No request is posted any more, and none completes.
    pub(super) fn end(&self, error: &RequestError) {
        let woken = self.slots().end(error);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Takes completions, until that of the slot of this task has come, or none is left and the next one wakes the dispatcher.
    fn drive(&self, task: Option<(usize, &Waker)>) {
        if !self.slots().begin_driving() {
            return;
        }
        let mut task = task;
        loop {
            // Outside of the lock, and never by two threads: one that is woken meanwhile leaves this to us.
            if let Err(refusal) = self.take_completions(task.take()) {
                self.end(&RequestError::Device(refusal));
            }
            if !self.slots().drives_again() {
                return;
            }
        }
    }

    fn take_completions(&self, task: Option<(usize, &Waker)>) -> Result<(), SystemRefusal> {
        loop {
            let polled = match task {
                Some(_) => self.completions.poll_for_task()?,
                None => TaskPoll::Wait,
            };
            let found = match polled {
                TaskPoll::Found(completion) => Some(completion),
                TaskPoll::Wait => self.completions.watch(&self.dispatcher)?,
                TaskPoll::Yield => {
                    // Others may wait for a completion, and this task may be dropped before it polls again.
                    if let Some((_, task)) = task {
                        task.wake_by_ref();
                    }
                    self.completions.watch(&self.dispatcher)?
                }
            };
            let Some(completion) = found else {
                return Ok(());
            };
            self.complete(completion);
            if task.is_some_and(|(slot, _)| self.slots().is_done(slot)) {
                return Ok(());
            }
        }
    }

    fn complete(&self, completion: Completion) {
        let read = |word| {
            let mut value = [0; WORD];
            self.words.read(word * WORD, &mut value);
            u64::from_ne_bytes(value)
        };
        let woken = self.slots().complete(completion, read);
        if let Some(task) = woken {
            task.wake();
        }
        for side in [Side::Sends, Side::Receives] {
            if self.slots().is_waiting(side) {
                self.post_waiting(side);
            }
        }
    }

    /// Posts what waits and has room, in its order. Another thread may do so now; then it also posts what was added last.
    fn post_waiting(&self, side: Side) {
        let mut slots = self.slots();
        if !slots.begin_posting(side) {
            return;
        }
        while let Some(due) = slots.next_due(side) {
            drop(slots);
            let slot = due.slot;
            if let Err(error) = self.post(due, side) {
                let woken = self.slots().reject(slot, side, error);
                if let Some(task) = woken {
                    task.wake();
                }
            }
            slots = self.slots();
        }
    }

    fn post(&self, due: Due, side: Side) -> Result<(), PostError> {
        let id = side.id(due.slot);
        let request = match due.work {
            Work::Send(request) => request,
            Work::Atomic(request) => {
                let word = due.word.expect("there are as many words as sends") * WORD;
                request.data(self.words.slice(word..word + WORD))
            }
            Work::Receive(mut request) => {
                request.id = id;
                return self.object.post_receive(request);
            }
        };
        self.object.post_send(request.id(id).signaled())
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

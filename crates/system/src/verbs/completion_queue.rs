//! Completion queues, and waiting for completions.

use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use abi::{Polled, ibv_comp_channel, ibv_cq, ibv_wc};
use engine::{Completion, SystemRefusal};

use super::context::Context;
use super::convert::completion_of;
use super::error::{error_number, last_error};

/// How many completions are taken at a time.
const BATCH: usize = 16;

/// How long the thread that wakes tasks sleeps at a time. Between two sleeps it leaves its turn to others, and ends if the
/// queue is dropped.
const TASK_SLICE: Duration = Duration::from_millis(50);

/// A completion queue, with a channel of its own for threads that wait.
#[derive(Debug)]
pub struct CompletionQueue {
    pub(super) raw: NonNull<ibv_cq>,
    channel: NonNull<ibv_comp_channel>,
    context: Arc<Context>,
    /// Whether a thread sleeps at the channel. An event wakes one thread, which may leave completions to others, so the
    /// others wait for their turn instead of for an event.
    has_sleeper: Mutex<bool>,
    turn: Condvar,
    tasks: Mutex<Tasks>,
}

/// The right to sleep at the channel, given to the next thread when it is dropped.
struct Turn<'q>(&'q CompletionQueue);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let queue = self.0;
        let mut has_sleeper = queue
            .has_sleeper
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *has_sleeper = false;
        drop(has_sleeper);
        queue.turn.notify_one();
    }
}

/// The tasks that wait for a completion, and whether a thread sleeps for them.
#[derive(Debug, Default)]
struct Tasks {
    wakers: Vec<Waker>,
    has_thread: bool,
}

// SAFETY: the functions of libibverbs may be called from any thread, also at the same time.
unsafe impl Send for CompletionQueue {}

// SAFETY: as for `Send`.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// Creates a queue for at least this many completions.
    pub fn create(context: &Arc<Context>, capacity: u32) -> Result<Arc<Self>, SystemRefusal> {
        let functions = context.functions;
        let capacity = c_int::try_from(capacity).unwrap_or(c_int::MAX);
        // SAFETY: the context is open.
        let channel = unsafe { (functions.ibv_create_comp_channel)(context.raw.as_ptr()) };
        let channel = NonNull::new(channel).ok_or_else(|| last_error("ibv_create_comp_channel"))?;
        // SAFETY: the context is open, and the channel belongs to it.
        let raw = unsafe {
            (functions.ibv_create_cq)(
                context.raw.as_ptr(),
                capacity,
                ptr::null_mut(),
                channel.as_ptr(),
                0,
            )
        };
        let Some(raw) = NonNull::new(raw) else {
            let error = last_error("ibv_create_cq");
            // SAFETY: no queue uses the channel.
            unsafe { (functions.ibv_destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        Ok(Arc::new(Self {
            raw,
            channel,
            context: Arc::clone(context),
            has_sleeper: Mutex::default(),
            turn: Condvar::new(),
            tasks: Mutex::default(),
        }))
    }

    /// The oldest completion, if there is one.
    pub fn poll(&self) -> Result<Option<Completion>, SystemRefusal> {
        let mut found = [ibv_wc::default()];
        let count = self.poll_into(&mut found)?;
        Ok(found[..count].first().map(completion_of))
    }

    /// Appends the completions that have arrived, at most `limit`, and returns how many.
    pub fn poll_many(
        &self,
        into: &mut Vec<Completion>,
        limit: usize,
    ) -> Result<usize, SystemRefusal> {
        let mut taken = 0;
        let mut found = [ibv_wc::default(); BATCH];
        while taken < limit {
            let wanted = (limit - taken).min(BATCH);
            let count = self.poll_into(&mut found[..wanted])?;
            into.extend(found[..count].iter().map(completion_of));
            taken += count;
            if count < wanted {
                break;
            }
        }
        Ok(taken)
    }

    /// Fills the beginning of a list, and returns how many completions there were.
    fn poll_into(&self, list: &mut [ibv_wc]) -> Result<usize, SystemRefusal> {
        let poll = self.context.operations().poll_cq;
        let poll = poll.ok_or(SystemRefusal::Lacks("function to poll"))?;
        let wanted = c_int::try_from(list.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue exists, and the function writes at most as many completions as the list has room for.
        let Polled(count) = unsafe { poll(self.raw.as_ptr(), wanted, list.as_mut_ptr()) };
        match usize::try_from(count) {
            Ok(count) => Ok(count.min(list.len())),
            Err(_) => Err(error_number("ibv_poll_cq", count)),
        }
    }

    /// Waits for the next completion, at most until the deadline; `None` if none arrived.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<Option<Completion>, SystemRefusal> {
        loop {
            let found = self.poll()?;
            if found.is_some() {
                return Ok(found);
            }
            let Some(turn) = self.take_turn(deadline) else {
                return Ok(None);
            };
            self.arm()?;
            // A completion that arrived before the queue was armed causes no event.
            let found = self.poll()?;
            if found.is_some() {
                return Ok(found);
            }
            let had_event = match remaining(deadline) {
                Remaining::Nothing => return Ok(None),
                Remaining::Time(time) => self.sleep(Some(time))?,
                Remaining::Forever => self.sleep(None)?,
            };
            drop(turn);
            if had_event {
                self.wake_tasks();
            }
        }
    }

    /// Wakes a task when there is a completion. The caller polls once more afterwards, because a completion that arrived
    /// before causes no event.
    pub fn watch(self: &Arc<Self>, waker: &Waker) -> Result<(), SystemRefusal> {
        let starts = {
            let mut tasks = self.tasks();
            if !tasks.wakers.iter().any(|it| it.will_wake(waker)) {
                tasks.wakers.push(waker.clone());
            }
            !std::mem::replace(&mut tasks.has_thread, true)
        };
        if starts {
            let queue = Arc::downgrade(self);
            let builder = thread::Builder::new().name("roci-system-cq".to_owned());
            if builder.spawn(move || serve_tasks(&queue)).is_err() {
                self.tasks().has_thread = false;
                // Without a thread the task has to poll.
                self.wake_tasks();
            }
        }
        self.arm()
    }

    /// Sleeps once for the tasks; `false` if there are none, or if the device fails.
    fn serve_tasks_once(&self) -> bool {
        {
            let mut tasks = self.tasks();
            if tasks.wakers.is_empty() {
                tasks.has_thread = false;
                return false;
            }
        }
        let Some(turn) = self.take_turn(Some(Instant::now() + TASK_SLICE)) else {
            return true;
        };
        let slept = self.sleep(Some(TASK_SLICE));
        drop(turn);
        if slept.is_err() {
            self.tasks().has_thread = false;
        }
        if slept != Ok(false) {
            self.wake_tasks();
        }
        slept.is_ok()
    }

    fn wake_tasks(&self) {
        let wakers = std::mem::take(&mut self.tasks().wakers);
        for waker in wakers {
            waker.wake();
        }
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread sleeps at the channel; `None` if the deadline passes first.
    fn take_turn(&self, deadline: Option<Instant>) -> Option<Turn<'_>> {
        let mut has_sleeper = self
            .has_sleeper
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while *has_sleeper {
            has_sleeper = match remaining(deadline) {
                Remaining::Nothing => return None,
                Remaining::Time(time) => {
                    let waited = self.turn.wait_timeout(has_sleeper, time);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Remaining::Forever => {
                    let waited = self.turn.wait(has_sleeper);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
        *has_sleeper = true;
        Some(Turn(self))
    }

    /// Asks for an event at the next completion.
    fn arm(&self) -> Result<(), SystemRefusal> {
        let arm = self.context.operations().req_notify_cq;
        let arm = arm.ok_or(SystemRefusal::Lacks("events of completion queues"))?;
        // SAFETY: the queue exists.
        match unsafe { arm(self.raw.as_ptr(), 0) } {
            0 => Ok(()),
            number => Err(error_number("ibv_req_notify_cq", number)),
        }
    }

    /// Sleeps until there is an event, and takes it. Returns whether there was one; it may return early.
    fn sleep(&self, time: Option<Duration>) -> Result<bool, SystemRefusal> {
        // SAFETY: the channel exists, and its descriptor does not change.
        let fd = unsafe { (*self.channel.as_ptr()).fd };
        let mut descriptor = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // Rounded up, so that a short time is not a busy loop.
        let milliseconds = time.map_or(-1, |time| {
            c_int::try_from(time.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
        });
        // SAFETY: one descriptor, which is open as long as the channel exists.
        let ready = unsafe { libc::poll(&raw mut descriptor, 1, milliseconds) };
        if ready <= 0 {
            // The time is over, or a signal arrived.
            return Ok(false);
        }
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel exists, and has an event, so the call does not block: this is the only thread that takes events.
        let taken = unsafe {
            (self.context.functions.ibv_get_cq_event)(
                self.channel.as_ptr(),
                &raw mut queue,
                &raw mut context,
            )
        };
        if taken != 0 {
            return Err(last_error("ibv_get_cq_event"));
        }
        // SAFETY: the event is of this queue, the only one of the channel, and is acknowledged once.
        unsafe { (self.context.functions.ibv_ack_cq_events)(self.raw.as_ptr(), 1) };
        Ok(true)
    }

    /// The device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

/// The thread that wakes the tasks of a queue. It ends when none waits any more, or when the queue is dropped.
fn serve_tasks(queue: &Weak<CompletionQueue>) {
    while queue
        .upgrade()
        .is_some_and(|queue| queue.serve_tasks_once())
    {}
}

/// How much time is left.
enum Remaining {
    Nothing,
    Time(Duration),
    Forever,
}

fn remaining(deadline: Option<Instant>) -> Remaining {
    match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
        None => Remaining::Forever,
        Some(Duration::ZERO) => Remaining::Nothing,
        Some(time) => Remaining::Time(time),
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let functions = self.context.functions;
        // SAFETY: no queue pair uses it any more, because each has an `Arc` of it, and all events are acknowledged.
        unsafe { (functions.ibv_destroy_cq)(self.raw.as_ptr()) };
        // SAFETY: its only queue is destroyed.
        unsafe { (functions.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

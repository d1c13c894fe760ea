//! Completion queues, and waiting for completions.

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use abi::{Polled, ibv_cq, ibv_wc};
use engine::{CompletedWork, Completion, Notify, Source, Status, SystemRefusal};
use wire::Qpn;

use super::completion_channel::CompletionChannel;
use super::context::Context;
use super::convert::completion_of;
use super::datagram_requests::DatagramRequests;
use super::error::{error_number, error_number_or_lack, last_error};
use super::protection_domain::Domain;

/// How many completions are taken at a time.
const BATCH: usize = 16;

/// How long the thread that wakes tasks sleeps at a time. Between two sleeps it leaves its turn to others, and ends if the
/// queue is dropped.
const TASK_SLICE: Duration = Duration::from_millis(50);

/// How often a thread that waits for a queue polls it if the events of the queue are the program's.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// A completion queue. It has a channel of its own for threads that wait, unless the program gave it one.
#[derive(Debug)]
pub struct CompletionQueue {
    pub(super) raw: NonNull<ibv_cq>,
    channel: Arc<CompletionChannel>,
    /// Whether the program takes the events of the channel.
    has_programs_channel: bool,
    token: u64,
    context: Arc<Context>,
    /// The datagram queue pairs that complete here.
    datagrams: Mutex<HashMap<Qpn, Datagrams>>,
    /// Whether there have been any.
    has_datagrams: AtomicBool,
    /// Whether a thread sleeps at the channel. An event wakes one thread, which may leave completions to others, so the
    /// others wait for their turn instead of for an event.
    has_sleeper: Mutex<bool>,
    turn: Condvar,
    tasks: Mutex<Tasks>,
}

/// What the completions of a datagram queue pair need.
#[derive(Debug)]
struct Datagrams {
    requests: Arc<DatagramRequests>,
    domain: Weak<Domain>,
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
    /// Creates a queue for at least this many completions. Its events go to the channel, if there is one.
    pub fn create(
        context: &Arc<Context>,
        capacity: u32,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Arc<Self>, SystemRefusal> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let token = NEXT.fetch_add(1, Ordering::Relaxed);
        let has_programs_channel = channel.is_some();
        let channel = match channel {
            Some(channel) => Arc::clone(channel),
            None => CompletionChannel::create(context)?,
        };
        // SAFETY: the context is open, and the channel belongs to it. The token is not used as a pointer.
        let raw = unsafe {
            (context.functions.ibv_create_cq)(
                context.raw.as_ptr(),
                c_int::try_from(capacity).unwrap_or(c_int::MAX),
                ptr::without_provenance_mut(token as usize),
                channel.raw.as_ptr(),
                0,
            )
        };
        Ok(Arc::new(Self {
            raw: NonNull::new(raw).ok_or_else(|| last_error("ibv_create_cq"))?,
            channel,
            has_programs_channel,
            token,
            context: Arc::clone(context),
            datagrams: Mutex::default(),
            has_datagrams: AtomicBool::new(false),
            has_sleeper: Mutex::default(),
            turn: Condvar::new(),
            tasks: Mutex::default(),
        }))
    }

    /// Its number in the events of its channel.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Changes the capacity.
    pub fn resize(&self, capacity: u32) -> Result<(), SystemRefusal> {
        let capacity = c_int::try_from(capacity).unwrap_or(c_int::MAX);
        let resize = self.context.functions.ibv_resize_cq;
        // SAFETY: the queue exists.
        match unsafe { resize(self.raw.as_ptr(), capacity) } {
            0 => Ok(()),
            number => {
                let lack = "completion queues that change their size";
                Err(error_number_or_lack("ibv_resize_cq", number, lack))
            }
        }
    }

    /// Asks for an event at the channel of the program; without one there is nothing to ask for.
    pub fn notify(&self, notify: Notify) -> Result<(), SystemRefusal> {
        if self.has_programs_channel {
            self.arm(notify)
        } else {
            Ok(())
        }
    }

    /// Lets the completions of a datagram queue pair have the program's ids and the senders' addresses. The memory of its receives is
    /// registered in the domain.
    pub(super) fn add_datagrams(
        &self,
        queue_pair: Qpn,
        requests: &Arc<DatagramRequests>,
        domain: &Arc<Domain>,
    ) {
        let datagrams = Datagrams {
            requests: Arc::clone(requests),
            domain: Arc::downgrade(domain),
        };
        self.datagrams().insert(queue_pair, datagrams);
        self.has_datagrams.store(true, Ordering::Release);
    }

    /// Forgets a destroyed queue pair. A new one may have its number already.
    pub(super) fn remove_datagrams(&self, queue_pair: Qpn, requests: &Arc<DatagramRequests>) {
        let mut datagrams = self.datagrams();
        let found = datagrams.get(&queue_pair);
        if found.is_some_and(|found| Arc::ptr_eq(&found.requests, requests)) {
            datagrams.remove(&queue_pair);
        }
    }

    fn datagrams(&self) -> MutexGuard<'_, HashMap<Qpn, Datagrams>> {
        self.datagrams
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A completion as the program expects it.
    #[inline]
    fn completion(&self, found: &ibv_wc) -> Completion {
        let mut completion = completion_of(found);
        if self.has_datagrams.load(Ordering::Acquire) {
            self.complete_datagram(&mut completion, found.src_qp);
        }
        completion
    }

    fn complete_datagram(&self, completion: &mut Completion, sender: u32) {
        let datagrams = self.datagrams();
        let Some(queue_pair) = datagrams.get(&completion.queue_pair) else {
            return;
        };
        let Some(ended) = queue_pair.requests.end(completion.id) else {
            return;
        };
        completion.id = ended.id;
        let is_received = completion.work == CompletedWork::Receive;
        if completion.status == Status::Success && is_received {
            let domain = queue_pair.domain.upgrade();
            completion.source = domain.map(|domain| Source {
                queue_pair: Qpn::new(sender),
                gid: domain.buffers.sender(&ended.segments),
            });
        }
    }

    /// The oldest completion, if there is one.
    pub fn poll(&self) -> Result<Option<Completion>, SystemRefusal> {
        let mut found = [ibv_wc::default()];
        let count = self.poll_into(&mut found)?;
        Ok(found[..count].first().map(|found| self.completion(found)))
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
            into.extend(found[..count].iter().map(|found| self.completion(found)));
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
        if self.has_programs_channel {
            return self.wait_without_events(deadline);
        }
        loop {
            let found = self.poll()?;
            if found.is_some() {
                return Ok(found);
            }
            let Some(turn) = self.take_turn(deadline) else {
                return Ok(None);
            };
            self.arm(Notify::Any)?;
            // A completion that arrived before the queue was armed may cause no event.
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

    /// As [`wait`](Self::wait), if the program takes the events of the channel: this thread must not take them.
    fn wait_without_events(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Option<Completion>, SystemRefusal> {
        loop {
            let found = self.poll()?;
            if found.is_some() || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(found);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Wakes a task when there is a completion. The caller polls once more afterwards, because a completion that arrived
    /// before may cause no event.
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
        if self.has_programs_channel {
            return Ok(());
        }
        self.arm(Notify::Any)
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
        if self.has_programs_channel {
            thread::sleep(POLL_INTERVAL);
            self.wake_tasks();
            return true;
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
    fn arm(&self, notify: Notify) -> Result<(), SystemRefusal> {
        let arm = self.context.operations().req_notify_cq;
        let arm = arm.ok_or(SystemRefusal::Lacks("events of completion queues"))?;
        // SAFETY: the queue exists.
        match unsafe { arm(self.raw.as_ptr(), c_int::from(notify == Notify::Solicited)) } {
            0 => Ok(()),
            number => Err(error_number("ibv_req_notify_cq", number)),
        }
    }

    /// Sleeps until there is an event, and takes it. Returns whether there was one; it may return early.
    fn sleep(&self, time: Option<Duration>) -> Result<bool, SystemRefusal> {
        self.channel.sleep(time.map(|time| Instant::now() + time));
        Ok(self.channel.take()?.is_some())
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
        // SAFETY: no queue pair uses it any more, because each has an `Arc` of it. The function waits for a thread that takes an
        // event of it.
        unsafe { (self.context.functions.ibv_destroy_cq)(self.raw.as_ptr()) };
    }
}

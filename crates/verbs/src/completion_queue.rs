//! Completion queues.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::{Completion, Id, Notify, ObjectError};
#[cfg(feature = "async")]
use {driver::TaskPoll, engine::SystemRefusal, std::task::Waker};

use crate::completion_channel::{Channel, CompletionChannel, QueueToken, reported};
use crate::context::{Context, Opened};
use crate::error::SetupError;
use driver::{Awaited, BlockedCall, Driver, PolledQueue, WaitSet};
use system::verbs;

/// A queue of completions, oldest first.
///
/// Cheap to clone. Polling makes progress: the caller's thread receives packets, runs timers and sends
/// responses.
#[derive(Clone)]
pub struct CompletionQueue(Arc<Owner>);

struct Owner {
    _context: Context,
    object: Object,
    room: Mutex<Room>,
}

/// How many completions a queue holds, and how many its queue pairs may cause before they are polled.
struct Room {
    capacity: u32,
    reserved: u64,
}

/// The completions of a queue pair in a completion queue. Dropping it frees the room.
#[derive(Debug)]
pub(crate) struct Reservation {
    queue: CompletionQueue,
    requests: u32,
}

enum Object {
    Software {
        /// The lane that makes progress for it.
        driver: Arc<Driver>,
        queue: PolledQueue,
        waiting: Arc<WaitSet>,
    },
    System(Arc<verbs::CompletionQueue>),
}

/// How long a waiting thread polls before it sleeps. Most responses arrive sooner than a thread can be woken.
const SPIN: Duration = Duration::from_micros(20);

impl Context {
    /// Creates a completion queue.
    pub fn create_completion_queue(&self, capacity: u32) -> Result<CompletionQueue, ObjectError> {
        CompletionQueue::create(self, capacity, None)
    }
}

impl CompletionChannel {
    /// Creates a completion queue that notifies this channel.
    pub fn create_completion_queue(&self, capacity: u32) -> Result<CompletionQueue, ObjectError> {
        CompletionQueue::create(&self.context, capacity, Some(&self.object))
    }
}

impl CompletionQueue {
    fn create(
        context: &Context,
        capacity: u32,
        channel: Option<&Channel>,
    ) -> Result<Self, ObjectError> {
        let object = match context.opened() {
            Opened::Software(driver) => {
                let driver = driver.for_completion_queue(None);
                let id = driver.call(|device| device.create_completion_queue(capacity))?;
                let waiting = Arc::default();
                driver.set_wait_set(id, &waiting);
                if let Some(Channel::Software(notifier)) = channel {
                    driver.set_notifier(id, notifier, token(id));
                }
                let queue = driver.polled_queue(id).ok_or(ObjectError::Unknown)?;
                Object::Software {
                    driver,
                    queue,
                    waiting,
                }
            }
            Opened::System(system) => {
                let channel = match channel {
                    Some(Channel::System(channel)) => Some(channel),
                    _ => None,
                };
                let queue = verbs::CompletionQueue::create(&system.context, capacity, channel)?;
                Object::System(queue)
            }
        };
        let room = Room {
            capacity,
            reserved: 0,
        };
        Ok(Self(Arc::new(Owner {
            _context: context.clone(),
            object,
            room: Mutex::new(room),
        })))
    }

    /// The oldest completion, if there is one now.
    ///
    /// # Panics
    /// If a device of the system fails to report completions.
    #[must_use]
    pub fn poll(&self) -> Option<Completion> {
        match &self.0.object {
            Object::Software { driver, queue, .. } => driver.poll(queue),
            Object::System(queue) => reported(queue.poll()),
        }
    }

    /// Appends at most `limit` completions that are available now. Returns how many.
    ///
    /// # Panics
    /// As [`poll`](Self::poll).
    pub fn poll_many(&self, into: &mut Vec<Completion>, limit: usize) -> usize {
        match &self.0.object {
            Object::Software { driver, queue, .. } => {
                let take = |completion| into.push(completion);
                driver.poll_many(queue, limit, take)
            }
            Object::System(queue) => reported(queue.poll_many(into, limit)),
        }
    }

    /// Waits for the oldest completion: polls first, then sleeps.
    ///
    /// # Panics
    /// As [`poll`](Self::poll).
    #[must_use]
    pub fn wait(&self) -> Completion {
        loop {
            if let Some(completion) = self.wait_until(None) {
                return completion;
            }
        }
    }

    /// As [`wait`](Self::wait), at most for `timeout`.
    #[must_use]
    pub fn wait_for(&self, timeout: Duration) -> Option<Completion> {
        self.wait_until(driver::clock::deadline(timeout))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Option<Completion> {
        let awake_until = driver::clock::spin_until(SPIN);
        let mut listed = None;
        loop {
            let found = match &self.0.object {
                Object::Software { driver, queue, .. } => driver.poll_without_yield(queue),
                Object::System(queue) => reported(queue.poll()),
            };
            if found.is_some() {
                return found;
            }
            let now = driver::clock::now();
            if deadline.is_some_and(|at| at <= now) {
                return None;
            }
            if now < awake_until {
                continue;
            }
            match &self.0.object {
                Object::Software {
                    driver,
                    queue,
                    waiting,
                } => {
                    listed.get_or_insert_with(|| {
                        let describe = || driver.describe_queue(queue.id());
                        BlockedCall::begin("CompletionQueue::wait", describe)
                    });
                    let awaited = Awaited::Completion(queue.id(), waiting);
                    driver.sleep(&awaited, deadline);
                }
                Object::System(queue) => return reported(queue.wait(deadline)),
            }
        }
    }

    /// The token of this queue in the notifications of its channel.
    #[must_use]
    pub fn token(&self) -> QueueToken {
        QueueToken(match &self.0.object {
            Object::Software { queue, .. } => token(queue.id()),
            Object::System(queue) => queue.token(),
        })
    }

    /// Arms the queue: the next completion adds one notification to the channel. A completion that is already in the queue does so at
    /// once, unless it was there at the last notification and the queue was not polled since. At devices of the system, completions
    /// that are already in the queue may not count at all. So poll once more after arming, or at software devices after each
    /// notification.
    ///
    /// It has no effect at a queue without a channel.
    ///
    /// # Panics
    /// As [`poll`](Self::poll).
    pub fn arm(&self, notify: Notify) {
        match &self.0.object {
            Object::Software { driver, queue, .. } => driver.arm(queue.id(), notify),
            Object::System(queue) => reported(queue.notify(notify)),
        }
    }

    /// Changes the capacity. It must hold the completions of all requests that its queue pairs may have outstanding.
    pub fn resize(&self, capacity: u32) -> Result<(), ObjectError> {
        let mut room = self.room();
        if u64::from(capacity) < room.reserved {
            return Err(ObjectError::Mismatch(
                "the queue pairs at the completion queue may have more requests outstanding",
            ));
        }
        match &self.0.object {
            Object::Software { driver, queue, .. } => {
                let id = queue.id();
                driver.call(|device| device.resize_completion_queue(id, capacity))?;
            }
            Object::System(queue) => queue.resize(capacity)?,
        }
        room.capacity = capacity;
        Ok(())
    }

    /// Reserves room for the completions of requests.
    pub(crate) fn reserve(&self, requests: u32) -> Result<Reservation, SetupError> {
        let mut room = self.room();
        let needed = room.reserved + u64::from(requests);
        let capacity = room.capacity;
        if needed > u64::from(capacity) {
            return Err(SetupError::CompletionQueueTooSmall { capacity, needed });
        }
        room.reserved = needed;
        let queue = self.clone();
        Ok(Reservation { queue, requests })
    }

    /// How many completions it holds.
    pub(crate) fn capacity(&self) -> u32 {
        self.room().capacity
    }

    /// Whether both are the same queue.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.0.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which engine of the device serves it and the queue pairs that send with it, counted from 0. Always 0 at devices of the
    /// system.
    ///
    /// All are served by the first engine, until threads use several of them alternately: then some move to engines of their
    /// own, with their queue pairs, and these threads do not wait for each other. A device has at most [`OpenOptions::lanes`](crate::OpenOptions::lanes) engines.
    #[must_use]
    pub fn lane(&self) -> usize {
        match &self.0.object {
            Object::Software { driver, .. } => driver.lane_number(),
            Object::System(_) => 0,
        }
    }

    /// Its number in the engine, for the [driver](Context::driver); `None` at devices of the system.
    #[must_use]
    pub fn id(&self) -> Option<Id<engine::CompletionQueue>> {
        match &self.0.object {
            Object::Software { queue, .. } => Some(queue.id()),
            Object::System(_) => None,
        }
    }

    /// The system's queue, if it belongs to a device of the system.
    pub(crate) fn system(&self) -> Option<&Arc<verbs::CompletionQueue>> {
        match &self.0.object {
            Object::Software { .. } => None,
            Object::System(queue) => Some(queue),
        }
    }

    /// The lane that makes progress for it, if it belongs to one of our devices.
    pub(crate) fn driver(&self) -> Option<&Arc<Driver>> {
        match &self.0.object {
            Object::Software { driver, .. } => Some(driver),
            Object::System(_) => None,
        }
    }

    /// The oldest completion, if there is one now.
    #[cfg(feature = "async")]
    pub(crate) fn take(&self) -> Result<Option<Completion>, SystemRefusal> {
        match &self.0.object {
            Object::Software { driver, queue, .. } => Ok(driver.poll_without_yield(queue)),
            Object::System(queue) => queue.poll(),
        }
    }

    /// Polls for a task, which may look for packets for a short time.
    #[cfg(feature = "async")]
    pub(crate) fn poll_for_task(&self) -> Result<TaskPoll, SystemRefusal> {
        match &self.0.object {
            Object::Software { driver, queue, .. } => Ok(driver.poll_for_task(queue)),
            Object::System(queue) => Ok(queue.poll()?.map_or(TaskPoll::Wait, TaskPoll::Found)),
        }
    }

    /// Lets the next completion wake a task. If there is one now, returns it instead.
    #[cfg(feature = "async")]
    pub(crate) fn watch(&self, task: &Waker) -> Result<Option<Completion>, SystemRefusal> {
        match &self.0.object {
            Object::Software {
                driver,
                queue,
                waiting,
            } => {
                let wakeups = crate::executor::wakeups_of(driver);
                Ok(driver.watch_for_task(queue, waiting, task, wakeups))
            }
            Object::System(queue) => {
                queue.watch(task)?;
                queue.poll()
            }
        }
    }

    /// Reports what a task waits for: a simulation that hangs says so.
    #[cfg(feature = "async")]
    pub(crate) fn note_wait(&self, what: &str) {
        if let Object::Software { driver, queue, .. } = &self.0.object {
            let number = queue.id().index();
            driver.note_wait(|| format!("{what} of completion queue {number}"));
        }
    }
}

impl Reservation {
    /// The queue that it is in.
    pub(crate) fn queue(&self) -> &CompletionQueue {
        &self.queue
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.queue.room().reserved -= u64::from(self.requests);
    }
}

/// A number that is unique among the existing queues.
pub(crate) fn token(queue: Id<engine::CompletionQueue>) -> u64 {
    u64::from(queue.index())
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionQueue")
            .field(&self.id().map(Id::index))
            .finish()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Object::Software { driver, queue, .. } = &self.object {
            let id = queue.id();
            driver.remove_notifier(id);
            let _ = driver.call(|device| device.destroy_completion_queue(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program may create and drop any number of queues while its device stays open.
    #[test]
    fn a_queue_that_is_dropped_leaves_nothing_with_its_device() {
        let context = Context::open("127.51.33.1").expect("a loopback address");
        let notifier = Arc::new(driver::Notifier::without_descriptor());
        let channel = Channel::Software(Arc::clone(&notifier));
        let queue = CompletionQueue::create(&context, 4, Some(&channel)).expect("room");
        drop(channel);
        let Object::Software { waiting, .. } = &queue.0.object else {
            panic!("a software device");
        };
        let waiting = Arc::downgrade(waiting);
        assert_eq!(Arc::strong_count(&notifier), 2);
        drop(queue);
        assert_eq!(Arc::strong_count(&notifier), 1);
        assert!(waiting.upgrade().is_none());
    }
}

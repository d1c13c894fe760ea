//! Completion queues, and the status of every work request.

use std::collections::VecDeque;
use std::fmt;
use wire::{Gid, Key, Qpn};

use crate::slab::Id;
use crate::sync::{AtomicBool, Mutex, Ordering};

/// The result of a work request.
///
/// The values are those of `enum ibv_wc_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Status {
    /// The request succeeded.
    Success = 0,
    /// The message is too long for its buffer or for the transport service.
    LocalLength = 1,
    /// The queue pair detected an internal inconsistency.
    LocalOperation = 2,
    /// A segment names memory that the queue pair must not access.
    LocalProtection = 4,
    /// The request was outstanding when the queue pair entered the error state.
    Flushed = 5,
    /// A memory window could not be bound.
    WindowBind = 6,
    /// The peer sent an invalid response.
    BadResponse = 7,
    /// Local access failed during an operation of the peer.
    LocalAccess = 8,
    /// The peer rejected the request as invalid.
    RemoteInvalidRequest = 9,
    /// The peer rejected the access to its memory.
    RemoteAccess = 10,
    /// The peer could not execute the request.
    RemoteOperation = 11,
    /// The peer did not answer, and the retries are exhausted.
    RetriesExhausted = 12,
    /// The peer had no receive posted, and the RNR retries are exhausted.
    ReceiverNotReady = 13,
    /// Any other error.
    General = 21,
}

impl fmt::Display for Status {
    /// The meaning of the status, and what to check.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Success => "success",
            Status::LocalLength => "the message is too long for its buffer or for the service",
            Status::LocalOperation => {
                "the queue pair cannot execute the request: check its attributes"
            }
            Status::LocalProtection => {
                "a local key, range or access right is wrong: check the segments and the region"
            }
            Status::Flushed => {
                "the queue pair is in the error state: the peer disconnected, or an earlier request \
                 failed"
            }
            Status::WindowBind => "the memory window cannot be bound or invalidated in this way",
            Status::BadResponse => "the peer sent an invalid response",
            Status::LocalAccess => "local memory is not accessible for the peer's operation",
            Status::RemoteInvalidRequest => {
                "the peer rejected the request as invalid: check the size of its receive and the \
                 access rights of its queue pair"
            }
            Status::RemoteAccess => {
                "the peer rejected the access to its memory: check key, address, length and \
                 access rights"
            }
            Status::RemoteOperation => "the peer could not execute the request: check its receives",
            Status::RetriesExhausted => {
                "the peer did not answer: check its GID, queue pair number and PSN"
            }
            Status::ReceiverNotReady => {
                "the peer had no receive posted, and the RNR retries are exhausted"
            }
            Status::General => "an unspecified error",
        })
    }
}

/// The kind of work that completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompletedWork {
    /// A SEND of any kind.
    Send,
    /// An RDMA WRITE of any kind.
    Write,
    /// An RDMA READ.
    Read,
    /// A compare-and-swap.
    CompareSwap,
    /// A fetch-and-add.
    FetchAdd,
    /// A bind of a memory window.
    BindWindow,
    /// An invalidation of a key.
    LocalInvalidate,
    /// An atomic write.
    AtomicWrite,
    /// A flush.
    Flush,
    /// A receive that a SEND filled.
    Receive,
    /// A receive that an RDMA WRITE with immediate data consumed.
    ReceiveWriteImmediate,
}

impl CompletedWork {
    /// Whether it is a receive.
    #[must_use]
    pub const fn is_receive(self) -> bool {
        matches!(self, Self::Receive | Self::ReceiveWriteImmediate)
    }
}

/// The result of one work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The caller's id for the request.
    pub id: u64,
    /// The status. Unless it is `Success`, only `id`, `status` and `queue_pair` are valid.
    pub status: Status,
    /// The kind of work.
    pub work: CompletedWork,
    /// How many bytes were received or read; 8 for an atomic.
    pub length: u32,
    /// The queue pair of the request.
    pub queue_pair: Qpn,
    /// The immediate data, in wire byte order.
    pub immediate: Option<[u8; 4]>,
    /// The local key that the peer's SEND invalidated.
    pub invalidated: Option<Key>,
    /// The sender of a datagram.
    pub source: Option<Source>,
}

impl Completion {
    /// Returns the completion if the request succeeded, and otherwise why it failed.
    pub const fn into_result(self) -> Result<Self, WorkError> {
        match self.status {
            Status::Success => Ok(self),
            status => Err(WorkError {
                id: self.id,
                queue_pair: self.queue_pair,
                status,
            }),
        }
    }
}

/// A work request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("request {id} of queue pair {:#x} failed: {status}", queue_pair.value())]
#[non_exhaustive]
pub struct WorkError {
    /// The caller's id for the request.
    pub id: u64,
    /// The queue pair that it was posted to.
    pub queue_pair: Qpn,
    /// Why it failed.
    pub status: Status,
}

/// The sender of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The sender's queue pair.
    pub queue_pair: Qpn,
    /// The sender's address.
    pub gid: Gid,
}

/// Which completions trigger the next notification. One that is in the queue already does so at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// A completion of any kind.
    Any,
    /// A completion that the sender solicited, or that failed.
    Solicited,
}

/// A queue of completions, oldest first. Threads push and poll without any other lock.
#[derive(Debug)]
pub struct CompletionQueue {
    id: Id<Self>,
    /// Whether it is empty and not armed.
    idle: AtomicBool,
    entries: Mutex<Entries>,
}

#[derive(Debug)]
struct Entries {
    ring: VecDeque<Entry>,
    capacity: u32,
    notification: Notification,
    watched: bool,
    overrun: bool,
    /// Whether a completion that does not fit takes the place of the oldest one.
    replaces_oldest: bool,
}

/// How far the next notification is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notification {
    /// The program has not asked for it.
    Unrequested,
    /// The queue is armed.
    Requested(Notify),
    /// It was sent, and the program has not polled since. It polls after it takes the notification, and finds what is in the queue
    /// now.
    Sent,
}

/// A completion that has not been polled.
#[derive(Debug, Clone, Copy)]
struct Entry {
    completion: Completion,
    solicited: bool,
}

/// The effect of arming the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArmOutcome {
    /// The next matching completion triggers the notification.
    Armed,
    /// The queue holds a matching completion, of which no notification tells. It is not armed.
    Notify,
}

/// The effect of adding a completion to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushOutcome {
    Added,
    Notify,
    /// The queue was full. It is now in the error state, and the completion is lost.
    Overrun,
    /// The queue overran before. This is reported only once.
    AlreadyOverrun,
}

/// What happened when a completion was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pushed {
    pub(crate) outcome: PushOutcome,
    /// Whether the queue was watched. The watch has ended.
    pub(crate) watched: bool,
}

impl Pushed {
    /// Nobody waits for the completion.
    pub(crate) const UNNOTICED: Self = Self {
        outcome: PushOutcome::Added,
        watched: false,
    };
}

impl CompletionQueue {
    pub(crate) fn new(id: Id<Self>, capacity: u32) -> Self {
        Self {
            id,
            idle: AtomicBool::new(true),
            entries: Mutex::new(Entries {
                // Grows on demand: a large capacity costs no memory until it is used.
                ring: VecDeque::new(),
                capacity,
                notification: Notification::Unrequested,
                watched: false,
                overrun: false,
                replaces_oldest: false,
            }),
        }
    }

    /// Its handle.
    #[must_use]
    pub fn id(&self) -> Id<Self> {
        self.id
    }

    /// How many completions fit.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.entries.lock().capacity
    }

    /// How many completions have not been polled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.lock().ring.len()
    }

    /// Whether all completions have been polled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.lock().ring.is_empty()
    }

    /// Whether it is empty and not armed. Takes no lock.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Acquire)
    }

    /// Whether the next completion may trigger a notification.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.armed().is_some()
    }

    /// Which completions trigger the next notification, if it is armed.
    #[must_use]
    pub fn armed(&self) -> Option<Notify> {
        match self.entries.lock().notification {
            Notification::Requested(notify) => Some(notify),
            Notification::Unrequested | Notification::Sent => None,
        }
    }

    /// Changes the entries, and the flag that follows from them.
    fn change<R>(&self, change: impl FnOnce(&mut Entries) -> R) -> R {
        let mut entries = self.entries.lock();
        let result = change(&mut entries);
        self.note_change(&entries);
        result
    }

    #[inline]
    fn note_change(&self, entries: &Entries) {
        let idle = entries.ring.is_empty() && !entries.is_armed();
        self.idle.store(idle, Ordering::Release);
    }

    /// Whether a completion can be added now.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        let entries = self.entries.lock();
        entries.ring.len() < entries.capacity as usize
    }

    #[inline(always)]
    pub(crate) fn push(&self, completion: Completion, solicited: bool) -> Pushed {
        let mut entries = self.entries.lock();
        let pushed = entries.push(completion, solicited);
        self.note_change(&entries);
        pushed
    }

    /// Removes and returns the oldest completion. [`Device::poll_completion`](crate::Device::poll_completion) also
    /// records the [observation](crate::Config::observations).
    #[inline]
    pub fn pop(&self) -> Option<Completion> {
        if self.is_idle() {
            return None;
        }
        let mut entries = self.entries.lock();
        entries.end_sent();
        let popped = entries.ring.pop_front();
        self.note_change(&entries);
        Some(popped?.completion)
    }

    /// Swaps the two newest completions.
    pub(crate) fn swap_newest(&self) {
        self.change(|entries| {
            let length = entries.ring.len();
            if length >= 2 {
                entries.ring.swap(length - 1, length - 2);
            }
        });
    }

    #[must_use]
    pub(crate) fn arm(&self, notify: Notify) -> ArmOutcome {
        self.change(|entries| entries.arm(notify))
    }

    /// Returns false, and watches nothing, if there is a completion: another thread may just have added it.
    pub(crate) fn watch_if_empty(&self) -> bool {
        let mut entries = self.entries.lock();
        let is_empty = entries.ring.is_empty();
        entries.watched |= is_empty;
        is_empty
    }

    /// From now on a completion that does not fit takes the place of the oldest one, and the queue does not overrun.
    pub fn replace_oldest(&self) {
        self.entries.lock().replaces_oldest = true;
    }

    /// Sets a new capacity. Returns false if the queue holds more completions than that.
    pub(crate) fn resize(&self, capacity: u32) -> bool {
        let mut entries = self.entries.lock();
        let fits = entries.ring.len() <= capacity as usize;
        if fits {
            entries.capacity = capacity;
        }
        fits
    }

    /// The oldest completion of a queue pair with an error other than a flush.
    pub(crate) fn failure_of(&self, queue_pair: Qpn) -> Option<Completion> {
        let failed = |completion: &Completion| {
            completion.queue_pair == queue_pair
                && !matches!(completion.status, Status::Success | Status::Flushed)
        };
        let entries = self.entries.lock();
        let mut completions = entries.ring.iter().map(|entry| entry.completion);
        completions.find(failed)
    }

    /// Removes the completions of a queue pair that is destroyed or reset.
    pub(crate) fn purge(&self, queue_pair: Qpn) {
        let others = |entry: &Entry| entry.completion.queue_pair != queue_pair;
        self.change(|entries| {
            // A poll of an empty queue may not change it.
            entries.end_sent();
            entries.ring.retain(others);
        });
    }
}

impl Entries {
    #[inline(always)]
    fn push(&mut self, completion: Completion, solicited: bool) -> Pushed {
        let outcome = self.add(completion, solicited);
        Pushed {
            outcome,
            watched: std::mem::take(&mut self.watched),
        }
    }

    #[inline(always)]
    fn add(&mut self, completion: Completion, solicited: bool) -> PushOutcome {
        if self.overrun {
            return PushOutcome::AlreadyOverrun;
        }
        if self.ring.len() >= self.capacity as usize {
            if !self.replaces_oldest {
                self.overrun = true;
                return PushOutcome::Overrun;
            }
            self.ring.pop_front();
        }
        let entry = Entry {
            completion,
            solicited,
        };
        self.ring.push_back(entry);
        match self.notification {
            Notification::Requested(notify) if entry.triggers(notify) => {
                self.notification = Notification::Sent;
                PushOutcome::Notify
            }
            _ => PushOutcome::Added,
        }
    }

    /// Some programs poll, arm the queue and sleep without another poll. So completions that arrived between the poll and the
    /// arming trigger the notification. NICs to which the driver passes the consumer index with the arming, as that of mlx5
    /// does, behave in this way.
    ///
    /// Most programs take a notification, arm the queue again and poll then. A second notification of the same completions would
    /// wake them for nothing: `ibv_rc_pingpong -e` took twice as long.
    fn arm(&mut self, notify: Notify) -> ArmOutcome {
        let (notify, counts) = match self.notification {
            Notification::Unrequested => (notify, true),
            Notification::Sent => (notify, false),
            // Arming for solicited completions does not cancel an earlier request for any completion.
            Notification::Requested(Notify::Any) => (Notify::Any, true),
            Notification::Requested(Notify::Solicited) => (notify, true),
        };
        if counts && self.ring.iter().any(|entry| entry.triggers(notify)) {
            self.notification = Notification::Sent;
            return ArmOutcome::Notify;
        }
        self.notification = Notification::Requested(notify);
        ArmOutcome::Armed
    }

    fn is_armed(&self) -> bool {
        matches!(self.notification, Notification::Requested(_))
    }

    /// Completions that are added from now on need another notification.
    fn end_sent(&mut self) {
        if self.notification == Notification::Sent {
            self.notification = Notification::Unrequested;
        }
    }
}

impl Entry {
    fn triggers(&self, notify: Notify) -> bool {
        match notify {
            Notify::Any => true,
            Notify::Solicited => self.solicited || self.completion.status != Status::Success,
        }
    }
}

#[cfg(all(test, loom))]
mod model_checks;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Table;

    pub(super) fn queue(capacity: u32) -> CompletionQueue {
        let mut table = Table::<CompletionQueue>::with_capacity(1);
        let id = table.insert_with(|id| CompletionQueue::new(id, capacity));
        id.and_then(|id| table.remove(id)).expect("room for one")
    }

    pub(super) fn completion(status: Status) -> Completion {
        Completion {
            id: 1,
            status,
            work: CompletedWork::Send,
            length: 0,
            queue_pair: Qpn::new(17),
            immediate: None,
            invalidated: None,
            source: None,
        }
    }

    #[test]
    fn idle_flag_follows_every_change_of_the_queue() {
        let queue = queue(8);
        assert!(queue.is_idle());
        let done = completion(Status::Success);
        let after = |change: fn(&CompletionQueue, Completion)| {
            change(&queue, done);
            queue.is_idle()
        };
        assert!(!after(|queue, done| _ = queue.push(done, false)));
        assert!(!after(|queue, done| _ = queue.push(done, false)));
        assert!(!after(|queue, _| _ = queue.pop()));
        assert!(after(|queue, _| _ = queue.pop()));
        assert!(!after(|queue, _| _ = queue.arm(Notify::Any)));
        assert!(!after(|queue, done| _ = queue.push(done, false)));
        assert!(after(|queue, _| _ = queue.pop()), "it was notified");
        assert!(!after(|queue, done| _ = queue.push(done, false)));
        assert!(after(|queue, done| queue.purge(done.queue_pair)));
    }

    #[test]
    fn armed_queue_notifies_once() {
        let queue = queue(8);
        let done = completion(Status::Success);
        assert_eq!(queue.arm(Notify::Any), ArmOutcome::Armed);
        assert_eq!(queue.push(done, false).outcome, PushOutcome::Notify);
        assert_eq!(queue.push(done, false).outcome, PushOutcome::Added);
    }

    #[test]
    fn arming_a_queue_that_is_not_empty_notifies_at_once() {
        let queue = queue(8);
        let done = completion(Status::Success);
        queue.push(done, false);
        assert_eq!(queue.arm(Notify::Any), ArmOutcome::Notify);
        assert_eq!(queue.push(done, false).outcome, PushOutcome::Added);
        assert_eq!(queue.pop(), Some(done));
        assert_eq!(queue.arm(Notify::Any), ArmOutcome::Notify, "one is left");
        assert_eq!(queue.pop(), Some(done));
        assert_eq!(queue.arm(Notify::Any), ArmOutcome::Armed);
    }

    /// Most programs take the notification, arm the queue and then poll.
    #[test]
    fn arming_before_the_first_poll_after_a_notification_does_not_repeat_it() {
        let queue = queue(8);
        let done = completion(Status::Success);
        assert_eq!(queue.arm(Notify::Any), ArmOutcome::Armed);
        assert_eq!(queue.push(done, false).outcome, PushOutcome::Notify);
        assert_eq!(queue.push(done, false).outcome, PushOutcome::Added);
        assert_eq!(queue.arm(Notify::Any), ArmOutcome::Armed);
        assert_eq!(queue.arm(Notify::Any), ArmOutcome::Notify, "armed twice");
        assert_eq!(queue.arm(Notify::Any), ArmOutcome::Armed);
        assert_eq!(queue.push(done, false).outcome, PushOutcome::Notify);
        queue.purge(done.queue_pair);
        queue.push(done, false);
        assert_eq!(queue.arm(Notify::Any), ArmOutcome::Notify, "a new one");
    }

    #[test]
    fn arming_for_solicited_notifies_at_once_for_a_solicited_or_failed_completion() {
        for (status, solicited, outcome) in [
            (Status::Success, false, ArmOutcome::Armed),
            (Status::Success, true, ArmOutcome::Notify),
            (Status::Flushed, false, ArmOutcome::Notify),
        ] {
            let queue = queue(8);
            queue.push(completion(status), solicited);
            assert_eq!(queue.arm(Notify::Solicited), outcome);
        }
    }

    #[test]
    fn arming_for_any_after_arming_for_solicited_counts_all_completions() {
        let queue = queue(8);
        let done = completion(Status::Success);
        assert_eq!(queue.arm(Notify::Solicited), ArmOutcome::Armed);
        assert_eq!(queue.push(done, false).outcome, PushOutcome::Added);
        assert_eq!(queue.arm(Notify::Any), ArmOutcome::Notify);
        assert_eq!(queue.push(done, true).outcome, PushOutcome::Added);
    }

    #[test]
    fn solicited_notification_waits_for_a_solicited_or_failed_completion() {
        let queue = queue(8);
        assert_eq!(queue.arm(Notify::Solicited), ArmOutcome::Armed);
        assert_eq!(
            queue.push(completion(Status::Success), false).outcome,
            PushOutcome::Added
        );
        assert_eq!(
            queue.push(completion(Status::Success), true).outcome,
            PushOutcome::Notify
        );
        assert!(queue.pop().is_some() && queue.pop().is_some());
        assert_eq!(queue.arm(Notify::Solicited), ArmOutcome::Armed);
        assert_eq!(
            queue.push(completion(Status::Flushed), false).outcome,
            PushOutcome::Notify
        );
    }

    #[test]
    fn arming_for_solicited_keeps_an_earlier_arming_for_any() {
        let queue = queue(8);
        assert_eq!(queue.arm(Notify::Any), ArmOutcome::Armed);
        assert_eq!(queue.arm(Notify::Solicited), ArmOutcome::Armed);
        assert_eq!(
            queue.push(completion(Status::Success), false).outcome,
            PushOutcome::Notify
        );
    }

    #[test]
    fn overrun_is_reported_once_and_keeps_earlier_completions() {
        let queue = queue(1);
        let done = completion(Status::Success);
        assert_eq!(queue.push(done, false).outcome, PushOutcome::Added);
        assert_eq!(queue.push(done, false).outcome, PushOutcome::Overrun);
        assert_eq!(queue.push(done, false).outcome, PushOutcome::AlreadyOverrun);
        assert_eq!(queue.pop(), Some(done));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn queue_that_may_overrun_keeps_the_newest_completions() {
        let queue = queue(2);
        queue.replace_oldest();
        let numbered = |id| Completion {
            id,
            ..completion(Status::Success)
        };
        for id in 1..=5 {
            let pushed = queue.push(numbered(id), false);
            assert_eq!(pushed.outcome, PushOutcome::Added);
        }
        assert_eq!(queue.pop(), Some(numbered(4)));
        assert_eq!(queue.pop(), Some(numbered(5)));
        assert_eq!(queue.pop(), None);
    }
}

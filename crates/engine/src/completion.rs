//! Completion queues, and the status of every work request.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wire::{Gid, Key, Qpn};

/// The result of a work request.
///
/// The values are those of `enum ibv_wc_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
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
    pub const fn ok(self) -> Result<Self, WorkError> {
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

/// Which completions trigger the next notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// The next completion of any kind.
    Any,
    /// The next completion that the sender solicited, or that failed.
    Solicited,
}

/// A queue of completions, oldest first.
#[derive(Debug)]
pub struct CompletionQueue {
    ring: VecDeque<Completion>,
    idle: IdleFlag,
    capacity: u32,
    armed: Option<Notify>,
    watched: bool,
    overrun: bool,
    pub(crate) users: u32,
}

/// Whether a poll of a queue would find it empty and not armed. It can be read without access to the device.
///
/// A thread that polls such a queue needs no lock that another thread holds.
#[derive(Debug, Clone)]
pub struct IdleFlag(Arc<AtomicBool>);

impl IdleFlag {
    /// Whether the queue is empty and not armed.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Default for IdleFlag {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
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

impl CompletionQueue {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            // Grows on demand: a large capacity costs no memory until it is used.
            ring: VecDeque::new(),
            idle: IdleFlag::default(),
            capacity,
            armed: None,
            watched: false,
            overrun: false,
            users: 0,
        }
    }

    /// How many completions fit.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How many completions have not been polled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether it is empty and not armed, for threads without access to the device.
    #[must_use]
    pub fn idle_flag(&self) -> IdleFlag {
        self.idle.clone()
    }

    #[inline]
    fn update_idle(&self) {
        let idle = self.ring.is_empty() && self.armed.is_none();
        self.idle.0.store(idle, Ordering::Release);
    }

    /// Whether all completions have been polled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    pub(crate) fn push(&mut self, completion: Completion, solicited: bool) -> PushOutcome {
        if self.overrun {
            return PushOutcome::AlreadyOverrun;
        }
        if self.ring.len() >= self.capacity as usize {
            self.overrun = true;
            return PushOutcome::Overrun;
        }
        let failed = completion.status != Status::Success;
        self.ring.push_back(completion);
        self.update_idle();
        let wanted = match self.armed {
            None => false,
            Some(Notify::Any) => true,
            Some(Notify::Solicited) => solicited || failed,
        };
        if !wanted {
            return PushOutcome::Added;
        }
        self.armed = None;
        PushOutcome::Notify
    }

    pub(crate) fn pop(&mut self) -> Option<Completion> {
        let oldest = self.ring.pop_front()?;
        self.update_idle();
        Some(oldest)
    }

    pub(crate) fn pop_newest(&mut self) -> Option<Completion> {
        let newest = self.ring.pop_back()?;
        self.update_idle();
        Some(newest)
    }

    pub(crate) fn arm(&mut self, notify: Notify) {
        // Arming for solicited completions does not cancel an earlier request for any completion.
        if self.armed != Some(Notify::Any) {
            self.armed = Some(notify);
        }
        self.update_idle();
    }

    /// Whether the next completion may trigger a notification.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.armed.is_some()
    }

    pub(crate) fn watch(&mut self) {
        self.watched = true;
    }

    /// Whether the queue is watched. Ends the watch.
    pub(crate) fn take_watch(&mut self) -> bool {
        std::mem::take(&mut self.watched)
    }

    /// Sets a new capacity. Returns false if the queue holds more completions than that.
    pub(crate) fn resize(&mut self, capacity: u32) -> bool {
        let fits = self.ring.len() <= capacity as usize;
        if fits {
            self.capacity = capacity;
        }
        fits
    }

    /// The oldest completion of a queue pair with an error other than a flush.
    pub(crate) fn failure_of(&self, queue_pair: Qpn) -> Option<Completion> {
        let failed = |entry: &&Completion| {
            entry.queue_pair == queue_pair
                && !matches!(entry.status, Status::Success | Status::Flushed)
        };
        self.ring.iter().find(failed).copied()
    }

    /// Removes the completions of a queue pair that is destroyed or reset.
    pub(crate) fn purge(&mut self, queue_pair: Qpn) {
        self.ring.retain(|entry| entry.queue_pair != queue_pair);
        self.update_idle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(status: Status) -> Completion {
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
        let mut queue = CompletionQueue::new(8);
        let flag = queue.idle_flag();
        assert!(flag.is_set());
        let done = completion(Status::Success);
        let mut after = |change: fn(&mut CompletionQueue, Completion)| {
            change(&mut queue, done);
            flag.is_set()
        };
        assert!(!after(|queue, done| _ = queue.push(done, false)));
        assert!(!after(|queue, done| _ = queue.push(done, false)));
        assert!(!after(|queue, _| _ = queue.pop()));
        assert!(after(|queue, _| _ = queue.pop_newest()));
        assert!(!after(|queue, _| queue.arm(Notify::Any)));
        assert!(!after(|queue, done| _ = queue.push(done, false)));
        assert!(after(|queue, _| _ = queue.pop()), "it was notified");
        assert!(!after(|queue, done| _ = queue.push(done, false)));
        assert!(after(|queue, done| queue.purge(done.queue_pair)));
    }

    #[test]
    fn armed_queue_notifies_once() {
        let mut queue = CompletionQueue::new(8);
        let done = completion(Status::Success);
        assert_eq!(queue.push(done, false), PushOutcome::Added);
        queue.arm(Notify::Any);
        assert_eq!(queue.push(done, false), PushOutcome::Notify);
        assert_eq!(queue.push(done, false), PushOutcome::Added);
    }

    #[test]
    fn solicited_notification_waits_for_a_solicited_or_failed_completion() {
        let mut queue = CompletionQueue::new(8);
        queue.arm(Notify::Solicited);
        assert_eq!(
            queue.push(completion(Status::Success), false),
            PushOutcome::Added
        );
        assert_eq!(
            queue.push(completion(Status::Success), true),
            PushOutcome::Notify
        );
        queue.arm(Notify::Solicited);
        assert_eq!(
            queue.push(completion(Status::Flushed), false),
            PushOutcome::Notify
        );
    }

    #[test]
    fn arming_for_solicited_keeps_an_earlier_arming_for_any() {
        let mut queue = CompletionQueue::new(8);
        queue.arm(Notify::Any);
        queue.arm(Notify::Solicited);
        assert_eq!(
            queue.push(completion(Status::Success), false),
            PushOutcome::Notify
        );
    }

    #[test]
    fn overrun_is_reported_once_and_keeps_earlier_completions() {
        let mut queue = CompletionQueue::new(1);
        let done = completion(Status::Success);
        assert_eq!(queue.push(done, false), PushOutcome::Added);
        assert_eq!(queue.push(done, false), PushOutcome::Overrun);
        assert_eq!(queue.push(done, false), PushOutcome::AlreadyOverrun);
        assert_eq!(queue.pop(), Some(done));
        assert_eq!(queue.pop(), None);
    }
}

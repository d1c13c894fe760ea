//! Completion queues: how the fate of every work request is told.

use std::collections::VecDeque;
use std::fmt;

use wire::{Gid, Key, Qpn};

/// How a work request ended.
///
/// The values are those of `enum ibv_wc_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// It is done.
    Success = 0,
    /// A local length is wrong: a message too long for its buffer or for the service.
    LocalLength = 1,
    /// The queue pair met an inconsistency of its own.
    LocalOperation = 2,
    /// A segment names memory that the queue pair may not touch.
    LocalProtection = 4,
    /// It was outstanding when the queue pair went to the error state.
    Flushed = 5,
    /// A memory window could not be bound.
    WindowBind = 6,
    /// The peer answered something that can't be.
    BadResponse = 7,
    /// Local access failed while a peer's operation was carried out.
    LocalAccess = 8,
    /// The peer finds the request invalid.
    RemoteInvalidRequest = 9,
    /// The peer's memory may not be touched like that.
    RemoteAccess = 10,
    /// The peer could not carry it out.
    RemoteOperation = 11,
    /// The peer did not answer, as often as it was tried.
    RetriesExhausted = 12,
    /// The peer had no receive posted, as often as it was tried.
    ReceiverNotReady = 13,
    /// Anything else.
    General = 21,
}

impl fmt::Display for Status {
    /// What it means, and where to look.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Success => "success",
            Status::LocalLength => "the message is too long for its buffer or for the service",
            Status::LocalOperation => "the queue pair can't do that: look at its attributes",
            Status::LocalProtection => {
                "a local key, range or access right is wrong: look at the segments and the region"
            }
            Status::Flushed => {
                "the queue pair is in error: look at the first completion that failed"
            }
            Status::WindowBind => "the memory window can't be bound like that",
            Status::BadResponse => "the peer answered something that can't be",
            Status::LocalAccess => "local memory could not be used for the peer's operation",
            Status::RemoteInvalidRequest => {
                "the peer refuses the request: is its receive large enough, does its queue pair \
                 allow the operation?"
            }
            Status::RemoteAccess => {
                "the peer's memory may not be used like that: look at key, address, length and \
                 access rights"
            }
            Status::RemoteOperation => "the peer could not carry it out: look at its receives",
            Status::RetriesExhausted => {
                "the peer did not answer: is it there, with this GID, queue pair number and PSN?"
            }
            Status::ReceiverNotReady => "the peer had no receive posted, as often as it was tried",
            Status::General => "something else went wrong",
        })
    }
}

/// What kind of work completed.
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
    /// A memory window was bound.
    BindWindow,
    /// A key was invalidated.
    LocalInvalidate,
    /// An atomic write.
    AtomicWrite,
    /// A flush.
    Flush,
    /// A receive, filled by a SEND.
    Receive,
    /// A receive, consumed by an RDMA WRITE with immediate data.
    ReceiveWriteImmediate,
}

impl CompletedWork {
    /// Whether it was a receive that completed.
    #[must_use]
    pub const fn is_receive(self) -> bool {
        matches!(self, Self::Receive | Self::ReceiveWriteImmediate)
    }
}

/// The end of one work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The caller's own number for the request.
    pub id: u64,
    /// How it ended. Unless it succeeded, only `id`, `status` and `queue_pair` mean something.
    pub status: Status,
    /// What kind of work it was.
    pub work: CompletedWork,
    /// Bytes received, read or, for an atomic, 8.
    pub length: u32,
    /// The queue pair it belonged to.
    pub queue_pair: Qpn,
    /// Immediate data, as it was on the wire.
    pub immediate: Option<[u8; 4]>,
    /// The local key that the peer's SEND invalidated.
    pub invalidated: Option<Key>,
    /// For datagrams: who sent it.
    pub source: Option<Source>,
}

impl Completion {
    /// The completion if the request succeeded, else an error that says why it failed.
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
    /// The caller's number for the request.
    pub id: u64,
    /// The queue pair that it was posted to.
    pub queue_pair: Qpn,
    /// Why it failed.
    pub status: Status,
}

/// Where a datagram came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The sender's queue pair.
    pub queue_pair: Qpn,
    /// The sender's address.
    pub gid: Gid,
}

/// Which completions raise the next notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// The next one of any kind.
    Any,
    /// The next that was solicited by the sender, or that failed.
    Solicited,
}

/// Completions in the order in which they came.
#[derive(Debug)]
pub struct CompletionQueue {
    ring: VecDeque<Completion>,
    capacity: u32,
    armed: Option<Notify>,
    watched: bool,
    overrun: bool,
    pub(crate) users: u32,
}

/// What a completion caused, besides being there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    Quietly,
    Notifying,
    /// There was no room. The queue is in error from now on, and the completion is lost.
    Overrun,
    /// There has been no room before, and nobody is told twice.
    StillOverrun,
}

impl CompletionQueue {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            // Grown on demand: a generous capacity costs nothing until it is used.
            ring: VecDeque::new(),
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

    /// How many completions wait to be polled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    pub(crate) fn push(&mut self, completion: Completion, solicited: bool) -> Pushed {
        if self.overrun {
            return Pushed::StillOverrun;
        }
        if self.ring.len() >= self.capacity as usize {
            self.overrun = true;
            return Pushed::Overrun;
        }
        let failed = completion.status != Status::Success;
        self.ring.push_back(completion);
        let wanted = match self.armed {
            None => false,
            Some(Notify::Any) => true,
            Some(Notify::Solicited) => solicited || failed,
        };
        if !wanted {
            return Pushed::Quietly;
        }
        self.armed = None;
        Pushed::Notifying
    }

    pub(crate) fn pop(&mut self) -> Option<Completion> {
        self.ring.pop_front()
    }

    pub(crate) fn pop_newest(&mut self) -> Option<Completion> {
        self.ring.pop_back()
    }

    pub(crate) fn arm(&mut self, notify: Notify) {
        // Arming for less never takes back what was asked for before.
        if self.armed != Some(Notify::Any) {
            self.armed = Some(notify);
        }
    }

    /// Whether the next completion is to be announced.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.armed.is_some()
    }

    pub(crate) fn watch(&mut self) {
        self.watched = true;
    }

    /// Whether the queue was watched. Ends the watch.
    pub(crate) fn take_watch(&mut self) -> bool {
        std::mem::take(&mut self.watched)
    }

    /// False when more completions wait than the new capacity holds.
    pub(crate) fn resize(&mut self, capacity: u32) -> bool {
        let fits = self.ring.len() <= capacity as usize;
        if fits {
            self.capacity = capacity;
        }
        fits
    }

    /// Forgets the completions of a queue pair that is destroyed.
    pub(crate) fn purge(&mut self, queue_pair: Qpn) {
        self.ring.retain(|entry| entry.queue_pair != queue_pair);
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
    fn notifies_once_each_time_it_is_armed() {
        let mut queue = CompletionQueue::new(8);
        let done = completion(Status::Success);
        assert_eq!(queue.push(done, false), Pushed::Quietly);
        queue.arm(Notify::Any);
        assert_eq!(queue.push(done, false), Pushed::Notifying);
        assert_eq!(queue.push(done, false), Pushed::Quietly);
    }

    #[test]
    fn solicited_notification_waits_for_a_solicited_or_failed_completion() {
        let mut queue = CompletionQueue::new(8);
        queue.arm(Notify::Solicited);
        assert_eq!(
            queue.push(completion(Status::Success), false),
            Pushed::Quietly
        );
        assert_eq!(
            queue.push(completion(Status::Success), true),
            Pushed::Notifying
        );
        queue.arm(Notify::Solicited);
        assert_eq!(
            queue.push(completion(Status::Flushed), false),
            Pushed::Notifying
        );
    }

    #[test]
    fn arming_for_solicited_does_not_disarm_any() {
        let mut queue = CompletionQueue::new(8);
        queue.arm(Notify::Any);
        queue.arm(Notify::Solicited);
        assert_eq!(
            queue.push(completion(Status::Success), false),
            Pushed::Notifying
        );
    }

    #[test]
    fn an_overrun_is_told_once_and_loses_nothing_that_was_there() {
        let mut queue = CompletionQueue::new(1);
        let done = completion(Status::Success);
        assert_eq!(queue.push(done, false), Pushed::Quietly);
        assert_eq!(queue.push(done, false), Pushed::Overrun);
        assert_eq!(queue.push(done, false), Pushed::StillOverrun);
        assert_eq!(queue.pop(), Some(done));
        assert_eq!(queue.pop(), None);
    }
}

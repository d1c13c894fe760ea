//! The remote memory that outstanding requests access.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use engine::Work;
use engine::observation::{PostedSend, RemoteAccessKind};
use wire::Key;

use crate::local_buffers::Space;
use crate::request_name::{QueuePairId, RequestName, common};

/// Remote memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Remote {
    /// By the address of the peer, and the key.
    Of(IpAddr, Key),
    /// Memory of this process, whatever key names it.
    Own(Space),
}

/// An access to remote memory whose completion the program has not polled.
#[derive(Debug, Clone)]
pub(crate) struct RemoteUse<S> {
    pub(crate) range: Range<u64>,
    pub(crate) kind: RemoteAccessKind,
    pub(crate) request: RequestName,
    pub(crate) queue_pair: QueuePairId,
    pub(crate) peer: IpAddr,
    /// The number of the request in its queue pair.
    pub(crate) serial: u64,
    pub(crate) call: S,
}

/// Why two accesses conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// They are of different queue pairs.
    Unordered,
    /// A READ is followed by a change without a fence.
    NoFence,
}

/// All accesses whose completions the program has not polled.
#[derive(Debug)]
pub(crate) struct RemoteUses<S> {
    uses: HashMap<Remote, Vec<RemoteUse<S>>>,
}

impl<S> RemoteUses<S> {
    pub(crate) fn new() -> Self {
        Self {
            uses: HashMap::new(),
        }
    }

    /// An earlier access that conflicts with a new one.
    ///
    /// The new request waits for reads before the number `fence` of its queue pair.
    pub(crate) fn conflict(
        &self,
        remote: Remote,
        new: &RemoteUse<S>,
        fence: u64,
    ) -> Option<(&RemoteUse<S>, Range<u64>, Conflict)> {
        self.uses.get(&remote)?.iter().find_map(|earlier| {
            let conflict = earlier.conflict_with(new, fence)?;
            let common = common(&earlier.range, &new.range)?;
            Some((earlier, common, conflict))
        })
    }

    pub(crate) fn insert(&mut self, remote: Remote, it: RemoteUse<S>) {
        self.uses.entry(remote).or_default().push(it);
    }

    /// Forgets the accesses of a queue pair before the request with number `end`.
    pub(crate) fn forget_before(&mut self, queue_pair: QueuePairId, end: u64) {
        self.retain(|it| it.queue_pair != queue_pair || it.serial >= end);
    }

    /// Forgets the accesses to a peer that match.
    pub(crate) fn forget_at(&mut self, peer: IpAddr, matches: impl Fn(&RemoteUse<S>) -> bool) {
        self.retain(|it| it.peer != peer || !matches(it));
    }

    fn retain(&mut self, keep: impl Fn(&RemoteUse<S>) -> bool) {
        self.uses.retain(|_, uses| {
            uses.retain(&keep);
            !uses.is_empty()
        });
    }
}

impl<S> RemoteUse<S> {
    fn conflict_with(&self, later: &Self, fence: u64) -> Option<Conflict> {
        if self.queue_pair != later.queue_pair {
            return conflicts(self.kind, later.kind).then_some(Conflict::Unordered);
        }
        // The table of orderings in the specification: a READ before a change needs a fence. All other pairs
        // are executed in order.
        let changes = later.kind != RemoteAccessKind::Read;
        let waits = self.serial < fence;
        let unfenced = self.kind == RemoteAccessKind::Read && changes && !waits;
        unfenced.then_some(Conflict::NoFence)
    }
}

/// Whether the order of two accesses to the same bytes matters.
pub(crate) fn conflicts(a: RemoteAccessKind, b: RemoteAccessKind) -> bool {
    // Reads change nothing. Atomics are atomic.
    a != b || a == RemoteAccessKind::Write
}

/// The remote memory that a request accesses.
pub(crate) fn remote_of(posted: &PostedSend) -> Option<(Key, Range<u64>, RemoteAccessKind)> {
    let (remote, length, kind) = match posted.work {
        Work::Write(remote) | Work::WriteImmediate(remote, _) => {
            (remote, posted.length, RemoteAccessKind::Write)
        }
        Work::Read(remote) => (remote, posted.length, RemoteAccessKind::Read),
        Work::CompareSwap { remote, .. } | Work::FetchAdd { remote, .. } => {
            (remote, 8, RemoteAccessKind::Atomic)
        }
        Work::AtomicWrite(remote) => (remote, 8, RemoteAccessKind::Atomic),
        _ => return None,
    };
    let end = remote.address.checked_add(length)?;
    (length > 0).then_some((remote.key, remote.address..end, kind))
}

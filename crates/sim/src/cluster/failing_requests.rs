//! Requests that must fail, and their expected status.

use engine::{Access, RemoteMemory, Status, Work};
use wire::Key;

use super::Cluster;
use super::build::HostObjects;
use super::connection_end::{Expected, Fault, Target};
use super::valid_requests::{Draft, RemoteRange, Verb};
use crate::CheckError;
use crate::simple_connect::ALL_RIGHTS;

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Violation {
    /// The key is invalid.
    WrongKey,
    /// The key was valid before, or belongs to another protection domain.
    StaleKey,
    /// The range exceeds the region.
    OutOfBounds,
    /// The region does not grant the right.
    NoRight,
    /// The queue pair does not grant the right.
    NoService,
    /// The message is longer than any receive.
    TooLong,
    /// The local key is invalid.
    LocalKey,
    /// The local memory is read-only.
    LocalReadOnly,
    /// The window belongs to another queue pair.
    ForeignWindow,
    /// The range exceeds the window, but not the region.
    BeyondWindow,
    /// The window does not grant the right.
    WindowWithoutRight,
}

const VIOLATIONS: &[(u32, Violation)] = &[
    (3, Violation::WrongKey),
    (2, Violation::StaleKey),
    (4, Violation::OutOfBounds),
    (4, Violation::NoRight),
    (3, Violation::NoService),
    (3, Violation::TooLong),
    (3, Violation::LocalKey),
    (2, Violation::LocalReadOnly),
    (2, Violation::ForeignWindow),
    (3, Violation::BeyondWindow),
    (2, Violation::WindowWithoutRight),
];

const REMOTE_ACCESS: Expected = Expected::Failure(Status::RemoteAccess, Some(Fault::Access));
const INVALID: Expected = Expected::Failure(Status::RemoteInvalidRequest, Some(Fault::Request));
const LOCAL: Expected = Expected::Failure(Status::LocalProtection, None);

impl Cluster {
    /// A request that must fail; none if it is not possible at this end.
    pub(super) fn draft_violation(&mut self, end: usize) -> Option<Draft> {
        let violation = self.rng.weighted(VIOLATIONS);
        let draft = match violation {
            Violation::WrongKey => self.draft_wrong_key(end),
            Violation::StaleKey => self.draft_stale_key(end),
            Violation::OutOfBounds => self.draft_out_of_bounds(end),
            Violation::NoRight => self.draft_without_right(end),
            Violation::NoService => self.draft_without_service(end),
            Violation::TooLong => self.draft_too_long(end),
            Violation::LocalKey => self.draft_local_key(end),
            Violation::LocalReadOnly => self.draft_local_read_only(end),
            Violation::ForeignWindow => self.draft_foreign_window(end),
            Violation::BeyondWindow => self.draft_beyond_window(end),
            Violation::WindowWithoutRight => self.draft_window_without_right(end),
        }?;
        let local = matches!(draft.expected, LOCAL);
        if self.ends[end].is_reliable() || local {
            Some(draft)
        } else {
            Some(Self::without_error(draft))
        }
    }

    /// The peer of an unreliable service drops an invalid request without an error.
    fn without_error(mut draft: Draft) -> Draft {
        draft.expected = Expected::Success;
        draft.effects.clear();
        draft.message = None;
        draft
    }

    /// A request to this memory that the peer rejects.
    pub(super) fn draft_rejected(
        &mut self,
        end: usize,
        target_range: &RemoteRange,
        verb: Verb,
    ) -> Option<Draft> {
        let remote = target_range.remote;
        let length = target_range.range.len();
        let work = match verb {
            Verb::Write => Work::Write(remote),
            Verb::Read => Work::Read(remote),
            Verb::FetchAdd => Work::FetchAdd { remote, add: 1 },
            Verb::AtomicWrite => Work::AtomicWrite(remote),
            _ => return None,
        };
        let mut draft = match verb {
            Verb::Write | Verb::AtomicWrite => {
                let source = self.draw_source(end, length)?;
                self.with_source(end, work, &source)
            }
            _ => self.with_result(end, work, length)?,
        };
        draft.expected = REMOTE_ACCESS;
        Some(draft)
    }

    /// A verb that accesses memory, its required right, a length and an alignment.
    fn draw_access_verb(&mut self, end: usize) -> (Verb, Access, usize, usize) {
        let peer = self.ends[end].peer;
        let offered = self.ends[peer].access;
        let choices = [
            (Verb::Write, Access::REMOTE_WRITE),
            (Verb::Read, Access::REMOTE_READ),
            (Verb::FetchAdd, Access::REMOTE_ATOMIC),
            (Verb::AtomicWrite, Access::REMOTE_WRITE),
        ];
        let reliable = self.ends[end].is_reliable();
        let possible: Vec<(Verb, Access)> = choices
            .into_iter()
            .filter(|&(verb, right)| offered.contains(right) && (reliable || verb == Verb::Write))
            .collect();
        let (verb, right) = if possible.is_empty() {
            (Verb::Flush, Access::empty())
        } else {
            *self.rng.pick(&possible)
        };
        let mtu = self.ends[end].limits.mtu.bytes();
        match verb {
            Verb::Write | Verb::Read => {
                let length = self.draw_length(mtu, self.profile.longest).max(1);
                (verb, right, length, 1)
            }
            _ => (verb, right, 8, 8),
        }
    }

    fn draft_wrong_key(&mut self, end: usize) -> Option<Draft> {
        let (verb, right, length, align) = self.draw_access_verb(end);
        let mut target_range = self.draw_remote_range(end, right, length, align);
        // Another tag of the same key index, or an index out of range.
        let change = if self.rng.percent(50) {
            self.rng.between(1, 0xfff) as u32
        } else {
            0x8000_0000
        };
        target_range.remote.key = Key::new(target_range.remote.key.value() ^ change);
        self.draft_rejected(end, &target_range, verb)
    }

    /// A request with a key and address that were valid before.
    fn draft_stale_key(&mut self, end: usize) -> Option<Draft> {
        let peer = &self.ends[self.ends[end].peer];
        let closed = |stale: &&RemoteMemory| !self.live_keys.contains(&(peer.host, stale.key));
        let stale: Vec<RemoteMemory> = peer.stale.iter().filter(closed).copied().collect();
        if stale.is_empty() {
            return None;
        }
        let target_range = RemoteRange {
            memory: peer.targets[0].memory,
            range: 0..1,
            remote: *self.rng.pick(&stale),
        };
        let verb = self.draw_read_or_write(end, Access::all())?;
        self.draft_rejected(end, &target_range, verb)
    }

    fn draft_out_of_bounds(&mut self, end: usize) -> Option<Draft> {
        let (verb, right, length, align) = self.draw_access_verb(end);
        let target = self.draw_target(end, right);
        let memory = &self.memories[target.memory];
        let last_fitting = (memory.len() - length) / align * align;
        let steps = *self.rng.pick(&[1, 1, 2, 100]);
        let offset = if self.rng.percent(70) {
            (last_fitting + align * steps) as u64
        } else {
            0u64.wrapping_sub((align * steps) as u64)
        };
        let remote = RemoteMemory {
            address: memory.base.wrapping_add(offset),
            key: target.key,
        };
        let target_range = RemoteRange {
            memory: target.memory,
            range: 0..length,
            remote,
        };
        self.draft_rejected(end, &target_range, verb)
    }

    fn draft_without_right(&mut self, end: usize) -> Option<Draft> {
        let (verb, right, length, align) = self.draw_access_verb(end);
        let targets = &self.ends[self.ends[end].peer].targets;
        let lacking: Vec<Target> = targets
            .iter()
            .filter(|target| !target.access.contains(right))
            .copied()
            .collect();
        if lacking.is_empty() {
            return None;
        }
        let target = *self.rng.pick(&lacking);
        let memory = &self.memories[target.memory];
        let offset = self.rng.below((memory.len() - length) / align + 1) * align;
        let target_range = RemoteRange {
            memory: target.memory,
            range: offset..offset + length,
            remote: RemoteMemory {
                address: memory.address(offset),
                key: target.key,
            },
        };
        self.draft_rejected(end, &target_range, verb)
    }

    fn draft_without_service(&mut self, end: usize) -> Option<Draft> {
        let denied = ALL_RIGHTS.difference(self.ends[self.ends[end].peer].access);
        let draft = if denied.contains(Access::REMOTE_READ) && self.ends[end].is_reliable() {
            let target_range = self.draw_remote_range(end, Access::REMOTE_READ, 8, 8);
            self.draft_rejected(end, &target_range, Verb::Read)
        } else if denied.contains(Access::REMOTE_WRITE) {
            let target_range = self.draw_remote_range(end, Access::REMOTE_WRITE, 8, 8);
            self.draft_rejected(end, &target_range, Verb::Write)
        } else if denied.contains(Access::REMOTE_ATOMIC) && self.ends[end].is_reliable() {
            let target_range = self.draw_remote_range(end, Access::REMOTE_ATOMIC, 8, 8);
            self.draft_rejected(end, &target_range, Verb::FetchAdd)
        } else {
            None
        };
        draft.map(|mut draft| {
            draft.expected = INVALID;
            draft
        })
    }

    fn draft_too_long(&mut self, end: usize) -> Option<Draft> {
        let mut draft = self.draft_send(end, None)?;
        let pool = draft.message.as_ref()?.pool;
        let surplus = *self.rng.pick(&[1, 1, 2, 300]);
        let length = self.pools[pool].max_capacity + surplus;
        let source = self.draw_source(end, length)?;
        let unused = draft.block.take();
        if let Some(block) = unused {
            self.memories[self.ends[end].local.0].free(&block);
        }
        let mut long = self.with_source(end, Work::Send, &source);
        long.message = draft.message.take().map(|mut message| {
            message.receive_failure = Some(Status::LocalLength);
            message
        });
        long.expected = INVALID;
        Some(long)
    }

    fn draft_local_key(&mut self, end: usize) -> Option<Draft> {
        let reliable = self.ends[end].is_reliable();
        let offered = self.ends[self.ends[end].peer].access;
        let mut draft = match self.rng.below(3) {
            0 if reliable && offered.contains(Access::REMOTE_READ) => self.draft_read(end),
            1 if offered.contains(Access::REMOTE_WRITE) => self.draft_write(end, None),
            _ => self.draft_send(end, None),
        }?;
        let block = draft.block.clone()?;
        if block.pieces.iter().all(std::ops::Range::is_empty) {
            return None;
        }
        let (memory, key) = self.ends[end].local;
        let wrong = Key::new(key.value() ^ self.rng.between(1, 0xfff) as u32);
        let mut segments = self.segments(memory, key, &block);
        // The last segment with bytes, because packets before it may be sent already.
        let corrupted = segments.iter_mut().rev().find(|one| one.length > 0)?;
        corrupted.key = wrong;
        draft.request = draft.request.with(segments);
        draft.expected = LOCAL;
        if let Some(message) = &mut draft.message {
            // It is never complete.
            message.receive_failure = Some(Status::Flushed);
        }
        Some(draft)
    }

    /// A read with a read-only result buffer.
    fn draft_local_read_only(&mut self, end: usize) -> Option<Draft> {
        let offered = self.ends[self.ends[end].peer].access;
        if !self.ends[end].is_reliable() || !offered.contains(Access::REMOTE_READ) {
            return None;
        }
        let length = self.rng.between(1, 100);
        let target_range = self.draw_remote_range(end, Access::REMOTE_READ, length, 1);
        let (memory, key) = self.ends[end].constant;
        let block = self.memories[memory].allocate(length, 1, &mut self.rng)?;
        let segments = self.segments(memory, key, &block);
        self.memories[memory].free(&block);
        let mut draft = Draft::new(Work::Read(target_range.remote));
        draft.request = draft.request.with(segments);
        draft.expected = LOCAL;
        Some(draft)
    }

    /// Memory that was deregistered, and memory of another protection domain.
    pub(super) fn draw_stale(
        &mut self,
        objects: &HostObjects,
    ) -> Result<Vec<RemoteMemory>, CheckError> {
        if self.profile.violations == 0 {
            return Ok(Vec::new());
        }
        let access = ALL_RIGHTS | Access::LOCAL_WRITE;
        let mut stale = Vec::new();
        for domain in [objects.other_domain, objects.domain] {
            let (memory, key) = self.add_memory(objects.host, domain, 256, access)?;
            // A valid key of another protection domain.
            self.live_keys.retain(|live| *live != (objects.host, key));
            let address = self.memories[memory].base;
            stale.push(RemoteMemory { address, key });
        }
        self.device(objects.host)?.deregister(stale[1].key)?;
        Ok(stale)
    }
}

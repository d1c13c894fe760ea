//! The latest accesses to memory of this process.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use engine::observation::RemoteAccessKind;

use super::record::QueuePairName;
use crate::local_buffers::Space;
use crate::request_name::common;

/// How many accesses are remembered.
pub(super) const MAX_ACCESSES: usize = 4096;

/// An access, by a message of a peer or by a request of this process.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) process: u64,
    pub(super) queue_pair: QueuePairName,
    pub(super) message: u64,
    pub(super) operation: u8,
    pub(super) id: u64,
    pub(super) kind: RemoteAccessKind,
    pub(super) space: Space,
    pub(super) range: Range<u64>,
}

/// The number of bits of the length, the space, the address, and a number.
type Key = (u32, Space, u64, u64);

/// Accesses, ordered by size and address.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    by_size: BTreeMap<u32, BTreeMap<Key, Access>>,
    /// The keys, oldest first. Some of them are removed.
    by_age: VecDeque<Key>,
    next: u64,
}

impl Accesses {
    /// The accesses that share bytes with a range, and these bytes.
    pub(super) fn overlapping<'a>(
        &'a self,
        space: Space,
        range: &'a Range<u64>,
    ) -> impl Iterator<Item = (&'a Access, Range<u64>)> {
        let near = self.near(space, range);
        near.filter_map(|(_, it)| Some((it, common(&it.range, range)?)))
    }

    fn near<'a>(
        &'a self,
        space: Space,
        range: &Range<u64>,
    ) -> impl Iterator<Item = (&'a Key, &'a Access)> + use<'a> {
        let (start, end) = (range.start, range.end.max(range.start));
        self.by_size.iter().flat_map(move |(bits, of_size)| {
            let longest = 1_u64.checked_shl(*bits).unwrap_or(u64::MAX);
            let lowest = start.saturating_sub(longest);
            of_size.range((*bits, space, lowest, 0)..(*bits, space, end, 0))
        })
    }

    /// Remembers an access. It replaces those of the same queue pair that it includes: whoever knows of it knows of them.
    pub(super) fn add(&mut self, new: Access) {
        let is_included = |old: &Access| {
            old.queue_pair == new.queue_pair
                && old.kind == new.kind
                && new.range.start <= old.range.start
                && old.range.end <= new.range.end
        };
        let near = self.near(new.space, &new.range);
        let included = near.filter(|(_, old)| is_included(old));
        let included: Vec<Key> = included.map(|(key, _)| *key).collect();
        included.iter().for_each(|key| self.remove(key));
        let bits = u64::BITS - (new.range.end - new.range.start).leading_zeros();
        let key = (bits, new.space, new.range.start, self.next);
        self.next += 1;
        self.by_size.entry(bits).or_default().insert(key, new);
        self.by_age.push_back(key);
        while self.by_age.len() > MAX_ACCESSES
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(of_size) = self.by_size.get_mut(&key.0) {
            of_size.remove(key);
        }
    }

    /// Forgets the accesses of a queue pair.
    pub(super) fn forget(&mut self, queue_pair: QueuePairName) {
        for of_size in self.by_size.values_mut() {
            of_size.retain(|_, it| it.queue_pair != queue_pair);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_size.values().map(BTreeMap::len).sum()
    }
}

//! Memory keys: random numbers, so that an invented or a stale one opens nothing.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use crate::random::Random;
use wire::Key;

/// A key is a random index and eight low bits. The owner of a type-2 window may choose the low bits
/// (`ibv_inc_rkey`); the index is the device's own.
const INDEX_BITS: u32 = 24;
const CHOSEN_BITS: u32 = 8;
const CHOSEN_MASK: u32 = (1 << CHOSEN_BITS) - 1;

/// The most keys at a time: an eighth of the indexes, so that drawing a free one takes few tries.
pub(super) const MAX_KEYS: usize = 1 << 21;

/// How many indexes rest after their keys were removed: a stale key opens nothing even if its low
/// bits come up again.
const RESTING: usize = 4096;

struct Slot<T> {
    key: Key,
    /// Nothing while the index rests.
    holder: Option<T>,
}

/// What keys open, found in one step.
pub(super) struct Keys<T> {
    slots: HashMap<u32, Slot<T>, BuildHasherDefault<IndexHasher>>,
    /// Indexes that rest, the longest first.
    resting: VecDeque<u32>,
    random: Random,
}

impl<T> Keys<T> {
    pub(super) fn new(random: Random) -> Self {
        Self {
            slots: HashMap::default(),
            resting: VecDeque::new(),
            random,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.resting.len()
    }

    pub(super) fn insert(&mut self, holder: T) -> Option<Key> {
        if self.len() >= MAX_KEYS {
            return None;
        }
        loop {
            let index = self.random.bits(INDEX_BITS);
            let low = self.random.bits(CHOSEN_BITS);
            // Key 0 is what programs put where they have none.
            if index == 0 {
                continue;
            }
            if let Entry::Vacant(vacant) = self.slots.entry(index) {
                let key = Key::new(index << CHOSEN_BITS | low);
                vacant.insert(Slot {
                    key,
                    holder: Some(holder),
                });
                return Some(key);
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(&index(key))?;
        if slot.key != key {
            return None;
        }
        slot.holder.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(&index(key))?;
        if slot.key != key {
            return None;
        }
        slot.holder.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots
            .values()
            .filter_map(|slot| Some((slot.key, slot.holder.as_ref()?)))
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let holder = self.slots.get_mut(&index(key))?.holder.take();
        self.resting.push_back(index(key));
        if self.resting.len() > RESTING
            && let Some(rested) = self.resting.pop_front()
        {
            self.slots.remove(&rested);
        }
        holder
    }

    /// The key that opens now what `key`, perhaps with other low bits, opened before.
    pub(super) fn current(&self, key: Key) -> Option<Key> {
        let slot = self.slots.get(&index(key))?;
        slot.holder.as_ref()?;
        Some(slot.key)
    }

    /// The next key, with other low bits, for what `key` opened; the old one opens nothing any more.
    ///
    /// Callers of `ibv_bind_mw` learn it before the window is bound, so it follows from the old one.
    pub(super) fn renew(&mut self, key: Key) -> Key {
        self.retag(key, key.value().wrapping_add(1))
    }

    /// Replaces the low bits of `key` with those of `chosen`; the resulting key.
    pub(super) fn retag(&mut self, key: Key, chosen: u32) -> Key {
        let retagged = Key::new(key.value() & !CHOSEN_MASK | chosen & CHOSEN_MASK);
        if let Some(slot) = self.slots.get_mut(&index(key))
            && slot.key == key
        {
            slot.key = retagged;
        }
        retagged
    }
}

#[inline]
fn index(key: Key) -> u32 {
    key.value() >> CHOSEN_BITS
}

/// Spreads an index over the 64 bits that a hash map looks at. The indexes are random numbers of our
/// own, so nobody can choose them to collide.
#[derive(Default)]
struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write_u32(&mut self, index: u32) {
        self.0 = u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("an index is a u32");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn keys() -> Keys<&'static str> {
        Keys::new(Random::new([7; 32]))
    }

    #[test]
    fn a_removed_key_opens_nothing() {
        let mut keys = keys();
        let old = keys.insert("old").expect("empty table");
        assert_eq!(keys.remove(old), Some("old"));
        assert_eq!(keys.get(old), None);
        assert_eq!(keys.get_mut(old), None);
        assert_eq!(keys.current(old), None);
        assert_eq!(keys.remove(old), None);
        assert_eq!(keys.len(), 0);
    }

    #[test]
    fn an_index_rests_before_it_is_used_again() {
        let mut keys = keys();
        let removed: Vec<Key> = (0..RESTING + 1)
            .map(|_| {
                let key = keys.insert("short").expect("room");
                keys.remove(key);
                key
            })
            .collect();
        let distinct: HashSet<u32> = removed.iter().map(|key| index(*key)).collect();
        assert_eq!(distinct.len(), RESTING + 1);
        assert!(
            !keys.slots.contains_key(&index(removed[0])),
            "it has rested"
        );
        assert_eq!(keys.slots.len(), RESTING);
    }

    #[test]
    fn invented_keys_miss() {
        let mut keys = keys();
        let key = keys.insert("secret").expect("empty table");
        let same_index = (0..1 << CHOSEN_BITS)
            .filter(|low| {
                keys.get(Key::new(key.value() & !CHOSEN_MASK | low))
                    .is_some()
            })
            .count();
        assert_eq!(same_index, 1);
        let neighbours = (1..=4096).filter(|step| {
            let near = |value: u32| keys.get(Key::new(value)).is_some();
            near(key.value().wrapping_add(*step)) || near(key.value().wrapping_sub(*step))
        });
        assert_eq!(neighbours.count(), 0);
        assert!(keys.get(Key::new(0)).is_none());
    }

    #[test]
    fn all_bits_of_a_key_vary() {
        let mut keys = keys();
        let all: Vec<u32> = (0..64)
            .map(|_| keys.insert("one of many").expect("room").value())
            .collect();
        assert_eq!(all.iter().fold(0, |seen, key| seen | key), u32::MAX);
        assert_eq!(all.iter().fold(u32::MAX, |seen, key| seen & key), 0);
    }

    #[test]
    fn chosen_low_bits_replace_the_old_key() {
        let mut keys = keys();
        let key = keys.insert("window").expect("empty table");
        let chosen = keys.retag(key, !key.value());
        assert_eq!(chosen.value(), key.value() ^ CHOSEN_MASK);
        assert_eq!(keys.get(key), None);
        assert_eq!(keys.get(chosen), Some(&"window"));
        assert_eq!(keys.current(key), Some(chosen));
    }

    #[test]
    fn a_renewed_key_differs_in_its_low_bits_alone() {
        let mut keys = keys();
        let mut key = keys.insert("window").expect("empty table");
        for _ in 0..1000 {
            let renewed = keys.renew(key);
            assert_ne!(renewed, key);
            assert_eq!(index(renewed), index(key));
            assert_eq!(keys.get(key), None);
            assert_eq!(keys.get(renewed), Some(&"window"));
            key = renewed;
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "two million keys")]
    fn a_device_has_so_many_keys_and_no_more() {
        let mut keys = keys();
        for _ in 0..MAX_KEYS {
            assert!(keys.insert("one").is_some());
        }
        assert!(keys.insert("one too many").is_none());
    }
}

//! Memory keys: random numbers, so that a guessed or stale key is invalid.

use std::collections::VecDeque;

use crate::random::Random;
use wire::Key;

/// A key consists of a random 24-bit index, which the device chooses, and eight low bits, which the
/// owner of a type-2 window may choose (`ibv_inc_rkey`).
const INDEX_BITS: u32 = 24;
const CHOSEN_BITS: u32 = 8;
const CHOSEN_MASK: u32 = (1 << CHOSEN_BITS) - 1;

/// The maximum number of keys: an eighth of the indexes, so that few draws find a free one.
pub(super) const MAX_KEYS: usize = 1 << 21;

/// How many indexes are quarantined after their keys were removed. A stale key stays invalid even
/// if its low bits are chosen again.
const MAX_QUARANTINED: usize = 4096;

struct Slot<T> {
    key: Key,
    /// `None` while the index is quarantined.
    object: Option<T>,
}

/// How many places there are for each index in use, at least. So few draws meet a place that is taken.
const SPARSENESS: usize = 8;

const MIN_PLACES: usize = 1 << 8;

/// Objects by key. A look-up takes constant time.
///
/// The low bits of an index are its place. The device draws indexes, and draws again if the place is taken, so no two indexes have
/// the same place, nor have they when the number of places doubles.
pub(super) struct Keys<T> {
    /// For each place, the position of its slot plus one; 0 if it is free.
    places: Vec<u32>,
    slots: Vec<Option<Slot<T>>>,
    free_slots: Vec<u32>,
    /// Quarantined indexes, oldest first.
    quarantined: VecDeque<u32>,
    random: Random,
}

impl<T> Keys<T> {
    pub(super) fn new(random: Random) -> Self {
        Self {
            places: vec![0; MIN_PLACES],
            slots: Vec::new(),
            free_slots: Vec::new(),
            quarantined: VecDeque::new(),
            random,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.used() - self.quarantined.len()
    }

    /// How many indexes are in use or quarantined.
    fn used(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    pub(super) fn insert(&mut self, object: T) -> Option<Key> {
        if self.len() >= MAX_KEYS {
            return None;
        }
        self.make_places();
        loop {
            let index = self.random.bits(INDEX_BITS);
            let low = self.random.bits(CHOSEN_BITS);
            let place = self.place(index);
            // Programs use key 0 for "no key".
            if index == 0 || self.places[place] != 0 {
                continue;
            }
            let key = Key::new(index << CHOSEN_BITS | low);
            let slot = self.free_slots.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            });
            self.places[place] = slot + 1;
            self.slots[slot as usize] = Some(Slot {
                key,
                object: Some(object),
            });
            return Some(key);
        }
    }

    /// Doubles the number of places if too many are taken.
    fn make_places(&mut self) {
        let most = 1 << INDEX_BITS;
        if self.places.len() == most || (self.used() + 1) * SPARSENESS <= self.places.len() {
            return;
        }
        self.places = vec![0; self.places.len() * 2];
        for (position, slot) in (1..).zip(&self.slots) {
            if let Some(slot) = slot {
                let place = index(slot.key) as usize & (self.places.len() - 1);
                self.places[place] = position;
            }
        }
    }

    #[inline]
    fn place(&self, index: u32) -> usize {
        index as usize & (self.places.len() - 1)
    }

    #[inline(always)]
    fn slot(&self, key: Key) -> Option<&Slot<T>> {
        let position = self.places.get(self.place(index(key)))?;
        let slot = self.slots.get((*position as usize).wrapping_sub(1))?;
        slot.as_ref()
    }

    #[inline]
    fn slot_mut(&mut self, key: Key) -> Option<&mut Slot<T>> {
        let position = self.places.get(self.place(index(key)))?;
        let slot = self.slots.get_mut((*position as usize).wrapping_sub(1))?;
        slot.as_mut()
    }

    #[inline(always)]
    pub(super) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slot(key).filter(|slot| slot.key == key)?;
        slot.object.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slot_mut(key).filter(|slot| slot.key == key)?;
        slot.object.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let slots = self.slots.iter().flatten();
        slots.filter_map(|slot| Some((slot.key, slot.object.as_ref()?)))
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let object = self.slot_mut(key)?.object.take();
        self.quarantined.push_back(index(key));
        if self.quarantined.len() > MAX_QUARANTINED
            && let Some(released) = self.quarantined.pop_front()
        {
            self.release(released);
        }
        object
    }

    fn release(&mut self, index: u32) {
        let place = self.place(index);
        let position = std::mem::take(&mut self.places[place]);
        if let Some(slot) = position.checked_sub(1) {
            self.slots[slot as usize] = None;
            self.free_slots.push(slot);
        }
    }

    /// The current key of the object that `key`, perhaps with other low bits, named.
    pub(super) fn current(&self, key: Key) -> Option<Key> {
        let slot = self
            .slot(key)
            .filter(|slot| index(slot.key) == index(key))?;
        slot.object.as_ref()?;
        Some(slot.key)
    }

    /// Assigns the next key, with other low bits, to the object of `key`. The old key becomes
    /// invalid.
    ///
    /// Callers of `ibv_bind_mw` compute the new key before the window is bound, so it follows from
    /// the old one.
    pub(super) fn renew(&mut self, key: Key) -> Key {
        self.retag(key, key.value().wrapping_add(1))
    }

    /// Replaces the low bits of `key` with those of `chosen`. Returns the resulting key.
    pub(super) fn retag(&mut self, key: Key, chosen: u32) -> Key {
        let retagged = Key::new(key.value() & !CHOSEN_MASK | chosen & CHOSEN_MASK);
        if let Some(slot) = self.slot_mut(key)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn keys() -> Keys<&'static str> {
        Keys::new(Random::new([7; 32]))
    }

    #[test]
    fn removed_key_is_invalid() {
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
    fn removed_index_is_quarantined_before_it_is_used_again() {
        let mut keys = keys();
        let removed: Vec<Key> = (0..MAX_QUARANTINED + 1)
            .map(|_| {
                let key = keys.insert("short").expect("the queue has room");
                keys.remove(key);
                key
            })
            .collect();
        let distinct: HashSet<u32> = removed.iter().map(|key| index(*key)).collect();
        assert_eq!(distinct.len(), MAX_QUARANTINED + 1);
        let oldest = keys.place(index(removed[0]));
        assert_eq!(keys.places[oldest], 0, "the oldest index leaves quarantine");
        assert_eq!(keys.used(), MAX_QUARANTINED);
    }

    #[test]
    fn keys_stay_valid_while_there_are_more_and_more() {
        let mut keys = Keys::new(Random::new([7; 32]));
        let all: Vec<Key> = (0..10 * MIN_PLACES)
            .map(|number| keys.insert(number).expect("room"))
            .collect();
        for (number, key) in all.iter().enumerate() {
            assert_eq!(keys.get(*key), Some(&number));
            assert_eq!(keys.current(Key::new(key.value() ^ 1)), Some(*key));
        }
        let places = keys.places.len();
        assert!(all.len() * SPARSENESS <= places && places <= all.len() * SPARSENESS * 2);
    }

    /// The place of a key may be that of another one.
    #[test]
    fn a_key_with_another_index_of_the_same_place_is_invalid() {
        let mut keys = keys();
        let key = keys.insert("one").expect("room");
        let places = (keys.places.len() as u32) << CHOSEN_BITS;
        let other = Key::new(key.value().wrapping_add(places));
        assert_eq!(keys.get(other), None);
        assert_eq!(keys.get_mut(other), None);
        assert_eq!(keys.current(other), None);
        keys.retag(other, 3);
        assert_eq!(keys.get(key), Some(&"one"));
    }

    #[test]
    fn guessed_keys_are_invalid() {
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
    fn all_bits_of_keys_vary() {
        let mut keys = keys();
        let all: Vec<u32> = (0..64)
            .map(|_| {
                keys.insert("one of many")
                    .expect("the queue has room")
                    .value()
            })
            .collect();
        assert_eq!(all.iter().fold(0, |seen, key| seen | key), u32::MAX);
        assert_eq!(all.iter().fold(u32::MAX, |seen, key| seen & key), 0);
    }

    #[test]
    fn choosing_low_bits_invalidates_the_old_key() {
        let mut keys = keys();
        let key = keys.insert("window").expect("empty table");
        let chosen = keys.retag(key, !key.value());
        assert_eq!(chosen.value(), key.value() ^ CHOSEN_MASK);
        assert_eq!(keys.get(key), None);
        assert_eq!(keys.get(chosen), Some(&"window"));
        assert_eq!(keys.current(key), Some(chosen));
    }

    #[test]
    fn renewed_key_differs_only_in_its_low_bits() {
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
    fn insert_fails_when_all_keys_are_in_use() {
        let mut keys = keys();
        for _ in 0..MAX_KEYS {
            assert!(keys.insert("one").is_some());
        }
        assert!(keys.insert("one too many").is_none());
    }
}

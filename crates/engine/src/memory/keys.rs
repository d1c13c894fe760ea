//! Memory keys: where to look, and a tag that makes old and invented ones miss.

use crate::random::Random;
use wire::Key;

/// A key is a slot's index followed by this many bits of tag.
///
/// The low eight of them are what the owner of a type-2 window may choose (`ibv_inc_rkey`); the
/// rest stays the device's own.
const TAG_BITS: u32 = 12;
const CHOSEN_BITS: u32 = 8;
const MAX_SLOTS: usize = 1 << (32 - TAG_BITS);

struct Slot<T> {
    key: Key,
    holder: Option<T>,
}

/// What keys open, found in one step.
pub(super) struct Keys<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    random: Random,
}

impl<T> Keys<T> {
    pub(super) fn new(random: Random) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            random,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, holder: T) -> Option<Key> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < MAX_SLOTS => {
                self.slots.push(Slot {
                    key: Key::new(0),
                    holder: None,
                });
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let key = self.fresh(index);
        self.slots[index as usize] = Slot {
            key,
            holder: Some(holder),
        };
        Some(key)
    }

    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(index(key))?;
        if slot.key != key {
            return None;
        }
        slot.holder.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(index(key))?;
        if slot.key != key {
            return None;
        }
        slot.holder.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots
            .iter()
            .filter_map(|slot| Some((slot.key, slot.holder.as_ref()?)))
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        self.free.push(index(key) as u32);
        self.slots[index(key)].holder.take()
    }

    /// The key that opens now what `key`, perhaps with another choice of tag, opened before.
    pub(super) fn current(&self, key: Key) -> Option<Key> {
        let slot = self.slots.get(index(key))?;
        slot.holder.as_ref()?;
        Self::same_slot(slot.key, key).then_some(slot.key)
    }

    /// A new key for what `key` opened; the old one opens nothing any more.
    pub(super) fn renew(&mut self, key: Key) -> Key {
        let chosen = key.value().wrapping_add(1) & ((1 << CHOSEN_BITS) - 1);
        let fresh = Key::new(key.value() >> CHOSEN_BITS << CHOSEN_BITS | chosen);
        self.retag(key, fresh);
        fresh
    }

    /// Whether `chosen` differs from `key` in nothing but the bits that a caller may choose.
    pub(super) fn same_slot(key: Key, chosen: Key) -> bool {
        key.value() >> CHOSEN_BITS == chosen.value() >> CHOSEN_BITS
    }

    /// Puts the key that the caller chose in the place of `key`.
    pub(super) fn retag(&mut self, key: Key, chosen: Key) {
        debug_assert!(Self::same_slot(key, chosen));
        if self.get(key).is_some() {
            self.slots[index(key)].key = chosen;
        }
    }

    /// A key for the slot that is not the one it had before.
    fn fresh(&mut self, slot: u32) -> Key {
        let former = self.slots[slot as usize].key;
        loop {
            let tag = self.random.next() as u32 & ((1 << TAG_BITS) - 1);
            let key = Key::new(slot << TAG_BITS | tag);
            // Key 0 is what programs put where they have none.
            if key != former && key.value() != 0 {
                return key;
            }
        }
    }
}

#[inline]
fn index(key: Key) -> usize {
    (key.value() >> TAG_BITS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys<&'static str> {
        Keys::new(Random::new(7))
    }

    #[test]
    fn a_removed_key_opens_nothing_even_when_its_slot_is_used_again() {
        let mut keys = keys();
        let old = keys.insert("old").expect("empty table");
        assert_eq!(keys.remove(old), Some("old"));
        let new = keys.insert("new").expect("empty table");
        assert_ne!(new, old);
        assert_eq!(index(new), index(old));
        assert_eq!(keys.get(old), None);
        assert_eq!(keys.get(new), Some(&"new"));
    }

    #[test]
    fn invented_keys_miss() {
        let mut keys = keys();
        let key = keys.insert("secret").expect("empty table");
        let hits = (0..1u32 << TAG_BITS)
            .filter(|&tag| keys.get(Key::new(tag)).is_some())
            .count();
        assert_eq!(hits, 1);
        assert!(keys.get(key).is_some());
        assert!(keys.get(Key::new(u32::MAX)).is_none());
    }

    #[test]
    fn a_chosen_tag_replaces_the_old_key() {
        let mut keys = keys();
        let key = keys.insert("window").expect("empty table");
        let chosen = Key::new(key.value() ^ 0x55);
        assert!(Keys::<&str>::same_slot(key, chosen));
        assert!(!Keys::<&str>::same_slot(key, Key::new(key.value() ^ 0x100)));
        keys.retag(key, chosen);
        assert_eq!(keys.get(key), None);
        assert_eq!(keys.get(chosen), Some(&"window"));
    }
}

//! A slab of objects whose handles become stale when the object is destroyed.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// A handle to one object of a device.
///
/// It is valid until the object is destroyed, and never names another object afterwards.
pub struct Id<T> {
    index: u32,
    generation: u32,
    kind: PhantomData<fn() -> T>,
}

impl<T> Id<T> {
    /// The index of the object in its table: small, dense, and reused after destruction.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Id<T> {}

impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.index, self.generation) == (other.index, other.generation)
    }
}

impl<T> Eq for Id<T> {}

impl<T> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.index, self.generation).hash(state);
    }
}

impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}.{}", self.index, self.generation)
    }
}

struct Entry<T> {
    generation: u32,
    object: Option<T>,
}

/// A slab of objects, each named by an [`Id`]. `Stored` is how the table holds them, for example an `Arc`.
pub(crate) struct Table<T, Stored = T> {
    entries: Vec<Entry<Stored>>,
    free: Vec<u32>,
    capacity: u32,
    kind: PhantomData<fn() -> T>,
}

impl<T, Stored> Table<T, Stored> {
    pub(crate) fn with_capacity(capacity: u32) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            capacity,
            kind: PhantomData,
        }
    }

    /// Inserts an object and returns its handle, or `None` if the table is full.
    pub(crate) fn insert(&mut self, object: Stored) -> Option<Id<T>> {
        self.insert_with(|_| object)
    }

    /// As [`insert`](Self::insert), for an object that knows its handle.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Id<T>) -> Stored) -> Option<Id<T>> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.entries.len() < self.capacity as usize => {
                self.entries.push(Entry {
                    generation: 0,
                    object: None,
                });
                self.entries.len() as u32 - 1
            }
            None => return None,
        };
        let entry = &mut self.entries[index as usize];
        let id = Id {
            index,
            generation: entry.generation,
            kind: PhantomData,
        };
        entry.object = Some(make(id));
        Some(id)
    }

    /// How many objects the table holds.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn get(&self, id: Id<T>) -> Option<&Stored> {
        let entry = self.entries.get(id.index as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        entry.object.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: Id<T>) -> Option<&mut Stored> {
        let entry = self.entries.get_mut(id.index as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        entry.object.as_mut()
    }

    pub(crate) fn remove(&mut self, id: Id<T>) -> Option<Stored> {
        self.get(id)?;
        let entry = &mut self.entries[id.index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(id.index);
        entry.object.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_is_stale_after_its_object_is_removed() {
        let mut table = Table::<&str>::with_capacity(2);
        let first = table.insert("first").expect("the table has room for two");
        assert_eq!(table.remove(first), Some("first"));
        let second = table.insert("second").expect("the table has room for two");
        assert_eq!(second.index(), first.index());
        assert_eq!(table.get(first), None);
        assert_eq!(table.get(second), Some(&"second"));
    }

    #[test]
    fn insert_into_a_full_table_fails() {
        let mut table = Table::<i32>::with_capacity(1);
        assert!(table.insert(1).is_some());
        assert!(table.insert(2).is_none());
    }
}

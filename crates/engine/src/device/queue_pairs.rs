//! Queue pairs by number.

use std::collections::VecDeque;

use wire::Qpn;

use crate::queue_pair::QueuePair;

/// The numbers that a device may give its queue pairs.
///
/// `capacity` times `reuse` numbers from `first` on. Several devices, or several processes that
/// share one address, get ranges that do not overlap. A number comes up again only after `reuse`
/// others in its place, so that late packets of an old connection find nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberSpace {
    /// The lowest number.
    pub first: u32,
    /// How many queue pairs there may be at a time: a power of two.
    pub capacity: u32,
    /// How many numbers each of them goes through.
    pub reuse: u32,
}

impl Default for NumberSpace {
    /// A quarter of a million numbers, beginning where the kernel's begin.
    fn default() -> Self {
        Self {
            first: 16,
            capacity: 1 << 16,
            reuse: 4,
        }
    }
}

/// So many places rest before one is used again: a peer that remembers a connection for some seconds
/// after its end would take its number for that connection.
const RESTING: usize = 4096;

#[derive(Default)]
struct Slot {
    uses: u32,
    // Boxed: an empty slot is small, and a queue pair does not move when the table grows.
    queue_pair: Option<Box<QueuePair>>,
}

/// All queue pairs of a device, found in one step.
pub(super) struct QueuePairs {
    space: NumberSpace,
    slots: Vec<Slot>,
    /// Places that were used, the longest unused first.
    free: VecDeque<u32>,
    /// Queue pair 1, when somebody manages connections.
    management: Option<Box<QueuePair>>,
}

impl QueuePairs {
    pub(super) fn new(space: NumberSpace) -> Self {
        assert!(
            space.capacity.is_power_of_two(),
            "the capacity of a number space is a power of two"
        );
        Self {
            space,
            slots: Vec::new(),
            free: VecDeque::new(),
            management: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len() + usize::from(self.management.is_some())
    }

    /// Makes a queue pair under a number of its own; nothing when all are taken.
    pub(super) fn insert(&mut self, make: impl FnOnce(Qpn) -> QueuePair) -> Option<Qpn> {
        let grows = (self.slots.len() as u32) < self.space.capacity;
        let index = if grows && self.free.len() < RESTING {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        } else {
            self.free.pop_front()?
        };
        let slot = &mut self.slots[index as usize];
        let cycle = slot.uses % self.space.reuse.max(1);
        slot.uses = slot.uses.wrapping_add(1);
        let number = Qpn::new(self.space.first + cycle * self.space.capacity + index);
        slot.queue_pair = Some(Box::new(make(number)));
        Some(number)
    }

    pub(super) fn insert_management(&mut self, make: impl FnOnce(Qpn) -> QueuePair) -> Option<Qpn> {
        if self.management.is_some() {
            return None;
        }
        self.management = Some(Box::new(make(Qpn::GSI)));
        Some(Qpn::GSI)
    }

    #[inline]
    pub(super) fn get(&self, number: Qpn) -> Option<&QueuePair> {
        if number == Qpn::GSI {
            return self.management.as_deref();
        }
        let found = self.slots.get(self.index(number)?)?.queue_pair.as_deref()?;
        (found.number() == number).then_some(found)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: Qpn) -> Option<&mut QueuePair> {
        if number == Qpn::GSI {
            return self.management.as_deref_mut();
        }
        let index = self.index(number)?;
        let found = self.slots.get_mut(index)?.queue_pair.as_deref_mut()?;
        (found.number() == number).then_some(found)
    }

    pub(super) fn remove(&mut self, number: Qpn) -> Option<Box<QueuePair>> {
        if number == Qpn::GSI {
            return self.management.take();
        }
        self.get(number)?;
        let index = self.index(number)?;
        self.free.push_back(index as u32);
        self.slots[index].queue_pair.take()
    }

    /// Whether there was a queue pair of this number, now or before.
    pub(super) fn has_been(&self, number: Qpn) -> bool {
        let Some(index) = self.index(number) else {
            return false;
        };
        let cycle = (number.value() - self.space.first) / self.space.capacity;
        self.slots.get(index).is_some_and(|slot| slot.uses > cycle)
    }

    /// The numbers of all queue pairs, in the order of their slots.
    pub(super) fn numbers(&self) -> impl Iterator<Item = Qpn> {
        self.slots
            .iter()
            .filter_map(|slot| slot.queue_pair.as_deref())
            .chain(self.management.as_deref())
            .map(QueuePair::number)
    }

    fn index(&self, number: Qpn) -> Option<usize> {
        let offset = number.value().checked_sub(self.space.first)?;
        Some((offset & (self.space.capacity - 1)) as usize)
    }
}

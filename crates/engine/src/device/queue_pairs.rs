//! Queue pairs by number.

use std::collections::VecDeque;

use wire::Qpn;

use crate::qpn_range::{QpnRange, RESERVED};
use crate::queue_pair::QueuePair;
use crate::random::Random;

/// How many released numbers are quarantined, if the range is large enough. A peer may remember an
/// ended connection for some seconds and would mistake a new queue pair of the same number for it.
const MAX_QUARANTINED: u32 = 4096;

/// How many numbers are drawn for a new queue pair. If five of eight numbers are taken, one of a trillion series finds none.
const MAX_DRAWS: usize = 64;

/// The state of a number: one of these values, or the slot of its queue pair plus [`FIRST_SLOT`].
/// All numbers start as [`NEVER_USED`], which is zero, so the system allocates memory only for the
/// parts of the range that are used.
const NEVER_USED: u32 = 0;
const QUARANTINED: u32 = 1;
const RELEASED: u32 = 2;
const FIRST_SLOT: u32 = 3;

/// All queue pairs of a device. A look-up by number takes constant time.
pub(super) struct QueuePairs {
    space: QpnRange,
    /// The state of each number of the range.
    number_states: Vec<u32>,
    // Boxed, so that a queue pair does not move when the vector grows.
    slots: Vec<Option<Box<QueuePair>>>,
    free_slots: Vec<u32>,
    /// Quarantined numbers, oldest first.
    quarantined: VecDeque<Qpn>,
    /// Queue pair 1, if it was created.
    management: Option<Box<QueuePair>>,
    random: Random,
}

impl QueuePairs {
    /// The numbers of this device.
    #[inline]
    pub(super) fn space(&self) -> QpnRange {
        self.space
    }

    pub(super) fn new(space: QpnRange, random: Random) -> Self {
        let QpnRange { first, count } = space;
        assert!(
            count.is_power_of_two() && first + count <= 1 << 24,
            "the range of numbers is a power of two of 24-bit numbers"
        );
        Self {
            space,
            number_states: vec![NEVER_USED; count as usize],
            slots: Vec::new(),
            free_slots: Vec::new(),
            quarantined: VecDeque::new(),
            management: None,
            random,
        }
    }

    /// The maximum number of queue pairs at a time, not counting queue pair 1.
    pub(super) fn capacity(&self) -> u32 {
        self.space.capacity()
    }

    pub(super) fn len(&self) -> usize {
        self.numbered() + usize::from(self.management.is_some())
    }

    /// How many queue pairs have a number of the range.
    fn numbered(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    /// Creates a queue pair with a new number of a part of the range. Returns `None` if the maximum is reached.
    pub(super) fn insert(
        &mut self,
        numbers: QpnRange,
        given: &[QpnRange],
        make: impl FnOnce(Qpn) -> QueuePair,
    ) -> Option<Qpn> {
        if self.numbered() >= self.capacity() as usize {
            return None;
        }
        let number = self.draw(numbers, given)?;
        self.put(Box::new(make(number)));
        Some(number)
    }

    /// Adds a queue pair that has a number of the range, which is free.
    pub(super) fn put(&mut self, queue_pair: Box<QueuePair>) {
        let number = queue_pair.number();
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.set_state(number, FIRST_SLOT + slot);
        self.slots[slot as usize] = Some(queue_pair);
    }

    /// Draws a free number. `None` if most of these are in use.
    ///
    /// Of the whole range fewer than half of the usable numbers are in use and at most an eighth is quarantined, so a
    /// few draws find a free one.
    fn draw(&mut self, numbers: QpnRange, given: &[QpnRange]) -> Option<Qpn> {
        let bits = numbers.count.trailing_zeros();
        let mut draws = (0..MAX_DRAWS).map(|_| match bits {
            0 => Qpn::new(numbers.first),
            bits => Qpn::new(numbers.first + self.random.bits(bits)),
        });
        draws.find(|number| {
            let state = self.space.offset(*number).map(|at| self.number_states[at]);
            matches!(state, Some(NEVER_USED | RELEASED))
                && !RESERVED.contains(number)
                && !given.iter().any(|given| given.contains(*number))
        })
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
        self.slots[self.slot(number)?].as_deref()
    }

    /// A queue pair, to change it.
    #[inline]
    pub(super) fn get_mut(&mut self, number: Qpn) -> Option<&mut QueuePair> {
        let queue_pair = self.get_to_receive(number)?;
        queue_pair.leave_step();
        Some(queue_pair)
    }

    /// A queue pair, to post receives: so it stays in step with its peer.
    #[inline]
    pub(super) fn get_to_receive(&mut self, number: Qpn) -> Option<&mut QueuePair> {
        if number == Qpn::GSI {
            return self.management.as_deref_mut();
        }
        let slot = self.slot(number)?;
        self.slots[slot].as_deref_mut()
    }

    /// A queue pair and its peer, if that is another queue pair of this device.
    #[inline]
    pub(super) fn with_peer(&mut self, number: Qpn) -> Option<[&mut QueuePair; 2]> {
        let own = self.slot(number)?;
        let peer = self.slots[own].as_deref()?.peer_number()?;
        let both = [own, self.slot(peer)?];
        let [own, peer] = self.slots.get_disjoint_mut(both).ok()?;
        Some([own.as_deref_mut()?, peer.as_deref_mut()?])
    }

    pub(super) fn remove(&mut self, number: Qpn) -> Option<Box<QueuePair>> {
        if number == Qpn::GSI {
            return self.management.take();
        }
        let slot = self.slot(number)?;
        self.free_slots.push(slot as u32);
        self.quarantine(number);
        self.slots[slot].take()
    }

    /// Removes a queue pair whose number another device uses from now on.
    pub(super) fn take(&mut self, number: Qpn) -> Option<Box<QueuePair>> {
        let slot = self.slot(number)?;
        self.free_slots.push(slot as u32);
        self.set_state(number, RELEASED);
        self.slots[slot].take()
    }

    /// The quarantined ones of these numbers.
    pub(super) fn quarantined_in(&self, numbers: QpnRange) -> Vec<Qpn> {
        let quarantined = self.quarantined.iter().copied();
        quarantined.filter(|it| numbers.contains(*it)).collect()
    }

    /// Keeps a released number out of use until enough others have been released.
    pub(super) fn quarantine(&mut self, number: Qpn) {
        self.set_state(number, QUARANTINED);
        self.quarantined.push_back(number);
        let most = MAX_QUARANTINED.min(self.space.usable() / 8);
        if self.quarantined.len() > most as usize
            && let Some(released) = self.quarantined.pop_front()
        {
            self.set_state(released, RELEASED);
        }
    }

    fn set_state(&mut self, number: Qpn, state: u32) {
        if let Some(offset) = self.space.offset(number) {
            self.number_states[offset] = state;
        }
    }

    /// Whether a queue pair has or had this number.
    pub(super) fn was_used(&self, number: Qpn) -> bool {
        let offset = self.space.offset(number);
        offset.is_some_and(|offset| self.number_states[offset] != NEVER_USED)
    }

    /// The numbers of all queue pairs.
    pub(super) fn numbers(&self) -> impl Iterator<Item = Qpn> {
        self.iter().map(QueuePair::number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &QueuePair> {
        let numbered = self.slots.iter().filter_map(Option::as_deref);
        numbered.chain(self.management.as_deref())
    }

    #[inline]
    fn slot(&self, number: Qpn) -> Option<usize> {
        let state = self.number_states[self.space.offset(number)?];
        Some(state.checked_sub(FIRST_SLOT)? as usize)
    }
}

//! Queue pairs by number.

use std::collections::VecDeque;

use wire::Qpn;

use crate::qpn_range::{QpnRange, RESERVED};
use crate::queue_pair::QueuePair;
use crate::random::Random;

/// How many released numbers are quarantined, if the range is large enough. A peer may remember an
/// ended connection for some seconds and would mistake a new queue pair of the same number for it.
const MAX_QUARANTINED: u32 = 4096;

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

    /// Creates a queue pair with a new number. Returns `None` if the maximum is reached.
    pub(super) fn insert(&mut self, make: impl FnOnce(Qpn) -> QueuePair) -> Option<Qpn> {
        if self.numbered() >= self.capacity() as usize {
            return None;
        }
        let offset = self.draw();
        let number = Qpn::new(self.space.first + offset);
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.number_states[offset as usize] = FIRST_SLOT + slot;
        self.slots[slot as usize] = Some(Box::new(make(number)));
        Some(number)
    }

    /// Draws a free number, as an offset in the range.
    ///
    /// Fewer than half of the usable numbers are in use and at most an eighth is quarantined, so a
    /// few draws find a free one.
    fn draw(&mut self) -> u32 {
        let bits = self.space.count.trailing_zeros();
        loop {
            let offset = match bits {
                0 => 0,
                bits => self.random.bits(bits),
            };
            let is_free = matches!(self.number_states[offset as usize], NEVER_USED | RELEASED);
            if is_free && !RESERVED.contains(&Qpn::new(self.space.first + offset)) {
                return offset;
            }
        }
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

    #[inline]
    pub(super) fn get_mut(&mut self, number: Qpn) -> Option<&mut QueuePair> {
        if number == Qpn::GSI {
            return self.management.as_deref_mut();
        }
        let slot = self.slot(number)?;
        self.slots[slot].as_deref_mut()
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

    /// Keeps a released number out of use until enough others have been released.
    fn quarantine(&mut self, number: Qpn) {
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

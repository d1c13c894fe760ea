//! Queue pairs by number.

use std::collections::VecDeque;

use wire::Qpn;

use crate::queue_pair::QueuePair;
use crate::random::Random;

/// The numbers that a device may give its queue pairs: `count` numbers from `first` on.
///
/// Several devices, or several processes that share one address, get spaces that do not overlap.
/// The numbers 0, 1 and 0xffffff have a meaning of their own and are left out. At most half of the
/// rest is in use at a time: numbers are drawn at random, and one that was used rests before it is
/// used again, so that late packets of an old connection find no queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberSpace {
    /// The lowest number.
    pub first: u32,
    /// How many numbers: a power of two, at most 2^24.
    pub count: u32,
}

impl Default for NumberSpace {
    /// A quarter of a million numbers.
    fn default() -> Self {
        Self {
            first: 0,
            count: 1 << 18,
        }
    }
}

impl NumberSpace {
    /// How many queue pairs there may be at a time.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        match self.usable() {
            0 => 0,
            usable => (usable / 2).max(1),
        }
    }

    fn usable(&self) -> u32 {
        let reserved = RESERVED.into_iter().filter(|number| self.contains(*number));
        self.count - reserved.count() as u32
    }

    fn contains(&self, number: Qpn) -> bool {
        self.offset(number).is_some()
    }

    #[inline]
    fn offset(&self, number: Qpn) -> Option<usize> {
        let offset = number.value().checked_sub(self.first)?;
        (offset < self.count).then_some(offset as usize)
    }
}

/// The subnet manager's number, the connection manager's, and the one of multicast packets.
const RESERVED: [Qpn; 3] = [Qpn::new(0), Qpn::GSI, Qpn::MULTICAST];

/// How many numbers rest before one is used again, in a space large enough. A peer that remembers a
/// connection for some seconds after its end would take its number for that connection.
const RESTING: u32 = 4096;

/// What a number is used for: one of these, or the place of a queue pair counted from
/// [`FIRST_PLACE`]. All are [`NEVER_USED`] at first, so that the system gives memory only for the
/// parts of the space where numbers are used.
const NEVER_USED: u32 = 0;
const RESTS: u32 = 1;
const HAS_RESTED: u32 = 2;
const FIRST_PLACE: u32 = 3;

/// All queue pairs of a device, found in one step.
pub(super) struct QueuePairs {
    space: NumberSpace,
    /// What each number of the space is used for.
    uses: Vec<u32>,
    // Boxed: a queue pair does not move when the list grows.
    places: Vec<Option<Box<QueuePair>>>,
    free_places: Vec<u32>,
    /// Numbers that rest, the longest first.
    resting: VecDeque<Qpn>,
    /// Queue pair 1, when somebody manages connections.
    management: Option<Box<QueuePair>>,
    random: Random,
}

impl QueuePairs {
    pub(super) fn new(space: NumberSpace, random: Random) -> Self {
        let NumberSpace { first, count } = space;
        assert!(
            count.is_power_of_two() && first + count <= 1 << 24,
            "a number space is a power of two of 24-bit numbers"
        );
        Self {
            space,
            uses: vec![NEVER_USED; count as usize],
            places: Vec::new(),
            free_places: Vec::new(),
            resting: VecDeque::new(),
            management: None,
            random,
        }
    }

    /// How many there may be at a time, besides queue pair 1.
    pub(super) fn capacity(&self) -> u32 {
        self.space.capacity()
    }

    pub(super) fn len(&self) -> usize {
        self.numbered() + usize::from(self.management.is_some())
    }

    /// How many have a number of the space.
    fn numbered(&self) -> usize {
        self.places.len() - self.free_places.len()
    }

    /// Makes a queue pair under a number of its own; nothing when there are as many as may be.
    pub(super) fn insert(&mut self, make: impl FnOnce(Qpn) -> QueuePair) -> Option<Qpn> {
        if self.numbered() >= self.capacity() as usize {
            return None;
        }
        let offset = self.draw();
        let number = Qpn::new(self.space.first + offset);
        let place = self.free_places.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        self.uses[offset as usize] = FIRST_PLACE + place;
        self.places[place as usize] = Some(Box::new(make(number)));
        Some(number)
    }

    /// A number that is free, as an offset in the space.
    ///
    /// Fewer than half of the usable numbers are in use and at most an eighth rests, so that a draw
    /// meets a free one soon.
    fn draw(&mut self) -> u32 {
        let bits = self.space.count.trailing_zeros();
        loop {
            let offset = match bits {
                0 => 0,
                bits => self.random.bits(bits),
            };
            let is_free = matches!(self.uses[offset as usize], NEVER_USED | HAS_RESTED);
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
        self.places[self.place(number)?].as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: Qpn) -> Option<&mut QueuePair> {
        if number == Qpn::GSI {
            return self.management.as_deref_mut();
        }
        let place = self.place(number)?;
        self.places[place].as_deref_mut()
    }

    pub(super) fn remove(&mut self, number: Qpn) -> Option<Box<QueuePair>> {
        if number == Qpn::GSI {
            return self.management.take();
        }
        let place = self.place(number)?;
        self.free_places.push(place as u32);
        self.rest(number);
        self.places[place].take()
    }

    /// Keeps a number out of use until so many others were used.
    fn rest(&mut self, number: Qpn) {
        self.set_use(number, RESTS);
        self.resting.push_back(number);
        let most = RESTING.min(self.space.usable() / 8);
        if self.resting.len() > most as usize
            && let Some(rested) = self.resting.pop_front()
        {
            self.set_use(rested, HAS_RESTED);
        }
    }

    fn set_use(&mut self, number: Qpn, used_for: u32) {
        if let Some(offset) = self.space.offset(number) {
            self.uses[offset] = used_for;
        }
    }

    /// Whether there was a queue pair of this number, now or before.
    pub(super) fn has_been(&self, number: Qpn) -> bool {
        let offset = self.space.offset(number);
        offset.is_some_and(|offset| self.uses[offset] != NEVER_USED)
    }

    /// The numbers of all queue pairs.
    pub(super) fn numbers(&self) -> impl Iterator<Item = Qpn> {
        self.places
            .iter()
            .filter_map(Option::as_deref)
            .chain(self.management.as_deref())
            .map(QueuePair::number)
    }

    #[inline]
    fn place(&self, number: Qpn) -> Option<usize> {
        let used_for = self.uses[self.space.offset(number)?];
        Some(used_for.checked_sub(FIRST_PLACE)? as usize)
    }
}

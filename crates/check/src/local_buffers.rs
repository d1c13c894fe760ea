//! The local memory that requests use until the program knows that they have ended.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use wire::{Key, Qpn};

use crate::request_name::{QueuePairId, RequestName, common};
use crate::thread_order::SyncPoint;

/// An address space: the memory of the process, or a region without memory.
pub(crate) type Space = u64;

/// Identifies a use.
pub(crate) type UseKey = (Space, u64, u64);

/// What a request does with local memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It sends the bytes.
    Send,
    /// It stores the result of a READ or an atomic.
    Result,
    /// It stores a message.
    Receive,
}

impl Purpose {
    /// Whether the order of two requests matters as soon as both are outstanding. A receive stores nothing before
    /// its message arrives.
    fn conflicts(self, other: Self) -> bool {
        match (self, other) {
            (Self::Send, Self::Send) => false,
            (Self::Receive, Self::Receive) => true,
            _ => self != Self::Receive && other != Self::Receive,
        }
    }
}

/// A range of memory that a request uses.
#[derive(Debug, Clone)]
pub(crate) struct LocalUse<S> {
    pub(crate) space: Space,
    pub(crate) range: Range<u64>,
    /// The L_Key.
    pub(crate) key: Key,
    pub(crate) purpose: Purpose,
    pub(crate) request: RequestName,
    pub(crate) call: S,
    /// The number of the request in its queue pair.
    pub(crate) serial: u64,
    /// Whether the request has ended. The program does not know it yet.
    pub(crate) ended: bool,
    /// The id of a receive of the same queue pair whose message was stored into it while the request was outstanding.
    pub(crate) overwritten_by: Option<u64>,
    /// The queue pair through which a peer last wrote into it while it waited for a message, and where.
    pub(crate) written_through: Option<(Qpn, Range<u64>)>,
    /// What the request leaves for the poll, if the order of threads is told.
    pub(crate) sync: Option<SyncPoint>,
    /// Whether the device stored other data into it, so that a change says nothing about the program.
    pub(crate) overwritten: bool,
}

/// All uses, ordered by address.
#[derive(Debug)]
pub(crate) struct LocalUses<S> {
    uses: BTreeMap<UseKey, LocalUse<S>>,
    longest: u64,
    next: u64,
    /// How many uses have each purpose.
    counts: [usize; 3],
    /// What was sent or stored by the device, and how many uses there had been, oldest first.
    touched: VecDeque<(u64, Space, Range<u64>)>,
}

/// How much of what was sent or stored is remembered.
const MAX_TOUCHED: usize = 4096;

impl<S> LocalUses<S> {
    pub(crate) fn new() -> Self {
        Self {
            uses: BTreeMap::new(),
            longest: 0,
            next: 0,
            counts: [0; 3],
            touched: VecDeque::new(),
        }
    }

    pub(crate) fn insert(&mut self, it: LocalUse<S>) -> UseKey {
        let key = (it.space, it.range.start, self.next);
        self.next += 1;
        self.counts[it.purpose as usize] += 1;
        if it.purpose != Purpose::Receive {
            self.touch(it.space, &it.range);
        }
        self.longest = self.longest.max(it.range.end - it.range.start);
        self.uses.insert(key, it);
        key
    }

    pub(crate) fn remove(&mut self, keys: &[UseKey]) {
        for key in keys {
            if let Some(removed) = self.uses.remove(key) {
                self.counts[removed.purpose as usize] -= 1;
            }
        }
        if self.uses.is_empty() {
            self.longest = 0;
        }
    }

    pub(crate) fn get(&self, key: &UseKey) -> Option<&LocalUse<S>> {
        self.uses.get(key)
    }

    /// Whether a use has this purpose.
    pub(crate) fn has(&self, purpose: Purpose) -> bool {
        self.counts[purpose as usize] > 0
    }

    /// Notes that a request has ended.
    pub(crate) fn end(&mut self, keys: &[UseKey]) {
        for key in keys {
            if let Some(it) = self.uses.get_mut(key) {
                it.ended = true;
            }
        }
    }

    /// Notes that the message of a receive was stored into memory that requests send.
    pub(crate) fn note_received(
        &mut self,
        space: Space,
        range: &Range<u64>,
        queue_pair: Option<QueuePairId>,
        receive: u64,
    ) {
        self.touch(space, range);
        self.for_each(Purpose::Send, space, range, |it| {
            if it.request.queue_pair == queue_pair && !it.ended {
                it.overwritten_by = Some(receive);
            } else {
                it.overwritten = true;
            }
        });
    }

    /// Notes that the device stores something into memory that requests send.
    pub(crate) fn note_stored(&mut self, space: Space, range: &Range<u64>) {
        self.touch(space, range);
        self.for_each(Purpose::Send, space, range, |it| it.overwritten = true);
    }

    fn touch(&mut self, space: Space, range: &Range<u64>) {
        if !self.has(Purpose::Receive) {
            return;
        }
        if self.touched.len() >= MAX_TOUCHED {
            self.touched.pop_front();
        }
        self.touched.push_back((self.next, space, range.clone()));
    }

    /// Whether the memory of a receive certainly was neither sent nor stored to since it was posted: nobody but the program
    /// has changed it, and it is not the program's own as that of a message is.
    pub(crate) fn is_untouched(&self, key: &UseKey) -> bool {
        let Some(used) = self.get(key) else {
            return false;
        };
        let is_later = |(next, ..): &&(u64, Space, Range<u64>)| *next > key.2;
        let remembers_all = self.touched.len() < MAX_TOUCHED
            || self.touched.front().is_some_and(|it| !is_later(&it));
        let mut later = self.touched.iter().rev().take_while(is_later);
        let mut others = self.overlapping(used.space, &used.range);
        remembers_all
            && !later.any(|(_, space, range)| {
                *space == used.space && common(range, &used.range).is_some()
            })
            && others.all(|(other, _)| other.purpose == Purpose::Receive)
    }

    /// Notes that a peer wrote into memory that waits for messages.
    pub(crate) fn note_written(&mut self, space: Space, range: &Range<u64>, through: Qpn) {
        self.for_each(Purpose::Receive, space, range, |it| {
            it.written_through = Some((through, range.clone()));
        });
    }

    fn for_each(
        &mut self,
        purpose: Purpose,
        space: Space,
        range: &Range<u64>,
        mut note: impl FnMut(&mut LocalUse<S>),
    ) {
        if !self.has(purpose) {
            return;
        }
        let lowest = range.start.saturating_sub(self.longest);
        let near = (self.uses).range_mut((space, lowest, 0)..(space, range.end, 0));
        for (_, it) in near {
            if it.purpose == purpose && common(&it.range, range).is_some() {
                note(it);
            }
        }
    }

    /// The uses that share bytes with a range, and these bytes.
    pub(crate) fn overlapping<'u>(
        &'u self,
        space: Space,
        range: &'u Range<u64>,
    ) -> impl Iterator<Item = (&'u LocalUse<S>, Range<u64>)> {
        let lowest = range.start.saturating_sub(self.longest);
        let near = (self.uses).range((space, lowest, 0)..(space, range.end, 0));
        near.filter_map(move |(_, it)| Some((it, common(&it.range, range)?)))
    }

    /// A use that conflicts with a new one. The new request waits for reads and atomics before the number `fence` of
    /// its queue pair.
    pub(crate) fn conflict<'u>(
        &'u self,
        new: &'u LocalUse<S>,
        fence: u64,
    ) -> Option<(&'u LocalUse<S>, Range<u64>)> {
        let purposes = [Purpose::Send, Purpose::Result, Purpose::Receive];
        let mut conflicting = purposes.iter().filter(|it| it.conflicts(new.purpose));
        if !conflicting.any(|it| self.has(*it)) {
            return None;
        }
        let mut overlapping = self.overlapping(new.space, &new.range);
        overlapping.find(|(other, _)| {
            let same_queue = other.request.queue_pair == new.request.queue_pair;
            let waits = same_queue
                && match other.purpose {
                    Purpose::Result => new.purpose == Purpose::Send && other.serial < fence,
                    // The result arrives after everything before it has been executed.
                    Purpose::Send => new.purpose == Purpose::Result,
                    Purpose::Receive => false,
                };
            other.purpose.conflicts(new.purpose) && !waits
        })
    }
}

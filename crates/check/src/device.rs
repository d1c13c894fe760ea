//! The objects of one device, as far as the rules need them.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::ops::Range;

use engine::SharedReceiveQueue;
use engine::observation::{QueuePairSizes, RemoteAccess, RemoteAccessKind};
use engine::{Access, Completion, CompletionQueue, Id, QueuePairType, Registration};
use wire::{Key, Qpn};

use crate::local_use::{Space, UseKey};
use crate::request::{DeviceId, RequestName};

/// How many keys of deregistered memory are remembered.
const MAX_FORMER_KEYS: usize = 4096;

/// How many accesses of peers are remembered until they are answered.
const MAX_ARRIVALS: usize = 4096;

#[derive(Debug)]
pub(crate) struct Device<S> {
    pub(crate) queue_pairs: HashMap<Qpn, QueuePair<S>>,
    pub(crate) completion_queues: HashMap<Id<CompletionQueue>, Room>,
    pub(crate) shared_receives: HashMap<Id<SharedReceiveQueue>, VecDeque<Receive>>,
    pub(crate) domains: usize,
    /// By L_Key.
    regions: HashMap<Key, (Registration, Access)>,
    /// The regions whose addresses start at zero, by each of their keys.
    zero_based: HashMap<Key, Space>,
    /// R_Keys of deregistered memory, with its range.
    former_keys: VecDeque<(Key, Range<u64>)>,
    /// Accesses of peers that are not answered.
    arrivals: VecDeque<RemoteAccess>,
}

/// The room of a completion queue.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub(crate) capacity: u32,
    /// How many completions may be in it if the program does not poll.
    pub(crate) expected: u32,
}

#[derive(Debug)]
pub(crate) struct QueuePair<S> {
    pub(crate) sizes: QueuePairSizes,
    pub(crate) peer: Option<IpAddr>,
    /// Send requests whose completions the program has not polled, oldest first.
    pub(crate) sends: VecDeque<Send<S>>,
    /// The number of the oldest of them.
    pub(crate) first_serial: u64,
    /// How many of them have ended.
    pub(crate) ended: usize,
    /// Requests from now on wait for reads and atomics before this number.
    pub(crate) fence: u64,
    /// How many requests in succession were not signaled.
    pub(crate) unsignaled: u32,
    pub(crate) receives: VecDeque<Receive>,
    /// Receives that have ended and whose completions the program has not polled, oldest first.
    pub(crate) received: VecDeque<Receive>,
    pub(crate) has_posted_receive: bool,
    /// How many completions its requests still bring to each of its completion queues.
    pub(crate) expected_sends: u32,
    pub(crate) expected_receives: u32,
    /// Completions with an error that the program has not polled.
    pub(crate) failures: Vec<Completion>,
}

#[derive(Debug)]
pub(crate) struct Send<S> {
    pub(crate) request: RequestName,
    pub(crate) ranges: Vec<Range<u64>>,
    pub(crate) uses: Vec<UseKey>,
    pub(crate) signaled: bool,
    /// Whether it has a completion. Known when it has ended.
    pub(crate) completes: bool,
    /// Whether the program can know that it has ended, although it has polled no completion that covers it.
    pub(crate) is_known: bool,
    pub(crate) call: S,
}

#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) id: u64,
    pub(crate) uses: Vec<UseKey>,
}

impl<S> Device<S> {
    pub(crate) fn new() -> Self {
        Self {
            queue_pairs: HashMap::new(),
            completion_queues: HashMap::new(),
            shared_receives: HashMap::new(),
            domains: 0,
            regions: HashMap::new(),
            zero_based: HashMap::new(),
            former_keys: VecDeque::new(),
            arrivals: VecDeque::new(),
        }
    }

    pub(crate) fn region_count(&self) -> usize {
        self.regions.len()
    }

    pub(crate) fn register(&mut self, id: DeviceId, region: Registration, access: Access) {
        if access.contains(Access::ZERO_BASED) {
            let space = (u64::from(id.0) + 1) << 32 | u64::from(region.local_key.value());
            self.zero_based.insert(region.local_key, space);
            self.zero_based.insert(region.remote_key, space);
        }
        // The key may have been used before.
        self.former_keys
            .retain(|(key, _)| *key != region.remote_key);
        self.regions.insert(region.local_key, (region, access));
    }

    pub(crate) fn deregister(&mut self, key: Key) {
        let Some((region, _)) = self.regions.remove(&key) else {
            return;
        };
        self.zero_based.remove(&region.local_key);
        self.zero_based.remove(&region.remote_key);
        if self.former_keys.len() >= MAX_FORMER_KEYS {
            self.former_keys.pop_front();
        }
        let range = region.address..region.address.saturating_add(region.length);
        self.former_keys.push_back((region.remote_key, range));
    }

    /// The range of memory that had an R_Key before it was deregistered.
    pub(crate) fn former_range(&self, key: Key) -> Option<&Range<u64>> {
        let mut former = self.former_keys.iter();
        former
            .find(|(former, _)| *former == key)
            .map(|(_, range)| range)
    }

    /// The address space of a key.
    pub(crate) fn space(&self, key: Key) -> Space {
        self.zero_based.get(&key).copied().unwrap_or(0)
    }

    /// Adds an access of a peer that is not answered. A later packet of the same message extends it.
    pub(crate) fn add_arrival(&mut self, access: RemoteAccess) {
        if !self.is_answered(access.queue_pair) {
            return;
        }
        let extends = |before: &RemoteAccess| {
            before.queue_pair == access.queue_pair
                && before.kind == RemoteAccessKind::Write
                && access.kind == RemoteAccessKind::Write
                && before.key == access.key
                && before.address.wrapping_add(before.length.into()) == access.address
        };
        match self.arrivals.back_mut() {
            Some(before) if extends(before) => {
                before.length = before.length.saturating_add(access.length);
            }
            _ => {
                if self.arrivals.len() >= MAX_ARRIVALS {
                    self.arrivals.pop_front();
                }
                self.arrivals.push_back(access);
            }
        }
    }

    /// Whether the requests to a queue pair are answered, so that their senders learn when they are executed.
    fn is_answered(&self, number: Qpn) -> bool {
        let kind = self.queue_pairs.get(&number).map(|it| it.sizes.kind);
        matches!(kind, Some(QueuePairType::Rc | QueuePairType::XrcTarget))
    }

    pub(crate) fn arrivals(&self) -> impl Iterator<Item = &RemoteAccess> {
        self.arrivals.iter()
    }

    pub(crate) fn forget_arrivals(&mut self, number: Qpn) {
        self.arrivals.retain(|access| access.queue_pair != number);
    }

    /// Counts completions that a queue may have to hold. Returns its capacity if they are too many.
    pub(crate) fn expect(&mut self, queue: Id<CompletionQueue>) -> Option<(u32, u32)> {
        let room = self.completion_queues.get_mut(&queue)?;
        room.expected += 1;
        (room.expected > room.capacity).then_some((room.expected, room.capacity))
    }

    pub(crate) fn expect_fewer(&mut self, queue: Id<CompletionQueue>, count: u32) {
        if let Some(room) = self.completion_queues.get_mut(&queue) {
            room.expected = room.expected.saturating_sub(count);
        }
    }
}

impl<S> QueuePair<S> {
    pub(crate) fn new(sizes: QueuePairSizes) -> Self {
        Self {
            sizes,
            peer: None,
            sends: VecDeque::new(),
            first_serial: 0,
            ended: 0,
            fence: 0,
            unsignaled: 0,
            receives: VecDeque::new(),
            received: VecDeque::new(),
            has_posted_receive: false,
            expected_sends: 0,
            expected_receives: 0,
            failures: Vec::new(),
        }
    }

    /// Forgets the requests that a completion of the send queue covers. Returns their local memory.
    pub(crate) fn retire(&mut self) -> Vec<UseKey> {
        let mut uses = Vec::new();
        while self.ended > 0
            && let Some(send) = self.sends.pop_front()
        {
            self.ended -= 1;
            self.first_serial += 1;
            uses.extend(send.uses);
            if send.completes {
                break;
            }
        }
        uses
    }

    /// Notes that the program can know of all requests that have ended. Returns their local memory.
    pub(crate) fn learn_of_ended(&mut self) -> Vec<UseKey> {
        let mut uses = Vec::new();
        for send in self.sends.iter_mut().take(self.ended) {
            send.is_known = true;
            uses.append(&mut send.uses);
        }
        uses
    }

    /// The number of the next request.
    pub(crate) fn next_serial(&self) -> u64 {
        self.first_serial + self.sends.len() as u64
    }

    /// Forgets old requests of a program that polls no completion which would cover them. Returns their local memory.
    pub(crate) fn forget_unsignaled(&mut self, max: u32) -> Vec<UseKey> {
        let limit = 2 * max as usize + 16;
        let mut uses = Vec::new();
        while self.sends.len() > limit
            && self.ended > 0
            && let Some(send) = self.sends.pop_front()
        {
            uses.extend(send.uses);
            self.ended -= 1;
            self.first_serial += 1;
        }
        uses
    }

    /// The number after that of the newest request that has ended.
    pub(crate) fn ended_before(&self) -> u64 {
        self.first_serial + self.ended as u64
    }
}

impl<S> Send<S> {
    /// The address of a byte of the message.
    pub(crate) fn address_of(&self, offset: u32) -> u64 {
        let mut left = u64::from(offset);
        for range in &self.ranges {
            let length = range.end - range.start;
            if left < length {
                return range.start + left;
            }
            left -= length;
        }
        0
    }
}

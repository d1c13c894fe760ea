//! The objects of one device, as far as the rules need them.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use engine::SharedReceiveQueue;
use engine::observation::{Peer, QueuePairSizes, RemoteAccess, RemoteAccessKind};
use engine::{AsyncEvent, Completion, CompletionQueue, Id, QueuePairType, Registration};
use wire::{Key, Qpn};

use crate::checker::Outcome;
use crate::local_buffers::{Space, UseKey};
use crate::process_order::extended;
use crate::request_name::{DeviceId, RequestName};
use crate::thread_order::SyncPoint;

/// How many keys of deregistered memory are remembered.
const MAX_FORMER_KEYS: usize = 4096;

/// How many accesses of peers are remembered until they are answered.
const MAX_ARRIVALS: usize = 4096;

/// The size of a region whose memory certainly exists. A larger one stands for the whole address space.
const MAX_OBSERVED: u64 = 1 << 46;

#[derive(Debug)]
pub(crate) struct Device<S> {
    pub(crate) queue_pairs: HashMap<Qpn, QueuePair<S>>,
    pub(crate) completion_queues: HashMap<Id<CompletionQueue>, QueueCapacity<S>>,
    pub(crate) shared_receives: HashMap<Id<SharedReceiveQueue>, VecDeque<Receive<S>>>,
    pub(crate) domains: usize,
    /// By L_Key.
    pub(crate) regions: HashMap<Key, Region<S>>,
    /// The places of regions, by each of their keys.
    places: HashMap<Key, Place>,
    /// Deregistered memory.
    former: VecDeque<Former<S>>,
    /// Events about errors that the program has not fetched.
    pub(crate) events: Vec<AsyncEvent>,
    /// Accesses of peers that are not answered.
    arrivals: VecDeque<RemoteAccess>,
    /// What the messages leave that have arrived, if the order of threads is told.
    pub(crate) arrival_sync: SyncPoint,
    /// Whether peers could write some of its memory, now or before.
    pub(crate) is_writable_by_peers: bool,
}

#[derive(Debug)]
pub(crate) struct Region<S> {
    pub(crate) registration: Registration,
    /// The registration.
    pub(crate) call: S,
}

/// Where a region is in the memory of the process.
#[derive(Debug, Clone, Copy)]
struct Place {
    space: Space,
    /// The distance from addresses in requests to addresses in memory.
    distance: u64,
    /// Memory that the program can access.
    program_memory: Option<(u64, u64)>,
}

/// Memory that was deregistered.
#[derive(Debug)]
pub(crate) struct Former<S> {
    key: Key,
    pub(crate) range: Range<u64>,
    /// Whether its region has other memory now.
    pub(crate) moved: bool,
    /// The deregistration or re-registration.
    pub(crate) call: S,
}

/// The capacity of a completion queue, and how much of it may be needed.
#[derive(Debug)]
pub(crate) struct QueueCapacity<S> {
    pub(crate) capacity: u32,
    /// How many completions of send requests may be in it if the program does not poll.
    pub(crate) sends: u32,
    /// How many completions of receives may be in it.
    pub(crate) receives: u32,
    /// The creation.
    pub(crate) call: S,
}

#[derive(Debug)]
pub(crate) struct QueuePair<S> {
    pub(crate) sizes: QueuePairSizes,
    pub(crate) peer: Option<Peer>,
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
    pub(crate) receives: VecDeque<Receive<S>>,
    /// Receives that have ended and whose completions the program has not polled, oldest first.
    pub(crate) received: VecDeque<Receive<S>>,
    pub(crate) has_posted_receive: bool,
    /// How many messages were posted.
    pub(crate) messages: u64,
    /// The number of the last message of the peer that consumed a receive, as packets carry it.
    pub(crate) last_message: Option<u32>,
    /// The number of the last message of the peer that was seen.
    pub(crate) peer_message: u64,
    /// The numbers of messages whose receives have ended and were not polled, oldest first.
    pub(crate) received_messages: VecDeque<u64>,
    /// How many completions its requests still bring to each of its completion queues.
    pub(crate) expected_sends: u32,
    pub(crate) expected_receives: u32,
    /// Completions with an error that the program has not polled.
    pub(crate) failures: Vec<Completion>,
    /// Whether the program has polled a completion with an error.
    pub(crate) has_polled_failure: bool,
    /// The creation.
    pub(crate) call: S,
}

#[derive(Debug)]
pub(crate) struct Send<S> {
    pub(crate) request: RequestName,
    pub(crate) ranges: Vec<Range<u64>>,
    pub(crate) uses: Vec<UseKey>,
    pub(crate) signaled: bool,
    /// Its number among the messages of the queue pair, if the peer counts them, too.
    pub(crate) message: Option<u64>,
    /// How many messages there are up to it.
    pub(crate) messages_through: u64,
    /// What it leaves for the poll, if the order of threads is told.
    pub(crate) outcome: Option<Outcome>,
    /// Whether it has a completion. Known when it has ended.
    pub(crate) completes: bool,
    /// Whether it has ended without success. Its data did not arrive, or nobody knows.
    pub(crate) has_failed: bool,
    /// Whether a message from the peer implied its end before a completion was polled.
    pub(crate) is_known: bool,
    pub(crate) call: S,
}

#[derive(Debug)]
pub(crate) struct Receive<S> {
    pub(crate) id: u64,
    pub(crate) uses: Vec<UseKey>,
    /// What the message leaves for the poll, if the order of threads is told.
    pub(crate) sync: Option<SyncPoint>,
    /// The post.
    pub(crate) call: S,
}

/// What requests leave that a completion of the send queue covers.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    /// Their local memory.
    pub(crate) uses: Vec<UseKey>,
    /// The number of the last message.
    pub(crate) message: Option<u64>,
    /// What the device knew when it had executed the last of them.
    pub(crate) sync: Option<SyncPoint>,
    /// The atomic variables that they read.
    pub(crate) words: Vec<u64>,
}

impl<S> Device<S> {
    pub(crate) fn new() -> Self {
        Self {
            queue_pairs: HashMap::new(),
            completion_queues: HashMap::new(),
            shared_receives: HashMap::new(),
            domains: 0,
            regions: HashMap::new(),
            places: HashMap::new(),
            former: VecDeque::new(),
            events: Vec::new(),
            arrivals: VecDeque::new(),
            arrival_sync: SyncPoint::default(),
            is_writable_by_peers: false,
        }
    }

    pub(crate) fn register(
        &mut self,
        id: DeviceId,
        region: Registration,
        memory: Option<u64>,
        is_of_program: bool,
        call: S,
    ) {
        let program_memory = memory.filter(|_| is_of_program && region.length <= MAX_OBSERVED);
        let program_memory =
            program_memory.map(|start| (start, start.saturating_add(region.length)));
        let place = match memory {
            Some(memory) => Place {
                space: 0,
                distance: memory.wrapping_sub(region.address),
                program_memory,
            },
            None => Place {
                space: (u64::from(id.0) + 1) << 32 | u64::from(region.local_key.value()),
                distance: 0,
                program_memory,
            },
        };
        self.places.insert(region.local_key, place);
        self.places.insert(region.remote_key, place);
        let key = region.local_key;
        if !self.regions.contains_key(&key) {
            // The key may have been used before.
            self.former.retain(|former| former.key != region.remote_key);
        }
        let registration = region;
        self.regions.insert(key, Region { registration, call });
    }

    pub(crate) fn deregister(&mut self, key: Key, call: S) {
        let Some(Region { registration, .. }) = self.regions.remove(&key) else {
            return;
        };
        self.places.remove(&registration.local_key);
        self.places.remove(&registration.remote_key);
        self.add_former(&registration, false, call);
    }

    /// A region gets another place. Peers may still use the old addresses.
    pub(crate) fn forget_place(&mut self, before: &Registration, call: S) {
        self.add_former(before, true, call);
    }

    fn add_former(&mut self, before: &Registration, moved: bool, call: S) {
        if self.former.len() >= MAX_FORMER_KEYS {
            self.former.pop_front();
        }
        self.former.push_back(Former {
            key: before.remote_key,
            range: before.address..before.address.saturating_add(before.length),
            moved,
            call,
        });
    }

    /// The memory that had an R_Key at the place of an access before it was deregistered or moved.
    pub(crate) fn former(&self, access: &RemoteAccess) -> Option<&Former<S>> {
        let end = access.address.saturating_add(access.length.into());
        let contains = |range: &Range<u64>| range.start <= access.address && end <= range.end;
        let mut present = self.regions.values().map(|it| it.registration);
        let is_present = present.any(|it| {
            it.remote_key == access.key
                && contains(&(it.address..it.address.saturating_add(it.length)))
        });
        let is_there = |former: &&Former<S>| {
            former.key == access.key && !is_present && (!former.moved || contains(&former.range))
        };
        self.former.iter().rev().find(is_there)
    }

    /// Where `range` of a region is, if this device knows the key.
    pub(crate) fn find(&self, key: Key, range: &Range<u64>) -> Option<(Space, Range<u64>)> {
        let place = self.places.get(&key)?;
        let start = range.start.wrapping_add(place.distance);
        let end = start.saturating_add(range.end.saturating_sub(range.start));
        Some((place.space, start..end))
    }

    /// Whether a range of memory is a part of a region that the program can access.
    pub(crate) fn is_program_memory(&self, key: Key, range: &Range<u64>) -> bool {
        let place = self.places.get(&key).and_then(|it| it.program_memory);
        place.is_some_and(|(start, end)| start <= range.start && range.end <= end)
    }

    /// Where `range` of a key is. The memory of an unknown key, such as that of a window, is where its addresses are.
    pub(crate) fn locate(&self, key: Key, range: Range<u64>) -> (Space, Range<u64>) {
        self.find(key, &range).unwrap_or((0, range))
    }

    /// Where a peer accesses memory.
    pub(crate) fn place_of(&self, access: &RemoteAccess) -> (Space, Range<u64>) {
        let end = access.address.saturating_add(access.length.into());
        self.locate(access.key, access.address..end)
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

    /// Forgets completions that a queue may have to hold.
    pub(crate) fn expect_fewer(
        &mut self,
        queue: Id<CompletionQueue>,
        is_receive: bool,
        count: u32,
    ) {
        if let Some(watched) = self.completion_queues.get_mut(&queue) {
            let expected = watched.expected(is_receive);
            *expected = expected.saturating_sub(count);
        }
    }
}

impl<S> QueueCapacity<S> {
    /// How many completions of this kind may be in it if the program does not poll.
    pub(crate) fn expected(&mut self, is_receive: bool) -> &mut u32 {
        if is_receive {
            &mut self.receives
        } else {
            &mut self.sends
        }
    }
}

impl<S> QueuePair<S> {
    pub(crate) fn new(sizes: QueuePairSizes, call: S) -> Self {
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
            messages: 0,
            last_message: None,
            peer_message: 0,
            received_messages: VecDeque::new(),
            expected_sends: 0,
            expected_receives: 0,
            failures: Vec::new(),
            has_polled_failure: false,
            call,
        }
    }

    /// Whether messages arrive in order, once, so that both ends can count them.
    pub(crate) fn counts_messages(&self) -> bool {
        use QueuePairType::{Rc, XrcInitiator, XrcTarget};
        matches!(self.sizes.kind, Rc | XrcInitiator | XrcTarget)
    }

    /// The number of a message of the peer.
    pub(crate) fn count_from(&mut self, message: u32) -> u64 {
        self.peer_message = extended(message, self.peer_message);
        self.peer_message
    }

    /// Forgets the requests that a completion of the send queue covers.
    pub(crate) fn retire(&mut self) -> Retired {
        let mut retired = Retired::default();
        while self.ended > 0
            && let Some(send) = self.sends.pop_front()
        {
            self.ended -= 1;
            self.first_serial += 1;
            retired.uses.extend(send.uses);
            retired.message = send.message.or(retired.message);
            if let Some(outcome) = send.outcome {
                retired.words.extend(outcome.word);
                retired.sync = Some(outcome.sync);
            }
            if send.completes {
                break;
            }
        }
        retired
    }

    /// What the request leaves that is a message of this number, as packets carry it.
    pub(crate) fn outcome_of(&self, message: u32) -> Option<&Outcome> {
        let number = extended(message, self.messages);
        let index = (self.sends).partition_point(|send| send.messages_through <= number);
        let send = self.sends.get(index)?;
        send.outcome
            .as_ref()
            .filter(|_| send.messages_through == number + 1)
    }

    /// What the newest request leaves that has ended.
    pub(crate) fn outcome_of_ended(&self) -> Option<&Outcome> {
        let newest = self.ended.checked_sub(1)?;
        self.sends.get(newest)?.outcome.as_ref()
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

    /// The oldest request that was executed without the program's knowledge, and how many there are. Failures have rules of their
    /// own, and a request that was flushed says no more than the failure of its queue pair.
    pub(crate) fn unknown_executed(&self) -> Option<(&Send<S>, usize)> {
        let ended = self.sends.iter().take(self.ended);
        let mut unknown = ended.filter(|send| !send.is_known && !send.has_failed);
        let first = unknown.next()?;
        Some((first, unknown.count() + 1))
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

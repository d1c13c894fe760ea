//! Groups of queues that stay together, and the lane that serves each of them.
//!
//! The completion queues of a queue pair, or of a channel, and the queue pairs that use them form a group, with a part of the device's queue
//! pair numbers; `ibv_create_cq` can name a group by the completion vector. A group moves to a lane of its own when it was used
//! 64 times just after another thread had used another group, or, for groups whose program calls nothing, when the lane's thread
//! has been awake for more than three quarters of 10 ms and this group got most packets. A thread of its own moves it, so no call of the program waits.
//!
//! - The new lane joins the addresses with the group's part of the numbers, and with a note in the registry that it gets no packets yet. If
//!   opening it fails half way, no packet was sent there.
//! - Then the mover holds the locks of both lanes, removes the note (`Fabric::begin_service`; if another process has locked the registry, it
//!   releases the lanes and tries again), hands the queue pairs over
//!   (`engine::Device::give` and `adopt`), and lets the group's handles point to the new lane. A thread that waited for the first lane's
//!   lock looks again whether it is the right one. The smallest block around a number tells its owner, so the kernel and other processes
//!   send to the new lane from now on; packets that still arrive at the first lane are forwarded.
//! - If a moved group has used up its numbers, further queue pairs of it are in the first lane.
//! - Only reliable connections move, because packets may change their order meanwhile. A group with other queue pairs stays, and so do two
//!   groups that a queue pair connects. If a lane can't be opened (no descriptors left, a container that forbids port sharing), the first
//!   lane continues to serve the group.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{Builder, sleep};

use engine::{ObjectError, QueuePairInit};
use net::sharing::NumberBlock;
use net::thread_sanitizer::Unobserved;
use parking_lot::Mutex;
use wire::Qpn;

use super::{Driver, Opened};
use crate::fabric::numbers_of;
use crate::lane::state::LaneState;
use crate::lane::thread::Thread;
use crate::lane::{Lane, Relief};
use crate::lanes::FirstLane;
use crate::options::{MAX_LANES, OpenError, OpenOptions};
use crate::times::LONG;
use crate::waiting::notifier::Notifier;

/// The groups of an open device.
pub(super) struct Groups {
    /// At least one. The first lane always serves the first one.
    groups: Vec<Group>,
    /// How many queues have chosen a group in turn.
    chosen: AtomicUsize,
}

struct Group {
    /// Its part of the queue pair numbers; `None` if the device has only one group.
    part: Option<NumberBlock>,
    place: AtomicU8,
    /// Its own lane, once it has one.
    own: OnceLock<OwnLane>,
    /// The channels of its completion queues.
    channels: Mutex<Vec<Weak<Notifier>>>,
}

struct OwnLane {
    lane: Arc<Lane>,
    _thread: Thread,
}

/// How often a mover tries to hand a group over, at most: about a second. Another process changes a registry within milliseconds.
const MAX_HAND_OVERS: u32 = 1000;

/// [`Group::place`]: in the first lane.
const SHARED: u8 = 0;
/// It should get a lane of its own.
const DUE: u8 = 1;
/// It stays where it is now: in the first lane, in its own, or on the way.
const STAYS: u8 = 2;

impl Groups {
    /// Captures, faults and the checker need all packets in one order, so there is one lane then.
    pub(super) fn new(lane: &Lane, options: &OpenOptions) -> Self {
        let in_one_order =
            options.capture.is_some() || options.faults.is_some() || options.check.is_some();
        let block = lane.step(|state| state.block()).filter(|_| !in_one_order);
        let wanted = options.lanes.clamp(1, MAX_LANES);
        let parts = block.map_or(Vec::new(), |block| divide(block, wanted));
        let group = |part| Group {
            part,
            place: AtomicU8::new(SHARED),
            own: OnceLock::new(),
            channels: Mutex::default(),
        };
        let groups = match parts.len() {
            0 | 1 => vec![group(None)],
            _ => parts.into_iter().map(|part| group(Some(part))).collect(),
        };
        Self {
            groups,
            chosen: AtomicUsize::new(0),
        }
    }

    /// Lets the thread of the first lane move groups.
    pub(super) fn relieve(&self, lane: &Lane, opened: &Weak<Opened>) {
        let parts = self.groups.iter().filter_map(|group| group.part).collect();
        lane.step(|state| state.set_parts(parts));
        let _ = lane.relief.set(Box::new(Mover(Weak::clone(opened))));
    }

    fn choose(&self) -> usize {
        self.chosen.fetch_add(1, Ordering::Relaxed) % self.groups.len()
    }

    fn own_lane(&self, group: usize) -> Option<&Arc<Lane>> {
        self.groups.get(group)?.own.get().map(|own| &own.lane)
    }

    /// The lanes beside the first.
    pub(super) fn own_lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        let own = self.groups.iter().filter_map(|group| group.own.get());
        own.map(|own| &own.lane)
    }
}

/// Moves groups in threads of their own: to open a lane takes milliseconds, and such a thread may be the last to use the device, and
/// closes it then.
struct Mover(Weak<Opened>);

impl Relief for Mover {
    fn ask(&self, group: usize) -> bool {
        let opened = self.0.upgrade();
        opened.is_some_and(|opened| opened.groups.groups[group].ask_for_own_lane())
    }

    fn move_asked(&self) {
        let Some(opened) = self.0.upgrade() else {
            return;
        };
        for (index, group) in opened.groups.groups.iter().enumerate() {
            if !group.take_request() {
                continue;
            }
            let opened = Weak::clone(&self.0);
            let mover = Builder::new().name("roci".to_owned());
            // Without threads, the lane stays as it is.
            let _ = mover.spawn(move || {
                let _unobserved = Unobserved::begin();
                if let Some(opened) = opened.upgrade() {
                    // If that fails, for example because the process may open no more files, the first lane continues to
                    // serve it.
                    let _ = opened.move_to_own_lane(index);
                }
            });
        }
    }
}

/// Equal parts of a block, at most as many as wanted. Fewer if they would be too small.
fn divide(block: NumberBlock, wanted: usize) -> Vec<NumberBlock> {
    let bits = block.bits() - wanted.next_power_of_two().ilog2().min(block.bits());
    let bits = bits.max(NumberBlock::LEAST_BITS);
    let parts = (0..wanted as u32).map_while(|index| block.part(index, bits));
    parts.collect()
}

impl Group {
    /// Keeps the group where it is.
    fn stay(&self) {
        self.place.store(STAYS, Ordering::Relaxed);
    }

    /// Asks for a lane of its own. Returns false if it stays where it is, or is asked for already.
    fn ask_for_own_lane(&self) -> bool {
        self.change_place(SHARED, DUE)
    }

    /// Whether a lane was asked for. True once.
    fn take_request(&self) -> bool {
        self.change_place(DUE, STAYS)
    }

    fn change_place(&self, from: u8, to: u8) -> bool {
        let order = Ordering::Relaxed;
        let changed = self.place.compare_exchange(from, to, order, order);
        changed.is_ok()
    }

    fn add_channel(&self, channel: &Arc<Notifier>) {
        let mut channels = self.channels.lock();
        if channels.len() == channels.capacity() {
            channels.retain(|it| it.strong_count() > 0);
        }
        channels.push(Arc::downgrade(channel));
    }

    fn channels(&self) -> Vec<Arc<Notifier>> {
        let mut channels = self.channels.lock();
        channels.retain(|it| it.strong_count() > 0);
        channels.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Driver {
    /// How many lanes the device may have. Programs that spread completion queues over the vectors of a device get a
    /// group for each.
    #[must_use]
    pub fn max_lanes(&self) -> usize {
        self.opened.groups.groups.len()
    }

    /// Which lane serves this now. The first is 0.
    #[must_use]
    pub fn lane_number(&self) -> usize {
        let group = self.group.get().copied().unwrap_or(0);
        self.opened.groups.own_lane(group).map_or(0, |_| group)
    }

    /// The handle for a new completion queue. `wanted` is the group it gets; without that, the first queue pair decides.
    #[must_use]
    pub fn for_completion_queue(self: &Arc<Self>, wanted: Option<usize>) -> Arc<Self> {
        let count = self.opened.groups.groups.len();
        if count == 1 {
            return Arc::clone(self);
        }
        let group = wanted.map(|wanted| wanted % count);
        Arc::new(Self {
            opened: Arc::clone(&self.opened),
            group: group.map_or_else(OnceLock::new, OnceLock::from),
            channel: OnceLock::new(),
        })
    }

    /// The handle for a new queue pair: that of its send completion queue. Both of its completion queues, and all queues of
    /// a channel, belong to one group, because one thread probably uses them. If a queue belongs to another device, this is
    /// the result, and the engine reports the queue as unknown.
    #[must_use]
    pub fn for_queue_pair(self: &Arc<Self>, sends: &Arc<Self>, receives: &Arc<Self>) -> Arc<Self> {
        let ends = [sends, receives];
        if !ends.iter().all(|it| Arc::ptr_eq(&self.opened, &it.opened)) {
            return Arc::clone(self);
        }
        let known = ends.iter().find_map(|it| it.known_group());
        let choose = || known.unwrap_or_else(|| self.opened.groups.choose());
        // Another thread may create a queue pair with the same queue now.
        let group = *sends.group.get_or_init(choose);
        for end in ends {
            end.enter_group(group);
        }
        Arc::clone(sends)
    }

    /// The group that this handle has, or must have because of its channel.
    fn known_group(&self) -> Option<usize> {
        let of_channel = || self.channel()?.group();
        self.group.get().copied().or_else(of_channel)
    }

    /// Enters a group, unless this handle has another one. Then both groups stay where they are.
    pub(super) fn enter_group(&self, group: usize) {
        let groups = &self.opened.groups.groups;
        let ours = *self.group.get_or_init(|| group);
        if ours != group {
            groups[ours].stay();
            groups[group].stay();
        }
        if let Some(channel) = self.channel()
            && channel.group().is_none()
        {
            // Before the channel has the group: a mover that sees the group sees the channel.
            groups[ours].add_channel(&channel);
            channel.set_group(ours);
            if self.opened.groups.own_lane(ours).is_some() {
                // What the channel had before it had a group.
                let first = &self.opened.lane;
                first.step(|state| state.packet_wakeups.leave(&channel));
            }
        }
    }

    /// The notifier of the completion queue's channel.
    fn channel(&self) -> Option<Arc<Notifier>> {
        self.channel.get().and_then(Weak::upgrade)
    }

    /// Creates a queue pair, with a number of its group, and returns the handle that serves it: this one, or one of the first lane
    /// if this group has a lane of its own and has used up its numbers.
    pub fn create_queue_pair(
        self: &Arc<Self>,
        init: QueuePairInit,
    ) -> Result<(Arc<Self>, Qpn), ObjectError> {
        match self.create_in_group(init) {
            Err(ObjectError::Exhausted) if self.lane_number() > 0 => {
                let first = self.for_completion_queue(Some(0));
                let number = first.create_in_group(init)?;
                Ok((first, number))
            }
            created => Ok((Arc::clone(self), created?)),
        }
    }

    fn create_in_group(&self, init: QueuePairInit) -> Result<Qpn, ObjectError> {
        if self.group.get().is_none() {
            self.enter_group(self.opened.groups.choose());
        }
        let group = &self.opened.groups.groups[self.group.get().copied().unwrap_or(0)];
        self.call_without_transmit(|device| {
            let in_part = |part| device.create_queue_pair_in(numbers_of(part), init);
            match group.part.map(in_part) {
                Some(Err(ObjectError::Exhausted)) | None => device.create_queue_pair(init),
                Some(created) => created,
            }
        })
    }

    /// The lane that serves this now. It may be another one later: see [`step`](Self::step).
    #[inline]
    pub(crate) fn lane(&self) -> &Arc<Lane> {
        let first = &self.opened.lane;
        if !first.common.has_lanes() {
            return first;
        }
        let group = self.group.get().copied().unwrap_or(0);
        let own = self.opened.groups.own_lane(group);
        own.unwrap_or(first)
    }

    /// The lane that serves a channel now.
    pub(super) fn lane_of(&self, notifier: &Notifier) -> &Arc<Lane> {
        let group = notifier.group().unwrap_or(0);
        let own = self.opened.groups.own_lane(group);
        own.unwrap_or(&self.opened.lane)
    }

    /// Runs a step in the lane that serves a channel.
    pub(super) fn step_of<R>(
        &self,
        notifier: &Notifier,
        work: impl FnOnce(&mut LaneState) -> R,
    ) -> R {
        let mut work = Some(work);
        loop {
            let lane = self.lane_of(notifier);
            let done = lane.step(|state| {
                // Under the lock, it does not move.
                let is_served = Arc::ptr_eq(lane, self.lane_of(notifier));
                let work = work.take_if(|_| is_served);
                work.map(|work| work(state))
            });
            if let Some(result) = done {
                return result;
            }
        }
    }

    /// Runs `work` for each lane.
    pub(super) fn for_lanes(&self, work: impl FnMut(&Arc<Lane>)) {
        let first = std::iter::once(&self.opened.lane);
        first.chain(self.opened.groups.own_lanes()).for_each(work);
    }

    /// Sends deferred acknowledgements of all lanes.
    pub fn flush(&self) {
        if !self.is_inherited() {
            self.for_lanes(Lane::flush);
        }
    }

    /// Runs a step of the program in the lane that serves this.
    #[inline]
    pub(super) fn step<'s, R>(
        &'s self,
        work: impl FnOnce(&'s Arc<Lane>, &mut LaneState) -> R,
    ) -> R {
        let (lane, state) = loop {
            let lane = self.lane();
            let state = lane.lock_for_step();
            // Under the lock, it does not move.
            if Arc::ptr_eq(lane, self.lane()) {
                break (lane, state);
            }
        };
        lane.step_locked(state, |state| {
            self.note_use(lane, state);
            work(lane, state)
        })
    }

    /// As [`step`](Self::step), unless another thread has the lock.
    pub(super) fn try_step<'s, R>(
        &'s self,
        work: impl FnOnce(&'s Arc<Lane>, &mut LaneState) -> R,
    ) -> Option<R> {
        let lane = self.lane();
        let state = lane.try_lock_for_step()?;
        Arc::ptr_eq(lane, self.lane()).then(|| {
            lane.step_locked(state, |state| {
                self.note_use(lane, state);
                work(lane, state)
            })
        })
    }

    #[inline]
    fn note_use(&self, lane: &Lane, state: &mut LaneState) {
        let groups = &self.opened.groups.groups;
        if groups.len() > 1
            && let Some(index) = self.group.get()
            && let group = &groups[*index]
            && (*index == 0 || group.place.load(Ordering::Relaxed) == SHARED)
            && state.uses().note(*index)
            && *index > 0
            && group.ask_for_own_lane()
        {
            lane.wants_relief.store(true, Ordering::Release);
            lane.waker.wake();
        }
    }
}

impl Opened {
    /// Moves a group to a lane of its own.
    fn move_to_own_lane(&self, index: usize) -> Result<(), OpenError> {
        let mut own = self.open_own_lane(index)?;
        for _ in 0..MAX_HAND_OVERS {
            if self.hand_over(index, &mut own)? {
                break;
            }
            sleep(LONG);
        }
        // A lane that is not used ends here, because nobody may wait for its thread under a lock.
        drop(own);
        let own = self.groups.own_lane(index);
        for lane in own.into_iter().chain([&self.lane]) {
            // Queue pairs that stay may have their turns on the paths that others have left.
            lane.flush();
        }
        Ok(())
    }

    /// Opens the lane for a group that can move. It gets no packets yet.
    fn open_own_lane(&self, index: usize) -> Result<Option<OwnLane>, OpenError> {
        let part = self.groups.groups[index].part;
        let can_give = |part: &_| self.lane.step(|state| can_give(state, *part));
        let Some(part) = part.filter(can_give) else {
            return Ok(None);
        };
        let first = FirstLane {
            other: index,
            part,
            common: Arc::clone(&self.lane.common),
            objects: Arc::clone(&self.lane.objects),
        };
        let siblings = Arc::clone(&self.lane.siblings);
        let lane = Driver::create_lane(&self.device, &self.options, Some(&first), siblings)?;
        let thread = Thread::start(Arc::clone(&lane)).map_err(OpenError::of_system)?;
        Ok(Some(OwnLane {
            lane,
            _thread: thread,
        }))
    }

    /// Hands a group over to its lane, unless it can't move any more. Returns false if that is to be tried again: no thread waits
    /// for a registry while it holds the locks of two lanes.
    fn hand_over(&self, index: usize, own: &mut Option<OwnLane>) -> Result<bool, OpenError> {
        let group = &self.groups.groups[index];
        let (Some(part), Some(lane)) = (group.part, own.as_ref()) else {
            return Ok(true);
        };
        let lane = Arc::clone(&lane.lane);
        lane.step(|state| {
            self.lane.step(|before| {
                if !can_give(before, part) {
                    return Ok(true);
                }
                // Packets that are steered to the new lane from here on wait in its sockets until this step has ended.
                if !state.port().begin_service()? {
                    return Ok(false);
                }
                state.adopt(before.give(part, &group.channels()));
                self.lane.siblings.add(&lane);
                let _ = own.take().map(|own| group.own.set(own));
                Ok(true)
            })
        })
    }
}

/// Whether the queue pairs with these numbers can move to another lane.
fn can_give(state: &mut LaneState, part: NumberBlock) -> bool {
    state.device_mut().can_give(numbers_of(part))
}

#[cfg(test)]
mod tests {
    use std::fs::{File, metadata};
    use std::net::IpAddr;
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    use net::sharing::RuntimeDirectory;

    use super::*;
    use crate::CheckOptions;
    use crate::clock::now;
    use crate::driver::connected_end::End;
    use crate::lanes::LaneMessage;
    use crate::rdma_cm::{Event, EventChannel, EventKind, Parameters, PortSpace};

    /// Long enough for a loaded machine.
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Another lane of a device. Only the test serves it.
    fn lane_without_thread(first: &Driver) -> End {
        let options = OpenOptions::default();
        let whole = first.lane().lock().block().expect("a real device");
        let taken = FirstLane {
            other: 1,
            part: whole
                .part(1, NumberBlock::LEAST_BITS)
                .expect("large enough"),
            common: Arc::clone(&first.lane().common),
            objects: Arc::clone(&first.lane().objects),
        };
        let siblings = Arc::clone(&first.lane().siblings);
        let lane = Driver::create_lane(first.device(), &options, Some(&taken), siblings);
        let lane = lane.expect("room");
        let begun = lane.step(|state| state.port().begin_service());
        assert!(begun.expect("room"));
        let lane = Driver::over(lane, first.device().clone(), &options, None);
        End::of(&Arc::new(lane))
    }

    /// A program must see the last message of a peer before the disconnection.
    #[test]
    fn disconnection_waits_until_other_lanes_have_received() {
        let first = Driver::without_thread("127.58.93.21");
        let (lane, peer) = (lane_without_thread(&first), End::open("127.58.93.22"));
        lane.connect(&peer);
        peer.connect(&lane);
        peer.send_to(&lane);
        let objects = &first.lane().objects;
        let completions = objects.completion_queue(lane.completions).expect("room");
        assert!(completions.is_empty(), "nobody has received it yet");
        first
            .lane()
            .siblings
            .deliver(vec![LaneMessage::Disconnecting]);
        assert!(!completions.is_empty());
    }

    fn expect(channel: &EventChannel) -> Event {
        channel.wait_for(TIMEOUT).expect("an event")
    }

    /// The confirmation of the client (RTU) is lost, and the queue pair of the server is ready to receive: then the first
    /// packet confirms the connection. Its lane has no connection manager.
    #[test]
    fn first_packet_in_another_lane_confirms_the_connection() {
        let lanes = OpenOptions {
            lanes: 2,
            ..OpenOptions::default()
        };
        let faults = OpenOptions {
            faults: Some("drop:cm=RTU".into()),
            ..OpenOptions::default()
        };
        let first = Driver::open("127.58.93.24", &lanes).expect("a loopback address");
        let server = End::of(&in_own_lane(&first, 1));
        assert_eq!(server.driver.lane_number(), 1);
        let client = Driver::open("127.58.93.25", &faults).expect("a loopback address");
        let client = End::of(&client);
        let channels = [(); 2].map(|()| EventChannel::new().expect("a descriptor"));
        let [listener, asking] = [0, 1].map(|end| channels[end].create_id(PortSpace::Tcp));
        let Ok(()) = listener.choose(Arc::clone(&first));
        let Ok(()) = asking.choose(Arc::clone(&client.driver));
        let address = "127.58.93.24:7471".parse().expect("an address");
        listener.bind(address).expect("a free port");
        listener.listen(1).expect("it is bound");
        asking
            .bind("127.58.93.25:0".parse().expect("an address"))
            .expect("a port");
        asking
            .resolve_address(None, address, TIMEOUT)
            .expect("it is bound");
        assert_eq!(expect(&channels[1]).kind, EventKind::AddressResolved);
        asking.resolve_route(TIMEOUT).expect("it has an address");
        assert_eq!(expect(&channels[1]).kind, EventKind::RouteResolved);
        asking
            .connect(&Parameters::new(client.number))
            .expect("it has a route");
        let accepted = expect(&channels[0]).request.expect("a request");
        server.connect_to_receive(&client);
        client.connect(&server);
        accepted
            .accept(&Parameters::new(server.number))
            .expect("it is asked");
        let EventKind::ConnectResponse(_) = expect(&channels[1]).kind else {
            panic!("not accepted");
        };
        asking.establish().expect("it is accepted");
        client.send_to(&server);
        assert_eq!(expect(&channels[0]).kind, EventKind::Established);
    }

    /// A handle of a group that has its own lane.
    fn in_own_lane(first: &Arc<Driver>, group: usize) -> Arc<Driver> {
        let handle = first.for_completion_queue(Some(group));
        let groups = &first.opened.groups.groups;
        assert!(groups[group].ask_for_own_lane());
        assert!(groups[group].take_request());
        let _ = first.opened.move_to_own_lane(group);
        handle
    }

    #[test]
    fn a_group_whose_numbers_are_used_up_gets_queue_pairs_in_the_first_lane() {
        let options = OpenOptions {
            lanes: MAX_LANES,
            ..OpenOptions::default()
        };
        let first = Driver::open("127.58.93.33", &options).expect("a loopback address");
        let moved = in_own_lane(&first, 1);
        let peer = End::open("127.58.93.34");
        let part = first.opened.groups.groups[1].part.expect("many groups");
        let beyond = loop {
            let end = End::of(&moved);
            assert_eq!(end.driver.lane_number() == 1, part.contains(end.number));
            if !part.contains(end.number) {
                break end;
            }
        };
        assert_eq!(beyond.driver.lane_number(), 0);
        beyond.connect(&peer);
        peer.connect(&beyond);
        peer.send_to(&beyond);
        let queue = moved.polled_queue(beyond.completions).expect("it exists");
        let deadline = now() + TIMEOUT;
        while moved.poll(&queue).is_none() {
            assert!(now() < deadline, "it does not arrive");
            std::thread::yield_now();
        }
    }

    #[test]
    fn work_for_all_lanes_is_done_once_for_each() {
        let options = OpenOptions {
            lanes: 3,
            ..OpenOptions::default()
        };
        let first = Driver::open("127.58.93.26", &options).expect("a loopback address");
        let visited = || {
            let mut visited = Vec::new();
            first.for_lanes(|lane| visited.push(Arc::as_ptr(lane)));
            visited
        };
        assert_eq!(visited(), [Arc::as_ptr(first.lane())]);
        let second = in_own_lane(&first, 1);
        assert_eq!(visited(), [first.lane(), second.lane()].map(Arc::as_ptr));
    }

    #[test]
    fn a_group_stays_in_the_first_lane_if_no_other_can_be_opened() {
        let options = OpenOptions {
            lanes: 2,
            ..OpenOptions::default()
        };
        let first = Driver::open("127.58.93.23", &options).expect("a loopback address");
        let part = first.opened.groups.groups[1].part.expect("two groups");
        // As if the process had no descriptors left.
        let address = IpAddr::from([127, 58, 93, 23]);
        let _taken = net::sharing::join_part(&[address], part).expect("room");
        let handle = in_own_lane(&first, 1);
        assert_eq!(handle.lane_number(), 0);
        let queue = handle.call(|device| device.create_completion_queue(8));
        let queue = handle
            .polled_queue(queue.expect("room"))
            .expect("it exists");
        assert!(handle.poll(&queue).is_none());
    }

    /// The file that a process locks while it changes the registry of an address.
    fn registry_lock(address: &str) -> File {
        let directory = RuntimeDirectory::of_user().expect("it is ours");
        let namespace = |kind| metadata(format!("/proc/self/ns/{kind}")).expect("Linux has it");
        let [network, process] = ["net", "pid"].map(|kind| namespace(kind).ino());
        let name = format!("{address}@{network:x}.{process:x}.lock");
        File::open(directory.path().join(name)).expect("it has a member")
    }

    #[test]
    fn a_group_moves_when_no_other_process_changes_the_registry() {
        let options = OpenOptions {
            lanes: 2,
            ..OpenOptions::default()
        };
        let first = Driver::open("127.58.93.35", &options).expect("a loopback address");
        let handle = first.for_completion_queue(Some(1));
        let mut own = first.opened.open_own_lane(1).expect("room");
        let lock = registry_lock("127.58.93.35");
        lock.lock().expect("a lock");
        let is_done = first.opened.hand_over(1, &mut own);
        assert!(!is_done.expect("room"), "it must be tried again");
        assert_eq!(handle.lane_number(), 0);
        lock.unlock().expect("a lock");
        let deadline = now() + TIMEOUT;
        // The threads of the lanes may lock it, too.
        while !first.opened.hand_over(1, &mut own).expect("room") {
            assert!(now() < deadline, "it does not move");
            std::thread::yield_now();
        }
        assert_eq!(handle.lane_number(), 1);
    }

    #[test]
    fn queues_of_a_queue_pair_and_of_a_channel_share_a_group() {
        let options = OpenOptions {
            lanes: 4,
            ..OpenOptions::default()
        };
        let first = Driver::open("127.58.93.27", &options).expect("a loopback address");
        let queue = || first.for_completion_queue(None);
        let group = |queue: &Arc<Driver>| queue.group.get().copied();
        let [sends, receives, other] = [queue(), queue(), queue()];
        assert_eq!(group(&sends), None, "nothing decides it");
        let number = first.for_queue_pair(&sends, &receives);
        assert!(Arc::ptr_eq(&number, &sends));
        assert_eq!([group(&sends), group(&receives)], [Some(0); 2]);
        let _ = first.for_queue_pair(&other, &other);
        assert_eq!(group(&other), Some(1), "in turn");
        let channel = Arc::new(Notifier::new().expect("a descriptor"));
        let id = first.call(|device| device.create_completion_queue(8));
        let id = id.expect("room");
        let [one, two] = [queue(), queue()];
        for queue in [&one, &two] {
            queue.set_notifier(id, &channel, 7);
        }
        let _ = first.for_queue_pair(&one, &one);
        let _ = first.for_queue_pair(&two, &two);
        assert_eq!([group(&one), group(&two)], [Some(2); 2]);
        assert_eq!(channel.group(), Some(2));
        // A queue pair between groups keeps both where they are.
        let _ = first.for_queue_pair(&other, &two);
        for group in [1, 2] {
            assert!(!first.opened.groups.groups[group].ask_for_own_lane());
        }
    }

    #[test]
    fn a_server_that_makes_a_channel_for_each_client_keeps_none_of_them() {
        let options = OpenOptions {
            lanes: 2,
            ..OpenOptions::default()
        };
        let first = Driver::open("127.58.93.31", &options).expect("a loopback address");
        let id = first.call(|device| device.create_completion_queue(8));
        let id = id.expect("room");
        for _ in 0..1000 {
            let channel = Arc::new(Notifier::without_descriptor());
            let queue = first.for_completion_queue(Some(1));
            queue.set_notifier(id, &channel, 7);
            let _ = first.for_queue_pair(&queue, &queue);
            first.remove_notifier(id);
            assert_eq!(Arc::strong_count(&channel), 1);
        }
        let known = first.opened.groups.groups[1].channels.lock().len();
        assert!(known < 16, "{known}");
    }

    /// Its packets would wake the program for nothing.
    #[test]
    fn a_channel_that_gets_a_group_in_another_lane_leaves_the_packets_of_the_first() {
        let options = OpenOptions {
            lanes: 2,
            ..OpenOptions::default()
        };
        let first = Driver::open("127.58.93.32", &options).expect("a loopback address");
        let queue = in_own_lane(&first, 1);
        assert_eq!(queue.lane_number(), 1);
        let id = queue.call(|device| device.create_completion_queue(8));
        let channel = Arc::new(Notifier::new().expect("a descriptor"));
        first.offer_packet_wakeups(&channel);
        assert!(channel.has_packets());
        let fresh = first.for_completion_queue(None);
        fresh.set_notifier(id.expect("room"), &channel, 7);
        let _ = first.for_queue_pair(&fresh, &queue);
        assert_eq!(channel.group(), Some(1));
        assert!(!channel.has_packets());
    }

    #[test]
    fn captures_faults_checks_and_simulations_have_one_lane() {
        let usual = OpenOptions {
            lanes: 4,
            ..OpenOptions::default()
        };
        let lane = Driver::without_thread("127.58.93.28");
        let count = |options: &OpenOptions| Groups::new(lane.lane(), options).groups.len();
        assert_eq!(count(&usual), 4);
        let changes: [fn(&mut OpenOptions); 4] = [
            |options| options.capture = Some("packets.pcapng".into()),
            |options| options.faults = Some("drop=1%".into()),
            |options| options.check = Some(CheckOptions::default()),
            |options| options.lanes = 0,
        ];
        for change in changes {
            let mut options = usual.clone();
            change(&mut options);
            assert_eq!(count(&options), 1);
        }
    }

    /// Nobody polls: the lane's thread receives all packets.
    #[test]
    fn a_busy_thread_moves_the_group_with_most_packets() {
        let options = OpenOptions {
            lanes: 3,
            ..OpenOptions::default()
        };
        let first = Driver::open("127.58.93.29", &options).expect("a loopback address");
        let peer = Driver::open("127.58.93.30", &options).expect("a loopback address");
        let ends = [0, 1, 2].map(|group| {
            let handle = |driver: &Arc<Driver>| driver.for_completion_queue(Some(group));
            let ends = [End::of(&handle(&first)), End::of(&handle(&peer))];
            ends[0].connect(&ends[1]);
            ends[1].connect(&ends[0]);
            ends
        });
        let deadline = now() + TIMEOUT;
        let send = |group: usize, count: usize| {
            for _ in 0..count {
                let [to, from] = &ends[group];
                from.send_to(to);
                let objects = &to.driver.opened.lane.objects;
                let queue = objects.completion_queue(to.completions);
                let queue = queue.expect("it exists");
                while queue.pop().is_none() {
                    assert!(now() < deadline, "it does not arrive");
                    std::thread::yield_now();
                }
            }
        };
        let busiest = || first.lane().step(LaneState::busiest_groups);
        assert!(busiest().is_empty(), "nothing arrived");
        send(1, 3);
        assert!(busiest().is_empty(), "only one group");
        send(0, 3);
        send(1, 1);
        // Many more: what is acknowledged late is sent again, and counts again.
        send(2, 5);
        assert_eq!(busiest(), [2, 1]);
        let relief = first.lane().relief.get().expect("the first lane has it");
        assert!(relief.ask(2) && !relief.ask(2));
        relief.move_asked();
        while ends[2][0].driver.lane_number() != 2 {
            assert!(now() < deadline, "it does not move");
            std::thread::yield_now();
        }
        send(2, 2);
        assert!(busiest().is_empty(), "it is elsewhere");
        assert!(!relief.ask(2), "it has a lane");
    }

    #[test]
    fn a_block_is_divided_into_as_many_parts_as_fit() {
        let parts = |bits, wanted| {
            let block = NumberBlock::new(1 << 18, bits).expect("aligned");
            let parts = divide(block, wanted);
            assert!(
                parts
                    .windows(2)
                    .all(|it| it[0].qpn_range().end == it[1].first())
            );
            (parts.len(), parts.first().map(|part| part.bits()))
        };
        assert_eq!(parts(18, 8), (8, Some(15)));
        assert_eq!(parts(18, 6), (6, Some(15)));
        assert_eq!(parts(18, 2), (2, Some(17)));
        assert_eq!(parts(12, 8), (2, Some(11)));
        assert_eq!(parts(11, 8), (0, None));
        assert_eq!(parts(18, 1), (0, None));
    }
}

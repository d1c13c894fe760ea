//! The lanes of an open device beside its first, and which lane a completion queue gets.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Driver;
use crate::lane::thread::Thread;
use crate::lanes::{FirstLane, LanesOfThreads};
use crate::options::{OpenError, OpenOptions};
use crate::waiting::notifier::Notifier;

/// The lanes beside the first. They are opened when a thread needs them.
pub(super) struct Lanes {
    /// How many lanes there may be, with the first.
    limit: usize,
    options: OpenOptions,
    threads: Mutex<LanesOfThreads>,
    /// By index, without the first.
    open: Mutex<Vec<OtherLane>>,
}

enum OtherLane {
    NotNeeded,
    Open(Arc<Driver>),
    /// It could not be opened, for example because the process may open no more files.
    Unavailable,
}

impl Lanes {
    /// Captures, faults and the checker need all packets in one order, so there is one lane then.
    pub(super) fn new(options: &OpenOptions, simulated: bool) -> Self {
        let one = simulated
            || options.capture.is_some()
            || options.faults.is_some()
            || options.check.is_some();
        let limit = if one { 1 } else { options.lanes.max(1) };
        Self {
            limit,
            options: options.clone(),
            threads: Mutex::default(),
            open: Mutex::new((1..limit).map(|_| OtherLane::NotNeeded).collect()),
        }
    }
}

impl Driver {
    /// How many lanes the device may have. Programs that spread completion queues over the vectors of a device get a
    /// lane for each.
    #[must_use]
    pub fn max_lanes(&self) -> usize {
        self.lanes.as_ref().map_or(1, |lanes| lanes.limit)
    }

    /// Which lane of its device this is. The first is 0.
    #[must_use]
    pub fn lane(&self) -> usize {
        self.index
    }

    /// The lane of a new completion queue, and of the queue pairs that send with it: the given one, or that of the
    /// calling thread.
    #[must_use]
    pub fn lane_for_queue(self: &Arc<Self>, wanted: Option<usize>) -> Arc<Self> {
        let first = || Arc::clone(self);
        let Some(lanes) = self.lanes.as_ref().filter(|lanes| lanes.limit > 1) else {
            return first();
        };
        if self.is_inherited() {
            return first();
        }
        let count = lanes.limit;
        let index = match wanted {
            Some(wanted) => wanted % count,
            None => lanes.threads.lock().of_this_thread(count),
        };
        match index.checked_sub(1) {
            Some(other) => self.open_lane(lanes, other).unwrap_or_else(first),
            None => first(),
        }
    }

    /// The lane of a queue pair whose send completion queue has the lane `of_queue`. If that queue belongs to another device, this is
    /// the result, and its engine reports the queue as unknown.
    #[must_use]
    pub fn lane_for_queue_pair(self: &Arc<Self>, of_queue: &Arc<Self>) -> Arc<Self> {
        let is_ours = Arc::ptr_eq(&self.lane.common, &of_queue.lane.common);
        Arc::clone(if is_ours { of_queue } else { self })
    }

    fn open_lane(&self, lanes: &Lanes, other: usize) -> Option<Arc<Self>> {
        let mut open = lanes.open.lock();
        let lane = open.get_mut(other)?;
        if matches!(lane, OtherLane::NotNeeded) {
            *lane = match self.new_lane(&lanes.options, other + 1) {
                Ok(driver) => OtherLane::Open(Arc::new(driver)),
                Err(_) => OtherLane::Unavailable,
            };
        }
        match lane {
            OtherLane::Open(driver) => Some(Arc::clone(driver)),
            OtherLane::NotNeeded | OtherLane::Unavailable => None,
        }
    }

    fn new_lane(&self, options: &OpenOptions, index: usize) -> Result<Self, OpenError> {
        let first = FirstLane {
            other: index,
            common: Arc::clone(&self.lane.common),
            objects: Arc::clone(&self.lane.objects),
        };
        let lane = Self::create_lane(&self.device, options, Some(&first))?;
        let thread = Thread::start(Arc::clone(&lane)).map_err(OpenError::of_system)?;
        let driver = Self::over(lane, self.device.clone(), options, Some(thread));
        Ok(Self {
            index,
            exit_announced: None,
            ..driver
        })
    }

    /// Sends deferred acknowledgements, of all lanes if this is the first.
    pub fn flush(&self) {
        self.call(|_| ());
        self.for_other_lanes(|lane| lane.call(|_| ()));
    }

    /// The lane that serves a channel, if it is another one of this device.
    pub(super) fn other_lane_of(&self, notifier: &Notifier) -> Option<Arc<Self>> {
        let lanes = self.lanes.as_ref()?;
        let other = notifier.lane().checked_sub(1)?;
        // The lock of a forked child may be held forever.
        if self.is_inherited() {
            return None;
        }
        match lanes.open.lock().get(other) {
            Some(OtherLane::Open(driver)) => Some(Arc::clone(driver)),
            _ => None,
        }
    }

    pub(super) fn for_other_lanes(&self, mut work: impl FnMut(&Self)) {
        let Some(lanes) = &self.lanes else { return };
        if self.is_inherited() {
            return;
        }
        let open = lanes.open.lock();
        let drivers = open.iter().filter_map(|lane| match lane {
            OtherLane::Open(driver) => Some(Arc::clone(driver)),
            OtherLane::NotNeeded | OtherLane::Unavailable => None,
        });
        let drivers: Vec<_> = drivers.collect();
        drop(open);
        drivers.iter().for_each(|driver| work(driver));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use super::*;
    use crate::CheckOptions;
    use crate::driver::connected_end::End;
    use crate::lanes::LaneMessage;
    use crate::rdma_cm::{Event, EventChannel, EventKind, Parameters, PortSpace};

    /// Long enough for a loaded machine.
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Another lane of a device. Only the test serves it.
    fn lane_without_thread(first: &Driver) -> End {
        let options = OpenOptions::default();
        let taken = FirstLane {
            other: 1,
            common: Arc::clone(&first.lane.common),
            objects: Arc::clone(&first.lane.objects),
        };
        let lane = Driver::create_lane(&first.device, &options, Some(&taken)).expect("room");
        let lane = Driver::over(lane, first.device.clone(), &options, None);
        End::of(Arc::new(lane))
    }

    /// A program must see the last message of a peer before the disconnection.
    #[test]
    fn disconnection_waits_until_other_lanes_have_received() {
        let first = Driver::without_thread("127.58.93.21");
        let (lane, peer) = (lane_without_thread(&first), End::open("127.58.93.22"));
        lane.connect(&peer);
        peer.connect(&lane);
        peer.send_to(&lane);
        let objects = &first.lane.objects;
        let completions = objects.completion_queue(lane.completions).expect("room");
        assert!(completions.is_empty(), "nobody has received it yet");
        first.lane.common.deliver(vec![LaneMessage::Disconnecting]);
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
        let server = End::of(first.lane_for_queue(Some(1)));
        assert!(!Arc::ptr_eq(&server.driver, &first));
        let client = Driver::open("127.58.93.25", &faults).expect("a loopback address");
        let client = End::of(client);
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

    #[test]
    fn work_for_the_other_lanes_is_done_once_for_each_open_one() {
        let options = OpenOptions {
            lanes: 3,
            ..OpenOptions::default()
        };
        let first = Driver::open("127.58.93.26", &options).expect("a loopback address");
        let visited = || {
            let mut visited = Vec::new();
            first.for_other_lanes(|lane| visited.push(std::ptr::from_ref(lane)));
            visited
        };
        assert_eq!(visited(), []);
        let second = first.lane_for_queue(Some(1));
        assert_eq!(visited(), [Arc::as_ptr(&second)]);
    }

    #[test]
    fn first_lane_serves_the_queues_of_a_lane_that_cannot_be_opened() {
        let options = OpenOptions {
            lanes: 2,
            ..OpenOptions::default()
        };
        let mut first = Driver::open("127.58.93.23", &options).expect("a loopback address");
        // As if the process had no descriptors left: no socket of this address can be opened.
        let driver = Arc::get_mut(&mut first).expect("nobody else uses it");
        let missing = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        for entry in &mut driver.device.gids {
            entry.address = missing;
        }
        for _ in 0..2 {
            let lane = first.lane_for_queue(Some(1));
            assert!(Arc::ptr_eq(&lane, &first));
        }
        let queue = first.call(|device| device.create_completion_queue(8));
        let queue = first.polled_queue(queue.expect("room")).expect("it exists");
        assert!(first.poll(&queue).is_none());
    }

    #[test]
    fn captures_faults_checks_and_simulations_have_one_lane() {
        let usual = OpenOptions {
            lanes: 4,
            ..OpenOptions::default()
        };
        assert_eq!(Lanes::new(&usual, false).limit, 4);
        assert_eq!(Lanes::new(&usual, true).limit, 1);
        let changes: [fn(&mut OpenOptions); 4] = [
            |options| options.capture = Some("packets.pcapng".into()),
            |options| options.faults = Some("drop=1%".into()),
            |options| options.check = Some(CheckOptions::default()),
            |options| options.lanes = 0,
        ];
        for change in changes {
            let mut options = usual.clone();
            change(&mut options);
            assert_eq!(Lanes::new(&options, false).limit, 1);
        }
    }
}

//! Hosts, their devices, the network and the clock.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use net::sharing::NumberBlock;
use net::socket::interface::{Device, GidEntry, InterfaceId, LinkState};
use net::tap::capture::{Capture, CaptureError};
use net::tap::fault::Random;
use wire::{Gid, PathMtu, Qpn, destination_queue_pair};

use super::current::Entered;
use super::network::{Flying, Latency, Network};
use crate::check::{CheckOptions, ProcessCheck};
use crate::clock;
use crate::clock::earliest;
use crate::fabric::Served;

/// The first virtual address of registered memory. No program has memory there, so a mistaken address is found.
const FIRST_ADDRESS: u64 = 0x5100_0000_0000;

/// A host of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(super) usize);

/// Hosts, the network between them, and a clock. Clones are the same world.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("World").field(&self.elapsed()).finish()
    }
}

pub(super) struct State {
    start: Instant,
    pub(super) now: Instant,
    random: Random,
    pub(super) network: Network,
    pub(super) hosts: Vec<Host>,
    /// The open devices, by number.
    pub(super) devices: BTreeMap<u64, OpenDevice>,
    next_device: u64,
    next_token: u64,
    next_address: u64,
    next_context: u64,
    pub(super) faults: Option<String>,
    pub(super) check: Option<CheckOptions>,
    pub(super) checker: Option<Arc<ProcessCheck>>,
    crashes: Vec<HostId>,
    pub(super) findings: Vec<String>,
}

/// A host, with everything that survives a crash.
pub(super) struct Host {
    name: String,
    pub(super) address: IpAddr,
    /// The number of its present run.
    pub(super) run: u64,
    pub(super) capture: Option<Arc<Capture>>,
    /// The services that its devices listen for, with the device and the number of ids.
    pub(super) services: BTreeMap<u64, (u64, usize)>,
}

/// A device that a host has opened.
pub(super) struct OpenDevice {
    pub(super) host: HostId,
    pub(super) block: NumberBlock,
    /// What the world serves, as soon as the device is open.
    pub(super) lane: Option<Weak<dyn Served>>,
    pub(super) inbox: VecDeque<Flying>,
    pub(super) groups: Vec<Gid>,
    /// When the device must be served.
    pub(super) serve_at: Option<Instant>,
}

impl World {
    /// A world without hosts. Everything random in it depends on the seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let start = clock::now();
        Self(Arc::new(Mutex::new(State {
            start,
            now: start,
            random: Random::new(seed, 1),
            network: Network::new(Random::new(seed, 2)),
            hosts: Vec::new(),
            devices: BTreeMap::new(),
            next_device: 0,
            next_token: 0,
            next_address: FIRST_ADDRESS,
            next_context: 0,
            faults: None,
            check: None,
            checker: None,
            crashes: Vec::new(),
            findings: Vec::new(),
        })))
    }

    /// Adds a host. Its address is 10.0.0.1 for the first one, and so on.
    pub fn add_host(&self, name: &str) -> HostId {
        let mut state = self.lock();
        let number = state.hosts.len() + 1;
        let [high, low] = (number as u16).to_be_bytes();
        state.hosts.push(Host {
            name: name.to_owned(),
            address: Ipv4Addr::new(10, 0, high, low).into(),
            run: next_run(),
            capture: None,
            services: BTreeMap::new(),
        });
        HostId(number - 1)
    }

    /// Sets the faults of all devices, in the language of [`net::tap::fault`].
    pub fn set_faults(&self, faults: Option<String>) {
        self.lock().faults = faults;
    }

    /// Sets how the programs of all hosts are checked.
    pub fn set_check(&self, check: Option<CheckOptions>) {
        self.lock().check = check;
    }

    /// Sets how long packets travel.
    pub fn set_latency(&self, latency: Latency) {
        self.lock().network.latency = latency;
    }

    /// Captures the packets of a host in a file, which is replaced.
    pub fn set_capture(
        &self,
        host: HostId,
        path: &Path,
        program: &str,
    ) -> Result<(), CaptureError> {
        let capture = Capture::replace(path, program)?;
        self.lock().hosts[host.0].capture = Some(Arc::new(capture));
        Ok(())
    }

    /// Lets this thread act for a host, or for none, until the result is dropped.
    pub fn enter(&self, host: Option<HostId>) -> Entered {
        Entered::new(self, host)
    }

    /// The address of a host.
    #[must_use]
    pub fn address(&self, host: HostId) -> IpAddr {
        self.lock().hosts[host.0].address
    }

    /// The time of the world's clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.lock().now
    }

    /// The time since the world began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.lock().elapsed()
    }

    /// Sets the clock to a later time.
    pub fn advance_to(&self, time: Instant) {
        let mut state = self.lock();
        state.now = state.now.max(time);
    }

    /// When the next packet arrives, or the next device must be served.
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        let state = self.lock();
        let served = state.devices.values().filter_map(|device| device.serve_at);
        earliest(state.network.next_arrival(), served.min())
    }

    /// Delivers the packets that have arrived, and lets the devices handle them and run their timers.
    pub fn serve(&self) {
        while let Some((number, host, lane)) = self.next_to_serve() {
            let next = {
                let _entered = self.enter(Some(host));
                let now = self.now();
                lane.serve(now)
            };
            self.serve_before(number, next);
            // Dropped without the lock: this may be the last reference to the device, which has a port in this world.
            drop(lane);
        }
    }

    fn next_to_serve(&self) -> Option<(u64, HostId, Arc<dyn Served>)> {
        let mut state = self.lock();
        state.deliver();
        let now = state.now;
        state.devices.iter_mut().find_map(|(number, device)| {
            device.serve_at.take_if(|at| *at <= now)?;
            Some((*number, device.host, device.lane.as_ref()?.upgrade()?))
        })
    }

    pub(super) fn serve_before(&self, number: u64, next: Option<Instant>) {
        if let Some(device) = self.lock().devices.get_mut(&number) {
            device.serve_at = earliest(device.serve_at, next);
        }
    }

    /// Cuts a host off at once: nothing that it still sends leaves it, and what it sent before stays in flight. Its capture
    /// goes on with its next run.
    pub fn crash(&self, host: HostId) {
        let mut state = self.lock();
        state.devices.retain(|_, device| device.host != host);
        let crashed = &mut state.hosts[host.0];
        crashed.services.clear();
        crashed.run = next_run();
    }

    /// The hosts that a fault has crashed. Their tasks must end.
    #[must_use]
    pub fn take_crashes(&self) -> Vec<HostId> {
        std::mem::take(&mut self.lock().crashes)
    }

    /// What the checks of the programs have found.
    #[must_use]
    pub fn take_findings(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().findings)
    }

    /// Sets whether two hosts can't reach each other.
    pub fn set_cut(&self, one: HostId, other: HostId, cut: bool) {
        self.lock().network.set_cut((one.0, other.0), cut);
    }

    /// How many packets the hosts have sent.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.lock().network.packets
    }

    /// A hash of all packets and the times at which they were sent: the same for the same seed and program.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.lock().network.digest
    }

    /// A random number.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.lock().random.next()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn device_of(&self, host: HostId) -> Device {
        let address = self.address(host);
        let interface = InterfaceId {
            name: "sim0".to_owned(),
            index: 1,
        };
        Device {
            kind: net::socket::interface::DeviceKind::Software,
            name: "roci0".to_owned(),
            interface: Some(interface.clone()),
            mtu: 1500,
            active_mtu: PathMtu::Mtu1024,
            gids: vec![GidEntry {
                index: 0,
                gid: Gid::from(address),
                address,
                interface,
            }],
            guid: host.0 as u64 + 1,
            state: LinkState::Active,
        }
    }

    /// Crashes a host whose task runs now. The task ends when it returns.
    pub(super) fn request_crash(&self, host: HostId) {
        self.crash(host);
        self.lock().crashes.push(host);
    }

    pub(super) fn next_token(&self) -> u64 {
        let mut state = self.lock();
        state.next_token += 1;
        state.next_token
    }

    pub(super) fn next_context(&self) -> u64 {
        let mut state = self.lock();
        state.next_context += 1;
        state.next_context
    }

    /// An address that no other region of the world has. Regions start at a page, and a page apart.
    pub(super) fn next_address(&self, length: usize) -> u64 {
        const PAGE: u64 = 4096;
        let mut state = self.lock();
        let address = state.next_address;
        state.next_address += (length as u64).next_multiple_of(PAGE) + PAGE;
        address
    }
}

impl State {
    pub(super) fn elapsed(&self) -> Duration {
        self.now.duration_since(self.start)
    }

    pub(super) fn open(&mut self, host: HostId, block: NumberBlock) -> u64 {
        self.next_device += 1;
        let device = OpenDevice {
            host,
            block,
            lane: None,
            inbox: VecDeque::new(),
            groups: Vec::new(),
            serve_at: None,
        };
        self.devices.insert(self.next_device, device);
        self.next_device
    }

    /// Gives the packets that have arrived to their devices.
    fn deliver(&mut self) {
        let now = self.now;
        while let Some(arrival) = self.network.take_arrived(now) {
            let packet = arrival.packet;
            let Some(number) = destination_queue_pair(&packet.bytes) else {
                continue;
            };
            let group = Gid::from(packet.route.flow.destination);
            let host = HostId(arrival.host);
            let mut of_host = self.devices.values_mut().filter(|it| it.host == host);
            if packet.route.flow.destination.is_multicast() {
                for device in of_host.filter(|it| it.groups.contains(&group)) {
                    device.take(now, packet.clone());
                }
            } else if let Some(device) = of_host.find(|it| it.receives(number)) {
                device.take(now, packet);
            }
        }
    }

    /// The indices of the hosts that a packet goes to.
    pub(super) fn destinations(&self, address: IpAddr) -> Vec<usize> {
        let reached = |host: &Host| address.is_multicast() || host.address == address;
        let hosts = self.hosts.iter().enumerate();
        hosts
            .filter(|(_, host)| reached(host))
            .map(|(index, _)| index)
            .collect()
    }

    /// The name of a host.
    pub(super) fn name(&self, host: HostId) -> &str {
        &self.hosts[host.0].name
    }
}

impl OpenDevice {
    /// As the kernel's steering: by the block of queue pair numbers, and the shared ones at any device.
    fn receives(&self, number: Qpn) -> bool {
        self.block.contains(number) || NumberBlock::is_shared(number)
    }

    pub(super) fn take(&mut self, now: Instant, packet: Flying) {
        self.inbox.push_back(packet);
        self.serve_at = earliest(self.serve_at, Some(now));
    }
}

/// A number for a run of a host, unique in this process.
fn next_run() -> u64 {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    RUNS.fetch_add(1, Ordering::Relaxed) + 1
}

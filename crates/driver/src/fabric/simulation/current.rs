//! The world and the host that this thread has entered.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use net::sharing::{NumberBlock, PageOwner, StatisticsPage};
use net::socket::interface::Device;
use net::tap::capture::Capture;
use net::tap::fault::{FaultSpec, Faults};

use super::port::SimulatedPort;
use super::world::{HostId, World};
use crate::check::ProcessCheck;
use crate::fabric::here;
use crate::fabric::machine::{Machine, Opened};
use crate::options::{OpenError, OpenOptions};
use crate::shortcut::Shortcut;

/// How often a program may poll without finding anything, or read its memory, while the clock stands still. A program that polls without
/// waiting would never end. A program that compares sixteen megabytes word by word stays below.
const MAX_IDLE_POLLS: u32 = 4_000_000;

thread_local! {
    /// The time of the world that this thread has entered.
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
    static CURRENT: RefCell<Option<Place>> = const { RefCell::new(None) };
    /// How many polls have found nothing since the clock last moved.
    static IDLE_POLLS: Cell<u32> = const { Cell::new(0) };
    /// What the running task waits for.
    static WAITS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Where a thread is: a world, and perhaps one of its hosts.
#[derive(Clone)]
pub(crate) struct Place {
    world: World,
    host: Option<HostId>,
}

/// This thread is at a host until this is dropped.
#[derive(Debug)]
#[must_use = "the thread leaves the host when this is dropped"]
pub struct Entered {
    before: Option<Place>,
    before_now: Option<Instant>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Place").field(&self.host).finish()
    }
}

impl Entered {
    pub(super) fn new(world: &World, host: Option<HostId>) -> Self {
        let place = Place {
            world: world.clone(),
            host,
        };
        IDLE_POLLS.set(0);
        Self {
            before: CURRENT.replace(Some(place)),
            before_now: NOW.replace(Some(world.now())),
        }
    }

    /// What the task that ran since the thread entered has waited for.
    #[must_use]
    pub fn take_waits(&self) -> Vec<String> {
        WAITS.take()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let left = CURRENT.replace(self.before.take());
        NOW.set(self.before_now);
        WAITS.take();
        drop(left);
    }
}

/// Where this thread is; `None` outside of simulations.
pub(crate) fn place() -> Option<Place> {
    NOW.get()?;
    CURRENT.with_borrow(Clone::clone)
}

impl Place {
    /// The host, unless the thread is between hosts.
    pub(super) fn host(&self) -> Option<(&World, HostId)> {
        Some((&self.world, self.host?))
    }
}

impl Machine for Place {
    fn run(&self) -> Option<u64> {
        let run = |host: HostId| self.world.lock().hosts[host.0].run;
        Some(self.host.map_or(0, run))
    }

    fn now(&self) -> Instant {
        NOW.get().expect("this thread is in the world")
    }

    /// The clock of a world starts at the Unix epoch.
    fn wall_time(&self) -> SystemTime {
        UNIX_EPOCH + self.world.elapsed()
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.world.random().to_le_bytes()[..part.len()]);
        }
        Ok(())
    }

    fn token(&self) -> u64 {
        self.world.next_token()
    }

    /// The true one differs from run to run.
    fn virtual_address(&self, _: u64, length: usize) -> u64 {
        self.world.next_address(length)
    }

    /// That of the host; none between the hosts.
    fn devices(&self) -> Result<Vec<Device>, OpenError> {
        let device = self.host.map(|host| self.world.device_of(host));
        Ok(device.into_iter().collect())
    }

    fn reachable(&self) -> Result<Vec<Device>, OpenError> {
        self.devices()
    }

    fn named(&self, name: &str) -> Vec<Device> {
        let mut devices = self.devices().unwrap_or_default();
        devices.retain(|device| {
            let mut addresses = device.gids.iter().map(|entry| entry.address.to_string());
            device.interface.as_ref().is_some_and(|it| it.name == name)
                || addresses.any(|address| address == name)
        });
        devices
    }

    fn source_towards(&self, peer: SocketAddr) -> io::Result<IpAddr> {
        let own = self.host.map(|host| self.world.address(host));
        own.filter(|own| own.is_ipv4() == peer.is_ipv4())
            .ok_or_else(|| io::ErrorKind::NetworkUnreachable.into())
    }

    fn can_reach(&self, _: IpAddr, _: SocketAddr) -> bool {
        true
    }

    /// The environment and this machine must not change what happens.
    fn adapt<'o>(&self, asked: &'o OpenOptions) -> Cow<'o, OpenOptions> {
        let world = self.world.lock();
        Cow::Owned(OpenOptions {
            shortcut: Shortcut::Never,
            watcher: false,
            fault_log: None,
            capture: None,
            faults: asked.faults.clone().or_else(|| world.faults.clone()),
            check: asked.check.clone().or_else(|| world.check.clone()),
            ..asked.clone()
        })
    }

    fn open(&self, _: &Device, _: Shortcut, _: Option<NumberBlock>) -> Opened {
        Ok(Box::new(SimulatedPort::open(self)))
    }

    fn capture(&self) -> Option<Arc<Capture>> {
        self.world.lock().hosts[self.host?.0].capture.clone()
    }

    /// Their decisions depend on the seed of the world.
    fn faults(&self, spec: FaultSpec) -> Faults {
        let (context, seed) = (self.world.next_context(), self.world.random());
        Faults::simulated(spec, context, seed)
    }

    /// A world is one process.
    fn checker(&self, create: &dyn Fn() -> Arc<ProcessCheck>) -> Option<Arc<ProcessCheck>> {
        let mut state = self.world.lock();
        Some(Arc::clone(state.checker.get_or_insert_with(create)))
    }

    /// Simulated devices do not belong to this machine.
    fn statistics_page(&self, _: PageOwner<'_>) -> Option<StatisticsPage> {
        None
    }

    /// Ends the host, as if its machine failed.
    fn kill(&self) {
        if let Some(host) = self.host {
            self.world.request_crash(host);
        }
    }

    fn stop(&self) {}

    /// # Panics
    /// The clock stands still until the task returns, so the wait would never end.
    fn note_block(&self) {
        panic!(
            "this call blocks its thread, and in a simulation all hosts share one thread: use the async form, such as \
             `next().await`, `connect_async` or `accept_async`"
        );
    }

    /// # Panics
    /// If the program polls again and again without waiting: the clock stands still meanwhile.
    fn note_idle_poll(&self) {
        let polls = IDLE_POLLS.get() + 1;
        IDLE_POLLS.set(polls);
        assert!(
            polls < MAX_IDLE_POLLS,
            "the program polls in a loop, and in a simulation the clock stands still until the task awaits something: \
             await the completion, or `host.sleep` between two polls"
        );
    }

    fn note_wait(&self, what: &dyn Fn() -> String) {
        WAITS.with_borrow_mut(|waits| waits.push(what()));
    }

    fn note_finding(&self, text: &dyn Fn() -> String) {
        let text = text();
        self.world.lock().findings.push(text);
    }
}

/// Reports what the running task waits for, for the message about a simulation that hangs.
pub fn note_wait(what: impl Fn() -> String) {
    here(|machine| machine.note_wait(&what));
}

//! The world and the host that this thread has entered.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use net::capture::Capture;
use net::fault::{FaultSpec, Faults};
use net::interface::Device;

use super::world::{HostId, World};
use crate::check::ProcessCheck;
use crate::options::OpenOptions;
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
struct Place {
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

/// The time of the world; `None` outside of simulations.
pub(crate) fn now() -> Option<Instant> {
    NOW.get()
}

/// The time for captures: the clock of a world starts at the Unix epoch.
pub(crate) fn wall_time() -> Option<SystemTime> {
    let (world, _) = current()?;
    Some(UNIX_EPOCH + world.elapsed())
}

fn current() -> Option<(World, Option<HostId>)> {
    NOW.get()?;
    CURRENT.with_borrow(|current| {
        let place = current.as_ref()?;
        Some((place.world.clone(), place.host))
    })
}

fn at_host() -> Option<(World, HostId)> {
    let (world, host) = current()?;
    Some((world, host?))
}

pub(super) fn host_of_thread() -> Option<(World, HostId)> {
    at_host()
}

/// A number for this run of the host; `None` outside of simulations.
pub(crate) fn place() -> Option<u64> {
    let (world, host) = current()?;
    Some(host.map_or(0, |host| world.run_of(host)))
}

/// The devices of the host; none between the hosts; `None` outside of simulations.
pub(crate) fn devices() -> Option<Vec<Device>> {
    let (world, host) = current()?;
    Some(host.map(|host| world.device_of(host)).into_iter().collect())
}

/// The address of the host, if it can reach the peer.
pub(crate) fn own_address(peer: SocketAddr) -> Option<Option<IpAddr>> {
    let (world, host) = current()?;
    let own = host.map(|host| world.address(host));
    Some(own.filter(|own| own.is_ipv4() == peer.is_ipv4()))
}

/// The options for a device of the host. The environment and this machine must not change what happens.
pub(crate) fn open_options(asked: &OpenOptions) -> Option<OpenOptions> {
    let (world, _) = at_host()?;
    Some(OpenOptions {
        shortcut: Shortcut::Never,
        watcher: false,
        fault_log: None,
        capture: None,
        faults: asked.faults.clone().or_else(|| world.faults()),
        check: asked.check.clone().or_else(|| world.check()),
        ..asked.clone()
    })
}

/// The capture of the host.
pub(crate) fn capture() -> Option<Arc<Capture>> {
    let (world, host) = at_host()?;
    world.capture_of(host)
}

/// An injector whose decisions depend on the seed of the world.
pub(crate) fn faults(spec: &FaultSpec) -> Option<Faults> {
    let (world, _) = at_host()?;
    let (context, seed) = (world.next_context(), world.random());
    Some(Faults::simulated(spec.clone(), context, seed))
}

/// The checker of the world.
pub(crate) fn check_process(
    create: impl FnOnce() -> Arc<ProcessCheck>,
) -> Option<Arc<ProcessCheck>> {
    let (world, _) = current()?;
    Some(world.checker(create))
}

/// A random number of the world.
pub(crate) fn random() -> Option<u64> {
    Some(current()?.0.random())
}

/// Fills a seed with random numbers of the world. Returns whether this thread is in one.
pub(crate) fn fill_random(seed: &mut [u8; 32]) -> bool {
    let Some((world, _)) = current() else {
        return false;
    };
    for part in seed.chunks_exact_mut(8) {
        part.copy_from_slice(&world.random().to_le_bytes());
    }
    true
}

/// A number that is unique in the world.
pub(crate) fn token() -> Option<u64> {
    Some(current()?.0.next_token())
}

/// The virtual address for a memory region of this length: the true one differs from run to run.
pub(crate) fn address_for(length: usize) -> Option<u64> {
    Some(current()?.0.next_address(length))
}

/// Ends the host, as if its machine failed, because a fault says so. Returns whether this thread is at a host.
pub(crate) fn request_crash() -> bool {
    let Some((world, host)) = at_host() else {
        return false;
    };
    world.request_crash(host);
    true
}

/// # Panics
/// In a simulation: the clock stands still until the task returns, so the wait would never end.
pub(crate) fn forbid_blocking() {
    assert!(
        now().is_none(),
        "this call blocks its thread, and in a simulation all hosts share one thread: use the async form, such as \
         `next().await`, `connect_async` or `accept_async`"
    );
}

/// Reports that a program has polled and found nothing.
///
/// # Panics
/// In a simulation, if the program polls again and again without waiting: the clock stands still meanwhile.
pub(crate) fn note_idle_poll() {
    if now().is_none() {
        return;
    }
    let polls = IDLE_POLLS.get() + 1;
    IDLE_POLLS.set(polls);
    assert!(
        polls < MAX_IDLE_POLLS,
        "the program polls in a loop, and in a simulation the clock stands still until the task awaits something: \
         await the completion, or `host.sleep` between two polls"
    );
}

/// Reports a violation that the check of the program has found.
pub(crate) fn note_finding(text: impl FnOnce() -> String) {
    if let Some((world, _)) = current() {
        world.add_finding(text());
    }
}

/// Reports what the running task waits for, for the message about a simulation that hangs.
pub fn note_wait(what: impl FnOnce() -> String) {
    if now().is_some() {
        WAITS.with_borrow_mut(|waits| waits.push(what()));
    }
}

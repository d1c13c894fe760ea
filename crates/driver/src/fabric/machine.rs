//! What a thread runs on: this machine, or a host of a simulated world.

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use net::sharing::{NumberBlock, PageOwner, StatisticsPage};
use net::signal;
use net::socket::interface;
use net::socket::interface::Device;
use net::tap::capture::Capture;
use net::tap::fault::{FaultSpec, Faults};

use super::Fabric;
use super::sockets::Sockets;
use crate::check::ProcessCheck;
use crate::options::{OpenError, OpenOptions};
use crate::shortcut::Shortcut;

/// The fabric of a device that was opened.
pub(super) type Opened = Result<Box<dyn Fabric>, OpenError>;

/// The machine of a thread. The methods do by default what they do on this one.
pub(crate) trait Machine {
    /// The run of the simulated host; `None` on this machine.
    fn run(&self) -> Option<u64> {
        None
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    /// The time of the day, for captures.
    fn wall_time(&self) -> SystemTime {
        SystemTime::now()
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        Ok(getrandom::fill(bytes)?)
    }

    /// A number that no other call has returned.
    fn token(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// The virtual address for a memory region of this length at this address.
    fn virtual_address(&self, address: u64, _: usize) -> u64 {
        address
    }

    /// The devices that programs choose from.
    fn devices(&self) -> Result<Vec<Device>, OpenError> {
        Ok(interface::from_env()?)
    }

    /// These, and loopback.
    fn reachable(&self) -> Result<Vec<Device>, OpenError> {
        Ok(interface::reachable()?)
    }

    /// The devices with the name of an interface or an address, also those that are not listed.
    fn named(&self, name: &str) -> Vec<Device> {
        interface::devices(Some(name)).unwrap_or_default()
    }

    /// The local address from which a peer can be reached.
    fn source_towards(&self, peer: SocketAddr) -> io::Result<IpAddr> {
        interface::source_towards(peer)
    }

    /// Whether packets from one of our addresses can go to a peer.
    fn can_reach(&self, own: IpAddr, peer: SocketAddr) -> bool {
        interface::can_reach(own, peer)
    }

    /// The options with which a device is opened.
    fn adapt<'o>(&self, asked: &'o OpenOptions) -> Cow<'o, OpenOptions> {
        Cow::Borrowed(asked)
    }

    /// Joins the addresses of a device, with a part of the numbers that another lane of it has, or with numbers of its own.
    fn open(&self, device: &Device, shortcut: Shortcut, part: Option<NumberBlock>) -> Opened {
        Ok(Box::new(Sockets::open(device, shortcut, part)?))
    }

    /// A capture of everything, apart from those of the options.
    fn capture(&self) -> Option<Arc<Capture>> {
        None
    }

    fn faults(&self, spec: FaultSpec) -> Faults {
        Faults::new(spec)
    }

    /// The checker that all devices share, if it is not that of the process.
    fn checker(&self, _create: &dyn Fn() -> Arc<ProcessCheck>) -> Option<Arc<ProcessCheck>> {
        None
    }

    /// Where other processes read the counters of a lane.
    fn statistics_page(&self, owner: PageOwner<'_>) -> Option<StatisticsPage> {
        StatisticsPage::create(owner).ok()
    }

    /// Ends the program, because a fault says so.
    fn kill(&self) {
        signal::kill_process();
    }

    /// Stops the program, because a fault says so.
    fn stop(&self) {
        signal::stop_process();
    }

    /// A thread is about to sleep.
    fn note_block(&self) {}

    /// A program has polled and found nothing.
    fn note_idle_poll(&self) {}

    /// A task waits, for what the text says.
    #[cfg(feature = "async")]
    fn note_wait(&self, _: &dyn Fn() -> String) {}

    /// The check of the program has found a violation.
    fn note_finding(&self, _: &dyn Fn() -> String) {}
}

struct ThisMachine;

impl Machine for ThisMachine {}

/// Asks the machine that this thread runs on.
#[inline]
pub(crate) fn here<R>(ask: impl FnOnce(&dyn Machine) -> R) -> R {
    #[cfg(feature = "sim")]
    if let Some(place) = super::simulation::place() {
        return ask(&place);
    }
    ask(&ThisMachine)
}

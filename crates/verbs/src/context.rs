//! Devices, and opening them.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use engine::{AsyncEvent, Counters, ObjectError};
use net::capture::CaptureError;
use net::fault::FaultError;
use net::interface::{Device, DeviceError};
use net::share::JoinError;
use wire::{Gid, PathMtu};

use crate::channel::CompletionChannel;
use crate::completion::CompletionQueue;
use crate::domain::ProtectionDomain;
use crate::driver::{Bell, Driver};

/// How a device is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Writes every packet to this file.
    pub capture: Option<PathBuf>,
    /// Breaks packets on purpose, as `ROCI_FAULT` says it.
    pub faults: Option<String>,
    /// Whether the kernel may cut batches into packets; much faster.
    pub segmentation: bool,
    /// Whether packets to other processes of this user and machine may go through memory instead of
    /// sockets, if those allow it too: several times as fast, and invisible on the interface.
    pub shortcut: bool,
    /// Says on stderr what went wrong and what to do, a short paragraph each time. See
    /// [`explain`](crate::explain()) for all devices of a process.
    pub explain: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capture: None,
            faults: None,
            segmentation: true,
            shortcut: false,
            explain: false,
        }
    }
}

impl Options {
    /// What the environment asks for: `ROCI_PCAP`, `ROCI_FAULT`, `ROCI_GSO=0`, `ROCI_SHORTCUT=1`, and
    /// `ROCI_EXPLAIN=1`
    /// (or the program, with [`explain`](crate::explain())).
    #[must_use]
    pub fn from_env() -> Self {
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            capture: text("ROCI_PCAP").map(PathBuf::from),
            faults: text("ROCI_FAULT"),
            segmentation: text("ROCI_GSO").is_none_or(|value| value != "0"),
            shortcut: text("ROCI_SHORTCUT").is_some_and(|value| value != "0"),
            explain: crate::narrator::is_wanted(),
        }
    }
}

/// Why a device can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Its name is not among the devices.
    #[error(
        "there is no device `{name}`; give an interface, an address or one of: {}",
        known.join(", ")
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Its addresses can't be used.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The capture can't be written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The faults can't be understood.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The system refuses something basic.
    #[error("the system refuses a thread, an event counter or random numbers: {0}")]
    System(#[source] io::Error),
}

/// An open device. Cheap to clone; it closes when its last clone and everything made from it is
/// gone.
#[derive(Clone)]
pub struct Context(Arc<Open>);

/// What the clones of a context have in common.
pub(crate) struct Open {
    driver: Driver,
    device: Device,
    gids: Vec<Gid>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.name()).finish()
    }
}

impl Context {
    /// Opens a device by its name, by the name of its interface, or by one of its addresses.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        Self::open_with(name, &Options::from_env())
    }

    /// As [`open`](Self::open), with options.
    pub fn open_with(name: &str, options: &Options) -> Result<Self, OpenError> {
        Self::of(device(name)?, options)
    }

    pub(crate) fn of(device: Device, options: &Options) -> Result<Self, OpenError> {
        let driver = Driver::open(&device, options)?;
        let gids = device.gids.iter().map(|entry| entry.gid).collect();
        Ok(Self(Arc::new(Open {
            driver,
            device,
            gids,
        })))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.device.name
    }

    /// What is known of it without opening it.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Its addresses, by index; an all-zero one is empty.
    #[must_use]
    pub fn gids(&self) -> &[Gid] {
        &self.0.gids
    }

    /// The largest packet payload of its network.
    #[must_use]
    pub fn active_mtu(&self) -> PathMtu {
        self.0.device.active_mtu
    }

    /// A new protection domain.
    pub fn protection_domain(&self) -> Result<ProtectionDomain, ObjectError> {
        ProtectionDomain::allocate(self)
    }

    /// A new completion queue.
    pub fn completion_queue(&self, capacity: u32) -> Result<CompletionQueue, ObjectError> {
        let bell = Bell::new().map_err(|_| ObjectError::Exhausted)?;
        CompletionQueue::create(self, capacity, Arc::new(bell))
    }

    /// A channel by which completion queues wake who waits for them.
    pub fn completion_channel(&self) -> Result<CompletionChannel, ObjectError> {
        CompletionChannel::create(self)
    }

    /// The next asynchronous event, if one happened.
    #[must_use]
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        self.0.driver.poll_event()
    }

    /// The next asynchronous event; waits for it, but not longer than `patience`.
    #[must_use]
    pub fn wait_event(&self, patience: Duration) -> Option<AsyncEvent> {
        self.0
            .driver
            .wait_event(Some(crate::clock::now() + patience))
    }

    /// The file that packets are written to: it may have another name than was asked for, when
    /// another process writes that one.
    #[must_use]
    pub fn capture_path(&self) -> Option<PathBuf> {
        self.0.driver.capture_path()
    }

    /// What happened on the wire.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.driver.counters()
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.0.driver
    }

    pub(crate) fn downgrade(&self) -> Weak<Open> {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn upgrade(weak: &Weak<Open>) -> Option<Self> {
        weak.upgrade().map(Self)
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The devices of this machine: what `ROCI_DEVICES` lists, or else the user's links and every
/// interface that is up and has an address.
pub fn devices() -> Result<Vec<Device>, OpenError> {
    Ok(net::interface::from_env()?)
}

/// The device of this name; an interface or an address is one too, without being listed.
pub fn device(name: &str) -> Result<Device, OpenError> {
    let devices = devices()?;
    let known = devices.iter().map(|device| device.name.clone()).collect();
    if let Some(device) = devices.into_iter().find(|device| device.name == name) {
        return Ok(device);
    }
    // An interface or a plain address is a device too, without being listed.
    match net::interface::devices(Some(name)) {
        Ok(mut made) if made.len() == 1 => Ok(made.remove(0)),
        _ => Err(OpenError::Unknown {
            name: name.to_owned(),
            known,
        }),
    }
}

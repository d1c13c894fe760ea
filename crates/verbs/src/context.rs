//! An open device.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{Counters, SystemRefusal};
use net::socket::interface::Device;
use wire::{Gid, PathMtu};

use crate::rdma_cm::CmId;
use crate::system_device::{self, SystemDevice};
use driver::{DeviceChoice, Driver, OpenError, OpenOptions};
use system::Tree;

/// An open device. Cheap to clone. It closes when the last clone and all objects created from it are
/// dropped.
#[derive(Clone)]
pub struct Context(Opened);

/// The two kinds of devices. Objects of a device have the same two variants.
#[derive(Clone)]
pub(crate) enum Opened {
    Software(Arc<Driver>),
    System(Arc<SystemDevice>),
}

/// The devices of this machine, ours before those of the system. `ROCI_DEVICES` chooses.
///
/// Ours are the user's links and every interface that is up and has an address. Loopback is included only if no other
/// interface is connected; [`device`](crate::device) always finds it by name.
pub fn devices() -> Result<Vec<Device>, OpenError> {
    let mut devices = driver::devices()?;
    devices.extend(system_device::devices()?);
    Ok(devices)
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.name()).finish()
    }
}

impl From<Arc<Driver>> for Context {
    fn from(driver: Arc<Driver>) -> Self {
        Self(Opened::Software(driver))
    }
}

impl TryFrom<&Context> for Arc<Driver> {
    type Error = SystemRefusal;

    fn try_from(context: &Context) -> Result<Self, SystemRefusal> {
        context.software("objects of the driver").map(Arc::clone)
    }
}

impl Context {
    /// Opens a device by its name. For ours, the name of its interface or one of its addresses is also valid.
    ///
    /// A name that one of our devices and one of the system have is an error, unless `ROCI_DEVICES` or
    /// [`OpenOptions::devices`] chooses.
    ///
    /// A [`Listener`](crate::Listener) or [`Connector`](crate::Connector) at an address of the device uses this context, as long as it
    /// is open. Of several contexts with an address, it uses the first; [`Listener::bind_on`](crate::Listener::bind_on) and
    /// [`Connector::resolve_on`](crate::Connector::resolve_on) name another.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        Self::open_with(name, &OpenOptions::from_env())
    }

    /// As [`open`](Self::open), with options.
    pub fn open_with(name: &str, options: &OpenOptions) -> Result<Self, OpenError> {
        if let Some(found) = system_device::named(name, options)? {
            let device = Arc::new(SystemDevice::open(&found, options)?);
            system_device::offer(&device);
            return Ok(Self(Opened::System(device)));
        }
        if options.devices == DeviceChoice::System {
            let known = Tree::of_machine().devices().into_iter();
            return Err(OpenError::Unknown {
                name: name.to_owned(),
                known: known.map(|device| device.name).collect(),
            });
        }
        let driver = Driver::open(name, options)?;
        driver::rdma_cm::offer(&driver);
        Ok(Self::from(driver))
    }

    /// The device of an id of the connection manager, once it is known.
    #[must_use]
    pub fn from_id(id: &CmId) -> Option<Self> {
        id.context().ok()
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.device().name
    }

    /// The device's description.
    #[must_use]
    pub fn device(&self) -> &Device {
        match &self.0 {
            Opened::Software(driver) => driver.device(),
            Opened::System(system) => &system.device,
        }
    }

    /// The GID table; an all-zero entry is empty.
    #[must_use]
    pub fn gids(&self) -> &[Gid] {
        match &self.0 {
            Opened::Software(driver) => driver.gids(),
            Opened::System(system) => &system.gids,
        }
    }

    /// Whether its connections are TCP connections, which only a connection manager can make.
    pub(crate) fn is_iwarp(&self) -> bool {
        matches!(&self.0, Opened::System(system) if system.is_iwarp)
    }

    /// The active MTU: the largest payload of a packet.
    #[must_use]
    pub fn active_mtu(&self) -> PathMtu {
        self.device().active_mtu
    }

    /// The capture file. Its name differs from the requested one if another process writes that file. `None` at devices
    /// of the system, and after a capture ended early, for example because the disk is full.
    #[must_use]
    pub fn capture_path(&self) -> Option<PathBuf> {
        self.driver()?.capture_path()
    }

    /// The faults of `ROCI_FAULT` or [`OpenOptions::faults`](crate::OpenOptions::faults) that no packet has had so far.
    #[must_use]
    pub fn unused_faults(&self) -> Vec<String> {
        let driver = self.driver();
        driver.map_or_else(Vec::new, |driver| driver.unused_faults())
    }

    /// The device's counters; `None` at devices of the system, whose counters are in sysfs.
    #[must_use]
    pub fn counters(&self) -> Option<Counters> {
        Some(self.driver()?.counters())
    }

    /// The driver, which gives access to the device's objects by number, without handles. If an object of a
    /// handle is destroyed there, the handle panics when it is used. `None` at devices of the system.
    #[must_use]
    pub fn driver(&self) -> Option<&Arc<Driver>> {
        match &self.0 {
            Opened::Software(driver) => Some(driver),
            Opened::System(_) => None,
        }
    }

    /// A device of the system that the connection manager names. All callers of a name share it while one of them has it.
    pub(crate) fn of_system(name: &str) -> Result<Self, OpenError> {
        system_device::shared(name).map(|device| Self(Opened::System(device)))
    }

    /// The driver, for something that only our devices have.
    pub(crate) fn software(&self, what: &'static str) -> Result<&Arc<Driver>, SystemRefusal> {
        self.driver().ok_or(SystemRefusal::NotOffered(what))
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.0
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Opened::Software(one), Opened::Software(other)) => Arc::ptr_eq(one, other),
            (Opened::System(one), Opened::System(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

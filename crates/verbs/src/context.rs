//! An open device.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::{AsyncEvent, Counters};
use net::interface::Device;
use wire::{Gid, PathMtu};

use driver::rdma_cm::CmId;
use driver::{Driver, OpenError, OpenOptions};

/// An open device. Cheap to clone. It closes when the last clone and all objects created from it are
/// dropped.
#[derive(Clone)]
pub struct Context(Arc<Driver>);

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.name()).finish()
    }
}

impl From<Arc<Driver>> for Context {
    fn from(driver: Arc<Driver>) -> Self {
        Self(driver)
    }
}

impl From<&Context> for Arc<Driver> {
    fn from(context: &Context) -> Self {
        Arc::clone(&context.0)
    }
}

impl Context {
    /// Opens a device by its name, by the name of its interface, or by one of its addresses.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        Self::open_with(name, &OpenOptions::from_env())
    }

    /// As [`open`](Self::open), with options.
    pub fn open_with(name: &str, options: &OpenOptions) -> Result<Self, OpenError> {
        Driver::open(name, options).map(Self)
    }

    /// The device of an id of the connection manager, once it is known.
    #[must_use]
    pub fn of(id: &CmId) -> Option<Self> {
        id.driver().map(Self)
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.device().name
    }

    /// The device's description.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.0.device()
    }

    /// The GID table; an all-zero entry is empty.
    #[must_use]
    pub fn gids(&self) -> &[Gid] {
        self.0.gids()
    }

    /// The active MTU: the largest payload of a packet.
    #[must_use]
    pub fn active_mtu(&self) -> PathMtu {
        self.0.device().active_mtu
    }

    /// The next asynchronous event, if there is one.
    #[must_use]
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        self.0.poll_event()
    }

    /// Waits for the next asynchronous event, at most `timeout`.
    #[must_use]
    pub fn wait_event(&self, timeout: Duration) -> Option<AsyncEvent> {
        self.0.wait_event(Some(driver::clock::now() + timeout))
    }

    /// The capture file. Its name differs from the requested one if another process writes that file.
    #[must_use]
    pub fn capture_path(&self) -> Option<PathBuf> {
        self.0.capture_path()
    }

    /// The device's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.counters()
    }

    /// The driver, which gives access to the device's objects by number, without handles. If an object of a
    /// handle is destroyed there, the handle panics when it is used.
    #[must_use]
    pub fn driver(&self) -> &Arc<Driver> {
        &self.0
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

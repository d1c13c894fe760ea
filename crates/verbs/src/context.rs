//! An open device.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use engine::{AsyncEvent, Counters, ObjectError};
use net::interface::Device;
use wire::{Gid, PathMtu};

use crate::channel::CompletionChannel;
use crate::completion::CompletionQueue;
use crate::domain::ProtectionDomain;
use crate::driver::Driver;
use crate::opening::{OpenError, Options, device};

/// Whether this process has ever opened a device.
static OPENED: AtomicBool = AtomicBool::new(false);

/// An open device. Cheap to clone. It closes when the last clone and all objects created from it are
/// dropped.
#[derive(Clone)]
pub struct Context(Arc<Open>);

/// The shared part of the clones of a context.
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
        OPENED.store(true, Ordering::Relaxed);
        let gids = device.gids.iter().map(|entry| entry.gid).collect();
        Ok(Self(Arc::new(Open {
            driver,
            device,
            gids,
        })))
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.device.name
    }

    /// The device's description.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The GID table; an all-zero entry is empty.
    #[must_use]
    pub fn gids(&self) -> &[Gid] {
        &self.0.gids
    }

    /// The active MTU: the largest payload of a packet.
    #[must_use]
    pub fn active_mtu(&self) -> PathMtu {
        self.0.device.active_mtu
    }

    /// Allocates a protection domain.
    pub fn protection_domain(&self) -> Result<ProtectionDomain, ObjectError> {
        ProtectionDomain::allocate(self)
    }

    /// Creates a completion queue.
    pub fn completion_queue(&self, capacity: u32) -> Result<CompletionQueue, ObjectError> {
        CompletionQueue::create(self, capacity, None)
    }

    /// Creates a channel for notifications of completion queues.
    pub fn completion_channel(&self) -> Result<CompletionChannel, ObjectError> {
        CompletionChannel::create(self)
    }

    /// The next asynchronous event, if there is one.
    #[must_use]
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        self.0.driver.poll_event()
    }

    /// Waits for the next asynchronous event, at most `timeout`.
    #[must_use]
    pub fn wait_event(&self, timeout: Duration) -> Option<AsyncEvent> {
        self.0
            .driver
            .wait_event(Some(crate::clock::now() + timeout))
    }

    /// The capture file. Its name differs from the requested one if another process writes that file.
    #[must_use]
    pub fn capture_path(&self) -> Option<PathBuf> {
        self.0.driver.capture_path()
    }

    /// The device's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.driver.counters()
    }

    pub(crate) fn was_opened() -> bool {
        OPENED.load(Ordering::Relaxed)
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

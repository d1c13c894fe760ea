//! Stubs for builds without the feature `sim`. The compiler removes them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use cm::IdRange;
use engine::{QpnRange, Transmit};
use host::{Message, Owner};
use net::capture::Capture;
use net::fault::{FaultSpec, Faults};
use net::interface::Device;
use net::port_sharing::{ReceivedPacket, ServiceError};
use wire::{Gid, Qpn};

use crate::check::ProcessCheck;
use crate::lane::Lane;
use crate::options::OpenOptions;

/// There is no simulated port.
pub(crate) enum Port {}

/// There is no simulated device.
#[derive(Clone, Debug)]
pub(crate) enum DeviceHandle {}

impl Port {
    pub(crate) const fn open() -> Option<Self> {
        None
    }

    pub(crate) fn device(&self) -> DeviceHandle {
        match *self {}
    }

    pub(crate) fn numbers(&self) -> QpnRange {
        match *self {}
    }

    pub(crate) fn owns(&self, _: Qpn) -> bool {
        match *self {}
    }

    pub(crate) fn id_range(&self) -> Option<IdRange> {
        match *self {}
    }

    pub(crate) fn source_port(&self) -> u16 {
        match *self {}
    }

    pub(crate) fn receive_buffer(&self) -> usize {
        match *self {}
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        match *self {}
    }

    pub(crate) fn send(&self, _: &Transmit, _: &[u8]) {
        match *self {}
    }

    pub(crate) fn receive(&self, _: impl FnMut(ReceivedPacket<'_>)) -> usize {
        match *self {}
    }

    pub(crate) fn forward(&self, _: &Message) -> Owner {
        match *self {}
    }

    pub(crate) fn join(&self, _: Gid) {
        match *self {}
    }

    pub(crate) fn leave(&self, _: Gid) {
        match *self {}
    }
}

impl DeviceHandle {
    pub(crate) fn attach(&self, _: &Arc<Lane>) {
        match *self {}
    }

    pub(crate) fn serve_before(&self, _: Instant) {
        match *self {}
    }

    pub(crate) fn claim(&self, _: u64) -> Result<(), ServiceError> {
        match *self {}
    }

    pub(crate) fn release(&self, _: u64) {
        match *self {}
    }
}

pub(crate) const fn now() -> Option<Instant> {
    None
}

pub(crate) const fn wall_time() -> Option<SystemTime> {
    None
}

pub(crate) const fn place() -> Option<u64> {
    None
}

pub(crate) const fn devices() -> Option<Vec<Device>> {
    None
}

pub(crate) const fn own_address(_: SocketAddr) -> Option<Option<IpAddr>> {
    None
}

pub(crate) const fn open_options(_: &OpenOptions) -> Option<OpenOptions> {
    None
}

pub(crate) const fn capture() -> Option<Arc<Capture>> {
    None
}

pub(crate) const fn faults(_: &FaultSpec) -> Option<Faults> {
    None
}

pub(crate) fn check_process(_: impl FnOnce() -> Arc<ProcessCheck>) -> Option<Arc<ProcessCheck>> {
    None
}

pub(crate) const fn random() -> Option<u64> {
    None
}

pub(crate) const fn fill_random(_: &mut [u8; 32]) -> bool {
    false
}

pub(crate) const fn token() -> Option<u64> {
    None
}

pub(crate) const fn address_for(_: usize) -> Option<u64> {
    None
}

pub(crate) const fn request_crash() -> bool {
    false
}

pub(crate) const fn forbid_blocking() {}

pub(crate) const fn note_idle_poll() {}

pub(crate) fn note_finding(_: impl FnOnce() -> String) {}

#[cfg(feature = "async")]
pub(crate) fn note_wait(_: impl FnOnce() -> String) {}

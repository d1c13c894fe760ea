//! What a simulated host runs: a device alone, or a device with a connection manager.

use std::time::Instant;

use engine::{Config, Device, Transmit};
use host::Host;
use wire::Route;

/// What a host runs.
// Devices alone are the common case, and there are few machines, so the size does not matter.
#[expect(clippy::large_enum_variant)]
pub enum Machine {
    /// A device alone.
    Bare(Device),
    /// A device, a connection manager and queue pair 1, joined as the driver joins them.
    Managed(Host),
}

impl From<Config> for Machine {
    fn from(config: Config) -> Self {
        Machine::Bare(Device::new(config))
    }
}

impl From<Host> for Machine {
    fn from(host: Host) -> Self {
        Machine::Managed(host)
    }
}

impl Machine {
    /// The device.
    pub fn device_mut(&mut self) -> &mut Device {
        match self {
            Machine::Bare(device) => device,
            Machine::Managed(host) => host.device_mut(),
        }
    }

    /// The device, read-only.
    #[must_use]
    pub fn device(&self) -> &Device {
        match self {
            Machine::Bare(device) => device,
            Machine::Managed(host) => host.device(),
        }
    }

    /// The host, if there is a connection manager.
    pub fn host(&mut self) -> Option<&mut Host> {
        match self {
            Machine::Bare(_) => None,
            Machine::Managed(host) => Some(host),
        }
    }

    pub(crate) fn handle_datagram(&mut self, now: Instant, route: &Route, packet: &[u8]) {
        match self {
            Machine::Bare(device) => device.handle_datagram(now, route, packet),
            Machine::Managed(host) => {
                if !host.hold_for_lookup(route, packet, false) {
                    host.handle_datagram(now, route, packet);
                }
            }
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        match self {
            Machine::Bare(device) => device.handle_timeout(now),
            Machine::Managed(host) => host.handle_timeout(now),
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Machine::Bare(device) => device.poll_timeout(),
            Machine::Managed(host) => host.poll_timeout(),
        }
    }

    pub(crate) fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        match self {
            Machine::Bare(device) => device.poll_transmit(now, buffer),
            Machine::Managed(host) => host.poll_transmit(now, buffer),
        }
    }
}

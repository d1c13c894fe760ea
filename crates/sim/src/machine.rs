//! What a simulated host runs: a device alone, several that share their objects, or a device with a connection manager.

use std::sync::Arc;
use std::time::Instant;

use engine::{Config, Counters, Device, Event, Transmit};
use host::Host;
use wire::{Qpn, Route};

/// What a host runs.
// Devices alone are the common case, and there are few machines, so the size does not matter.
#[expect(clippy::large_enum_variant)]
pub enum Machine {
    /// A device alone.
    Bare(Device),
    /// Devices that share their objects, as the lanes of an open device do. There is at least one.
    Lanes(Vec<Device>),
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
    /// Two devices with different queue pair numbers that share their objects.
    #[must_use]
    pub fn with_two_lanes(config: Config) -> Self {
        let mut other = config.clone();
        other.numbers.first += other.numbers.count;
        other.seed[0] ^= 1;
        let first = Device::new(config);
        let second = Device::sharing(other, Arc::clone(first.objects()));
        Machine::Lanes(vec![first, second])
    }

    /// The device, or the first lane.
    pub fn device_mut(&mut self) -> &mut Device {
        match self {
            Machine::Bare(device) => device,
            Machine::Lanes(devices) => &mut devices[0],
            Machine::Managed(host) => host.device_mut(),
        }
    }

    /// All devices.
    pub fn devices_mut(&mut self) -> &mut [Device] {
        match self {
            Machine::Bare(device) => std::slice::from_mut(device),
            Machine::Lanes(devices) => devices,
            Machine::Managed(host) => std::slice::from_mut(host.device_mut()),
        }
    }

    /// All devices, read-only.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        match self {
            Machine::Bare(device) => std::slice::from_ref(device),
            Machine::Lanes(devices) => devices,
            Machine::Managed(host) => std::slice::from_ref(host.device()),
        }
    }

    /// The device that has a queue pair, or the first one if none has it.
    pub fn device_of(&mut self, number: Qpn) -> &mut Device {
        let devices = self.devices_mut();
        let has_it = |device: &Device| device.queue_pair(number).is_some();
        let index = devices.iter().position(has_it).unwrap_or(0);
        &mut devices[index]
    }

    /// The counters of all devices.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for device in self.devices() {
            sum += *device.counters();
        }
        sum
    }

    /// The next event of a device.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.devices_mut().iter_mut().find_map(Device::poll_event)
    }

    /// The device, or the first lane, read-only.
    #[must_use]
    pub fn device(&self) -> &Device {
        match self {
            Machine::Bare(device) => device,
            Machine::Lanes(devices) => &devices[0],
            Machine::Managed(host) => host.device(),
        }
    }

    /// The host, if there is a connection manager.
    pub fn host(&mut self) -> Option<&mut Host> {
        match self {
            Machine::Bare(_) | Machine::Lanes(_) => None,
            Machine::Managed(host) => Some(host),
        }
    }

    pub(crate) fn handle_datagram(&mut self, now: Instant, route: &Route, packet: &[u8]) {
        match self {
            Machine::Bare(device) => device.handle_datagram(now, route, packet),
            Machine::Lanes(_) => {
                let number = wire::destination_queue_pair(packet).unwrap_or(Qpn::GSI);
                self.device_of(number).handle_datagram(now, route, packet);
            }
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
            Machine::Lanes(devices) => devices.iter_mut().for_each(|it| it.handle_timeout(now)),
            Machine::Managed(host) => host.handle_timeout(now),
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Machine::Bare(device) => device.poll_timeout(),
            Machine::Lanes(devices) => devices.iter().filter_map(Device::poll_timeout).min(),
            Machine::Managed(host) => host.poll_timeout(),
        }
    }

    pub(crate) fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        match self {
            Machine::Bare(device) => device.poll_transmit(now, buffer),
            Machine::Lanes(devices) => devices
                .iter_mut()
                .find_map(|device| device.poll_transmit(now, buffer)),
            Machine::Managed(host) => host.poll_transmit(now, buffer),
        }
    }
}

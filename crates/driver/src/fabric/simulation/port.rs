//! The part of the simulated network that belongs to a device, in place of its sockets.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use cm::Recipient;
use engine::Transmit;
use engine::transmit::packets_to_handle;
use host::{Message, Owner};
use net::sharing::{NumberBlock, ReceivedPacket, ServiceError};
use net::socket::SocketError;
use wire::{Gid, Qpn};

use super::current::Place;
use super::network::Flying;
use super::world::{HostId, World};
use crate::fabric::{Alarm, Fabric, PollScope, Sent, Served, Services, Take};

/// The size of each device's number block: the largest.
const BLOCK_BITS: u32 = NumberBlock::MAX_BITS;

/// How many devices a host can have open: more blocks do not fit.
const MAX_DEVICES: u32 = 62;

/// The receive buffer of a device in bytes: large enough for the largest window.
const RECEIVE_BUFFER: usize = 8 << 20;

/// A device in its world.
#[derive(Clone, Debug)]
struct DeviceHandle {
    world: World,
    host: HostId,
    number: u64,
}

/// What a simulated device has in place of sockets.
pub(super) struct SimulatedPort {
    device: DeviceHandle,
    block: NumberBlock,
}

impl SimulatedPort {
    /// The port of a new device at the host that this thread has entered.
    pub(super) fn open(place: &Place) -> Self {
        let (world, host) = place.host().expect("a device belongs to a host");
        let mut state = world.lock();
        let used = |index: u32| {
            let of_host = state.devices.values().filter(|it| it.host == host);
            of_host
                .map(|it| it.block)
                .any(|block| block.first() == index << BLOCK_BITS)
        };
        let free = (1..=MAX_DEVICES).find(|index| !used(*index));
        let Some(index) = free else {
            panic!(
                "host `{}` has {MAX_DEVICES} devices open, and a simulated host can't have more",
                state.name(host)
            );
        };
        let block = NumberBlock::new(index << BLOCK_BITS, BLOCK_BITS).expect("within the space");
        let number = state.open(host, block);
        drop(state);
        let device = DeviceHandle {
            world: world.clone(),
            host,
            number,
        };
        Self { device, block }
    }
}

impl Fabric for SimulatedPort {
    fn is_real(&self) -> bool {
        false
    }

    /// Whether the host has crashed since the device was opened.
    fn is_cut_off(&self) -> bool {
        let state = self.device.world.lock();
        !state.devices.contains_key(&self.device.number)
    }

    fn block(&self) -> Option<NumberBlock> {
        Some(self.block)
    }

    fn owns(&self, number: Qpn) -> bool {
        self.block.contains(number)
    }

    fn source_port(&self, _: usize) -> u16 {
        0xc000 | (self.block.first() >> BLOCK_BITS) as u16
    }

    fn receive_buffer(&self) -> usize {
        RECEIVE_BUFFER
    }

    fn send(&mut self, _: Instant, transmit: &Transmit, bytes: &mut [u8]) -> Sent {
        let mut state = self.device.world.lock();
        if !state.devices.contains_key(&self.device.number) {
            return Ok(());
        }
        let (now, elapsed) = (state.now, state.elapsed());
        let destinations = state.destinations(transmit.route.flow.destination);
        for packet in packets_to_handle(transmit, bytes) {
            for to in &destinations {
                let flying = Flying {
                    route: transmit.route,
                    bytes: packet.to_vec(),
                    has_icrc: transmit.has_icrc,
                    forwarded: false,
                };
                (state.network).send(now, elapsed, self.device.host.0, *to, flying);
            }
        }
        Ok(())
    }

    fn receive(&mut self, _: Instant, _: PollScope, take: Take<'_>) -> usize {
        let mut state = self.device.world.lock();
        let device = state.devices.get_mut(&self.device.number);
        let arrived = device.map(|device| std::mem::take(&mut device.inbox));
        drop(state);
        let arrived = arrived.unwrap_or_default();
        for packet in &arrived {
            take(ReceivedPacket {
                route: packet.route,
                packet: &packet.bytes,
                shared: None,
                has_icrc: packet.has_icrc,
                forwarded: packet.forwarded,
            });
        }
        arrived.len()
    }

    /// To the device of this host that owns it.
    fn forward(&mut self, message: &Message) -> Owner {
        let mut state = self.device.world.lock();
        let (now, own) = (state.now, self.device.number);
        let flying = Flying {
            route: message.route,
            bytes: message.packet.to_vec(),
            has_icrc: true,
            forwarded: true,
        };
        let host = self.device.host;
        let claimed = |service: u64| state.hosts[host.0].services.get(&service);
        let owner = match message.recipient {
            Recipient::Listener(service) => claimed(service.value()).map(|(device, _)| *device),
            Recipient::CommunicationId(id) => {
                let mut devices = state.devices.iter().filter(|(_, it)| it.host == host);
                let found = devices.find(|(_, it)| it.block.contains_communication(id.value()));
                found.map(|(number, _)| *number)
            }
            Recipient::Everyone => {
                let others = state.devices.iter_mut();
                for (_, device) in others.filter(|(it, device)| **it != own && device.host == host)
                {
                    device.take(now, flying.clone());
                }
                return Owner::Here;
            }
        };
        let owner = owner.filter(|owner| *owner != own);
        let Some(device) = owner.and_then(|owner| state.devices.get_mut(&owner)) else {
            return Owner::None;
        };
        device.take(now, flying);
        Owner::Elsewhere
    }

    fn join(&mut self, group: Gid, _: IpAddr) -> Result<(), SocketError> {
        let mut state = self.device.world.lock();
        if let Some(device) = state.devices.get_mut(&self.device.number) {
            device.groups.push(group);
        }
        Ok(())
    }

    fn leave(&mut self, group: Gid) {
        let mut state = self.device.world.lock();
        if let Some(device) = state.devices.get_mut(&self.device.number) {
            device.groups.retain(|it| *it != group);
        }
    }

    fn services(&self) -> Box<dyn Services> {
        Box::new(self.device.clone())
    }

    fn alarm(&self) -> Option<Arc<dyn Alarm>> {
        Some(Arc::new(self.device.clone()))
    }
}

impl Drop for SimulatedPort {
    fn drop(&mut self) {
        let mut state = self.device.world.lock();
        if state.devices.remove(&self.device.number).is_some() {
            let services = &mut state.hosts[self.device.host.0].services;
            services.retain(|_, (device, _)| *device != self.device.number);
        }
    }
}

impl Alarm for DeviceHandle {
    fn serves(&self, lane: Weak<dyn Served>) -> bool {
        if let Some(device) = self.world.lock().devices.get_mut(&self.number) {
            device.lane = Some(lane);
        }
        true
    }

    fn wake_before(&self, next: Instant) {
        self.world.serve_before(self.number, Some(next));
    }
}

impl Services for DeviceHandle {
    fn claim(&mut self, _: Option<IpAddr>, service: u64) -> Result<(), ServiceError> {
        let mut state = self.world.lock();
        if !state.devices.contains_key(&self.number) {
            return Ok(());
        }
        let services = &mut state.hosts[self.host.0].services;
        let (owner, users) = services.entry(service).or_insert((self.number, 0));
        if *owner != self.number {
            let pid = std::process::id();
            return Err(ServiceError::InUse { service, pid });
        }
        *users += 1;
        Ok(())
    }

    fn release(&mut self, _: Option<IpAddr>, service: u64) {
        let mut state = self.world.lock();
        let services = &mut state.hosts[self.host.0].services;
        if let Some((owner, users)) = services.get_mut(&service)
            && *owner == self.number
        {
            *users -= 1;
            if *users == 0 {
                services.remove(&service);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::driver::connected_end::End;
    use crate::{Driver, OpenOptions};

    use super::*;

    #[test]
    fn a_closed_device_has_no_services() {
        let world = World::new(1);
        let host = world.add_host("only");
        let _entered = world.enter(Some(host));
        let open =
            || SimulatedPort::open(&crate::fabric::simulation::place().expect("it has entered"));
        let first = open();
        first.services().claim(None, 7).expect("nobody has it");
        drop(first);
        let claimed = open().services().claim(None, 7);
        claimed.expect("nobody has it any more");
    }

    /// Its descriptor would never be readable, and the clock stands still while somebody looks for packets.
    #[test]
    fn packets_wake_no_program_at_a_descriptor() {
        let world = World::new(1);
        let host = world.add_host("only");
        let _entered = world.enter(Some(host));
        let driver = Driver::open("roci0", &OpenOptions::default()).expect("the host has it");
        let channel = End::of(&driver).channel();
        driver.promise_packet_wakeups(&channel, || true);
        driver.offer_packet_wakeups(&channel);
        assert!(!channel.has_packets());
        assert!(!driver.lane().lock().packet_wakeups.are_used());
    }
}

//! One process: its queue pairs, listeners and connections.

use std::collections::BTreeMap;
use std::time::Duration;

use cm::Manager;
use engine::{CompletionQueue, Device, Id, ProtectionDomain};
use host::Host;
use wire::Qpn;

use super::place::{Place, Service};
use super::socket::Socket;
use crate::Complaint;
use crate::rng::Rng;

/// A process.
pub(super) struct Process {
    pub(super) place: Place,
    pub(super) listeners: BTreeMap<cm::Id, Service>,
    /// Queue pairs of connections, by number.
    pub(super) sockets: BTreeMap<Qpn, Socket>,
    pub(super) of_id: BTreeMap<cm::Id, Qpn>,
    /// When the last connection of a number ended.
    pub(super) ended: BTreeMap<Qpn, Duration>,
    /// The queue pair of the datagram service.
    pub(super) service: Qpn,
    pub(super) domain: Id<ProtectionDomain>,
    pub(super) queue: Id<CompletionQueue>,
    /// The messages to send if the process dies.
    pub(super) exit_notices: BTreeMap<cm::Id, cm::Transmit>,
}

impl Process {
    /// Starts a process on a new host, with listeners for all services.
    pub(super) fn start(
        place: Place,
        host: &mut Host,
        rng: &mut Rng,
    ) -> Result<Process, Complaint> {
        host.manager().add_address(place.address());
        let (device, manager) = host.parts();
        let mut process = Process {
            place,
            listeners: BTreeMap::new(),
            sockets: BTreeMap::new(),
            of_id: BTreeMap::new(),
            ended: BTreeMap::new(),
            service: Qpn::default(),
            domain: device.allocate_domain()?,
            queue: device.create_completion_queue(10_000)?,
            exit_notices: BTreeMap::new(),
        };
        process.listen(manager, Service::Reliable, rng)?;
        process.listen(manager, Service::Unreliable, rng)?;
        let datagrams = process.listen(manager, Service::Datagram, rng)?;
        process.open_service(device, manager, datagrams)?;
        Ok(process)
    }

    pub(super) fn listen(
        &mut self,
        manager: &mut Manager,
        service: Service,
        rng: &mut Rng,
    ) -> Result<cm::Id, Complaint> {
        let id = manager.create(service.space(), service.kind())?;
        let address = (self.place.address(), self.place.port()).into();
        manager.bind(id, address)?;
        manager.listen(id, *rng.pick(&[1, 2, 8]))?;
        self.listeners.insert(id, service);
        Ok(id)
    }

    /// Creates one queue pair for all clients of the datagram service.
    fn open_service(
        &mut self,
        device: &mut Device,
        manager: &mut Manager,
        id: cm::Id,
    ) -> Result<(), Complaint> {
        let init = manager.init_attributes(id)?;
        let socket = Socket::create(device, self.domain, self.queue, Service::Datagram, None)?;
        let socket = socket.ok_or_else(|| Complaint::new("a new device has no number"))?;
        socket.initialize(device, &init)?;
        socket.open(device)?;
        socket.post_receives(device)?;
        self.service = socket.number;
        self.sockets.insert(socket.number, socket);
        Ok(())
    }

    /// The queue pair of an id.
    pub(super) fn socket(&mut self, id: cm::Id) -> Option<&mut Socket> {
        self.sockets.get_mut(self.of_id.get(&id)?)
    }

    /// The id is destroyed: its queue pair stays until its number may be reused.
    pub(super) fn retire(
        &mut self,
        device: &mut Device,
        id: cm::Id,
    ) -> Result<Option<Qpn>, Complaint> {
        let Some(number) = self.of_id.remove(&id) else {
            return Ok(None);
        };
        let socket = self.sockets.get_mut(&number).expect("an id's queue pair");
        socket.id = None;
        socket.break_off(device)?;
        Ok(Some(number))
    }

    /// Destroys queue pairs whose numbers may be reused.
    pub(super) fn reap(&mut self, device: &mut Device, manager: &Manager) -> Result<(), Complaint> {
        let service = self.service;
        let is_over = |socket: &Socket| {
            socket.id.is_none()
                && socket.number != service
                && !manager.is_in_time_wait(socket.number)
        };
        let over: Vec<Qpn> = self
            .sockets
            .values()
            .filter(|socket| is_over(socket))
            .map(|socket| socket.number)
            .collect();
        for socket in over.iter().filter_map(|number| self.sockets.remove(number)) {
            socket.destroy(device)?;
        }
        Ok(())
    }

    /// Destroys everything that the start created.
    pub(super) fn stop(&mut self, device: &mut Device) -> Result<(), Complaint> {
        for socket in std::mem::take(&mut self.sockets).into_values() {
            match socket.number == self.service {
                true => socket.destroy(device)?,
                false => return Err(Complaint::new(format!("{} is left", socket.number))),
            }
        }
        device.destroy_completion_queue(self.queue)?;
        device.free_domain(self.domain)?;
        // Queue pair 1 and its receives belong to the host.
        match (device.queue_pair_count(), device.memory_count()) {
            (1, 1) => Ok(()),
            left => Err(Complaint::new(format!(
                "queue pairs and regions are left: {left:?}"
            ))),
        }
    }
}

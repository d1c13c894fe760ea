//! One process: a device, a connection manager, and what a driver keeps to join them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cm::{Config, Manager, Transmit};
use engine::{
    Access, Address, Buffer, Completion, CompletionQueue, Destination, Device, Id, Kind,
    ProtectionDomain, QueuePairInit, ReceiveRequest, Segment, SendFlags, SendRequest, Work,
};
use wire::{Key, Qpn, QueueKey, grh, mad};

use super::place::{Place, Service};
use super::socket::Socket;
use crate::Complaint;
use crate::plain::open;
use crate::rng::Rng;

/// How many management datagrams may wait, and how long each is with what stands in front of it.
const LETTERS: usize = 64;
const LETTER: usize = grh::LENGTH + mad::LENGTH;

/// A process while it lives.
pub(super) struct Process {
    pub(super) place: Place,
    pub(super) manager: Manager,
    pub(super) listeners: BTreeMap<cm::Id, Service>,
    /// Queue pairs of connections, by number.
    pub(super) sockets: BTreeMap<Qpn, Socket>,
    pub(super) of_id: BTreeMap<cm::Id, Qpn>,
    /// When the last connection of a number ended.
    pub(super) ended: BTreeMap<Qpn, Duration>,
    /// The queue pair that serves all who ask for datagrams.
    pub(super) service: Qpn,
    /// When the manager will be woken.
    pub(super) wake: Option<Duration>,
    pub(super) domain: Id<ProtectionDomain>,
    pub(super) queue: Id<CompletionQueue>,
    letters: Arc<Buffer>,
    letters_key: Key,
}

impl Process {
    /// Starts it on a new device, with listeners for everything.
    pub(super) fn start(
        place: Place,
        device: &mut Device,
        bug: Option<cm::Bug>,
        rng: &mut Rng,
    ) -> Result<Process, Complaint> {
        let mut config = Config::new(place.guid(), rng.word());
        config.slice = place.slice();
        let mut manager = Manager::new(config);
        if let Some(bug) = bug {
            manager.sabotage(bug);
        }
        manager.add_address(place.address());
        let domain = device.allocate_domain()?;
        let queue = device.create_completion_queue(10_000)?;
        let letters = Buffer::zeroed(LETTERS * LETTER);
        let own = Access::LOCAL_WRITE;
        let region = device.register(domain, Arc::clone(&letters), 0, own)?;
        let mut process = Process {
            place,
            manager,
            listeners: BTreeMap::new(),
            sockets: BTreeMap::new(),
            of_id: BTreeMap::new(),
            ended: BTreeMap::new(),
            service: Qpn::default(),
            wake: None,
            domain,
            queue,
            letters,
            letters_key: region.local_key,
        };
        process.open_mailbox(device)?;
        process.listen(Service::Reliable, rng)?;
        process.listen(Service::Unreliable, rng)?;
        let datagrams = process.listen(Service::Datagram, rng)?;
        process.open_service(device, datagrams)?;
        Ok(process)
    }

    /// Queue pair 1, with room for letters.
    fn open_mailbox(&self, device: &mut Device) -> Result<(), Complaint> {
        let init = QueuePairInit::new(Kind::Management, self.domain, self.queue);
        let number = device.create_queue_pair(init)?;
        open(device, number, QueueKey::GSI)?;
        (0..LETTERS).try_for_each(|slot| self.expect_letter(device, slot))
    }

    fn expect_letter(&self, device: &mut Device, slot: usize) -> Result<(), Complaint> {
        let segment = Segment {
            address: (slot * LETTER) as u64,
            length: LETTER as u32,
            key: self.letters_key,
        };
        let request = ReceiveRequest::new(slot as u64, [segment]);
        device.post_receive(Qpn::GSI, request).map_err(not_taken)
    }

    pub(super) fn listen(&mut self, service: Service, rng: &mut Rng) -> Result<cm::Id, Complaint> {
        let manager = &mut self.manager;
        let id = manager.create(service.space(), service.kind())?;
        let address = (self.place.address(), self.place.port()).into();
        manager.bind(id, address)?;
        manager.listen(id, *rng.pick(&[1, 2, 8]))?;
        self.listeners.insert(id, service);
        Ok(id)
    }

    /// One queue pair for all clients of the datagram service, as servers have it.
    fn open_service(&mut self, device: &mut Device, id: cm::Id) -> Result<(), Complaint> {
        let init = self.manager.init_attributes(id)?;
        let socket = Socket::create(device, self.domain, self.queue, Service::Datagram, None)?;
        let socket = socket.ok_or_else(|| Complaint::new("a new device has no number"))?;
        socket.initialize(device, &init)?;
        socket.open(device)?;
        socket.post_receives(device)?;
        self.service = socket.number;
        self.sockets.insert(socket.number, socket);
        Ok(())
    }

    /// Sends what a manager has to say, from queue pair 1.
    pub(super) fn post_letter(device: &mut Device, transmit: &Transmit) -> Result<(), Complaint> {
        let address = Address {
            traffic_class: transmit.traffic_class,
            hop_limit: transmit.hop_limit,
            ..Address::new(transmit.destination.into(), 0)
        };
        let request = SendRequest::new(0, Work::Send)
            .inline(&*transmit.datagram)
            .flags(SendFlags::empty())
            .to(Destination {
                address,
                queue_pair: Qpn::GSI,
                queue_key: QueueKey::GSI,
            });
        device.post_send(Qpn::GSI, request).map_err(not_taken)
    }

    /// What came to queue pair 1, and between which addresses.
    pub(super) fn open_letter(
        &self,
        device: &mut Device,
        completion: &Completion,
    ) -> Result<(cm::Arrival, Vec<u8>), Complaint> {
        let mut letter = vec![0; completion.length as usize];
        let slot = completion.id as usize;
        self.letters.read(slot * LETTER, &mut letter);
        self.expect_letter(device, slot)?;
        let unreadable = || Complaint::new(format!("a letter without a head: {completion:?}"));
        let (head, datagram) = letter.split_first_chunk().ok_or_else(unreadable)?;
        let route = grh::route(head).ok_or_else(unreadable)?;
        let (source, destination) = (route.source.ip(), route.destination.ip());
        let arrival = cm::Arrival {
            source: source.ok_or_else(unreadable)?,
            destination: destination.ok_or_else(unreadable)?,
        };
        Ok((arrival, datagram.to_vec()))
    }

    /// The queue pair of an id.
    pub(super) fn socket(&mut self, id: cm::Id) -> Option<&mut Socket> {
        self.sockets.get_mut(self.of_id.get(&id)?)
    }

    /// The id is destroyed: its queue pair follows when its number may be used again.
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

    /// Ends queue pairs whose numbers may be used again.
    pub(super) fn reap(&mut self, device: &mut Device) -> Result<(), Complaint> {
        let (manager, service) = (&self.manager, self.service);
        let is_over = |socket: &Socket| {
            socket.id.is_none() && socket.number != service && !manager.is_lingering(socket.number)
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

    /// Everything that was made at the start goes.
    pub(super) fn stop(&mut self, device: &mut Device) -> Result<(), Complaint> {
        for socket in std::mem::take(&mut self.sockets).into_values() {
            match socket.number == self.service {
                true => socket.destroy(device)?,
                false => return Err(Complaint::new(format!("{} is left", socket.number))),
            }
        }
        device.destroy_queue_pair(Qpn::GSI)?;
        device.deregister(self.letters_key)?;
        device.destroy_completion_queue(self.queue)?;
        device.free_domain(self.domain)?;
        match (device.queue_pair_count(), device.memory_count()) {
            (0, 0) => Ok(()),
            left => Err(Complaint::new(format!(
                "queue pairs and regions are left: {left:?}"
            ))),
        }
    }
}

fn not_taken(error: engine::PostError) -> Complaint {
    Complaint::new(format!("queue pair 1 did not take a request: {error}"))
}

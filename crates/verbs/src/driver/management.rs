//! Queue pair 1, and the connection manager behind it.
//!
//! Messages travel through the engine like any other datagram, so captures, faults and checksums
//! treat them alike. All processes at an address share queue pair 1: a request that another one
//! listens for is handed on before the engine sees it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use cm::{EventKind, Failure, Instruction, Manager, Recipient};
use engine::{
    Access, Address, Attributes, Buffer, Completion, CompletionQueue, Destination, Device, Id,
    Kind, ObjectError, QueuePairInit, ReceiveRequest, Registration, Segment, SendFlags,
    SendRequest, State, Work,
};
use net::interface::{Interface, InterfaceId};
use net::share::{Arrived, Slice};
use net::socket::Envelope;
use wire::cm::Message;
use wire::{Gid, Packet, PathMtu, Qpn, QueueKey, grh, mad};

use super::port::Ports;
use crate::context::Open;
use crate::narrator::Setback;
use crate::rdma_cm::queue::{EventQueue, Notice};

/// How many messages may have arrived before the first is looked at.
const RECEIVES: u32 = 16;

/// How many messages are handed to the engine at a time.
const SENDS: u32 = 64;

/// A receive holds the network header and the message.
const SLOT: usize = grh::LENGTH + mad::LENGTH;

/// The highest bits of a communication id name its owner's slice.
const SLICE_BITS: u32 = 6;

/// Whoever wants to know what happens to an id.
#[derive(Clone)]
pub(crate) struct Watcher {
    pub(crate) queue: Arc<EventQueue>,
    /// What the id is called in the queue.
    pub(crate) token: u64,
    pub(crate) context: Weak<Open>,
}

/// A message that is perhaps another process's.
pub(super) struct Stray {
    pub(super) envelope: Envelope,
    pub(super) packet: Vec<u8>,
    pub(super) recipient: Recipient,
}

impl Stray {
    /// As it arrived.
    pub(super) fn arrived(&self) -> Arrived<'_> {
        Arrived {
            envelope: self.envelope,
            packet: &self.packet,
            forwarded: false,
        }
    }
}

pub(super) struct Management {
    manager: Manager,
    /// Our part of the communication ids; none on a device without addresses.
    slice: Option<Slice>,
    mtu: PathMtu,
    completions: Id<CompletionQueue>,
    buffer: Arc<Buffer>,
    registration: Registration,
    watchers: HashMap<cm::Id, Watcher>,
    strays: Vec<Stray>,
    /// On which interface each address is.
    homes: Vec<(IpAddr, InterfaceId)>,
    /// Connections that failed, to be explained; nothing if nobody does.
    setbacks: Option<Vec<Setback>>,
}

impl Management {
    pub(super) fn new(
        device: &mut Device,
        described: &net::interface::Device,
        slice: Option<Slice>,
        seed: u64,
        explain: bool,
    ) -> Result<Self, ObjectError> {
        let mut config = cm::Config::new(described.guid, seed);
        if let Some(ours) = slice.and_then(|it| cm::Slice::new(SLICE_BITS, it.number().into())) {
            config.slice = ours;
        }
        let mut manager = Manager::new(config);
        for entry in &described.gids {
            manager.add_address(entry.address);
        }
        let domain = device.allocate_domain()?;
        let completions = device.create_completion_queue(RECEIVES + SENDS)?;
        let buffer = Buffer::zeroed(RECEIVES as usize * SLOT);
        let registration = device
            .register(domain, Arc::clone(&buffer), 0, Access::LOCAL_WRITE)
            .map_err(|_| ObjectError::Exhausted)?;
        device.create_queue_pair(QueuePairInit {
            max_sends: SENDS,
            max_receives: RECEIVES,
            max_inline: mad::LENGTH as u32,
            ..QueuePairInit::new(Kind::Management, domain, completions)
        })?;
        bring_up(device);
        let management = Self {
            manager,
            slice,
            mtu: described.active_mtu,
            completions,
            buffer,
            registration,
            watchers: HashMap::new(),
            strays: Vec::new(),
            homes: homes(described),
            setbacks: explain.then(Vec::new),
        };
        for slot in 0..RECEIVES {
            management.post_receive(device, slot.into());
        }
        Ok(management)
    }

    pub(super) fn manager(&mut self) -> &mut Manager {
        &mut self.manager
    }

    pub(super) fn watch(&mut self, id: cm::Id, watcher: Option<Watcher>) {
        match watcher {
            Some(watcher) => self.watchers.insert(id, watcher),
            None => self.watchers.remove(&id),
        };
    }

    /// Tells the manager when an address has moved to another interface, and when there is no
    /// interface left.
    pub(super) fn look_at(&mut self, interfaces: &[Interface]) {
        for (address, home) in &mut self.homes {
            let has = |it: &&Interface| it.addresses.iter().any(|known| known.ip == *address);
            let elsewhere = interfaces
                .iter()
                .find(|it| it.index != home.index && has(it));
            let still = interfaces
                .iter()
                .any(|it| it.index == home.index && has(&it));
            if let (Some(new), false) = (elsewhere, still) {
                home.index = new.index;
                home.name.clone_from(&new.name);
                self.manager.address_changed(*address);
            }
        }
        let exists = |index| interfaces.iter().any(|it| it.index == index);
        if !self.homes.is_empty() && !self.homes.iter().any(|(_, home)| exists(home.index)) {
            self.homes.clear();
            self.manager.device_removed();
        }
    }

    /// Whether a message may be another process's; then it is kept as a stray.
    pub(super) fn sets_aside(&mut self, arrived: &Arrived<'_>) -> bool {
        let recipient = match recipient(arrived.packet) {
            Some(recipient) if !self.is_ours(recipient) => recipient,
            _ => return false,
        };
        // Who handed it on had looked up whose it is; but who has reserved a service may not listen
        // yet, and then a request waits here.
        if arrived.forwarded && !matches!(recipient, Recipient::Listener(_)) {
            return false;
        }
        self.strays.push(Stray {
            envelope: arrived.envelope,
            packet: arrived.packet.to_vec(),
            recipient,
        });
        true
    }

    pub(super) fn take_strays(&mut self) -> Vec<Stray> {
        std::mem::take(&mut self.strays)
    }

    /// Looks at the messages that the engine has received.
    pub(super) fn receive(&mut self, now: Instant, device: &mut Device) {
        while let Some(completion) = device.poll_completion(self.completions) {
            if completion.work.is_receive() {
                self.take(now, &completion);
                self.post_receive(device, completion.id);
            }
        }
    }

    /// Whether a connection failed and that is to be explained.
    pub(super) fn has_setbacks(&self) -> bool {
        self.setbacks.as_ref().is_some_and(|it| !it.is_empty())
    }

    pub(super) fn take_setbacks(&mut self) -> impl Iterator<Item = Setback> {
        let setbacks = self.setbacks.as_mut().map(std::mem::take);
        setbacks.unwrap_or_default().into_iter()
    }

    fn note_setback(&mut self, event: &cm::Event) {
        if let Some(setbacks) = &mut self.setbacks
            && Setback::is(&event.kind)
        {
            setbacks.push(Setback {
                kind: event.kind.clone(),
                local: self.manager.local_address(event.id),
                peer: self.manager.peer_address(event.id),
            });
        }
    }

    /// When the manager must be called again.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.manager.poll_timeout()
    }

    /// Whether the manager has something to say.
    pub(super) fn has_work(&self) -> bool {
        self.manager.has_output()
    }

    /// Does what the manager asks for, tells what happened, and hands messages to the engine as far
    /// as there is room.
    pub(super) fn serve(&mut self, now: Instant, device: &mut Device, ports: &mut Ports) {
        while let Some(instruction) = self.manager.poll_instruction() {
            self.perform(&instruction, device, ports);
        }
        while let Some(event) = self.manager.poll_event() {
            self.tell(now, event);
        }
        for _ in 0..SENDS {
            let Some(message) = self.manager.poll_transmit() else {
                return;
            };
            self.post(device, &message);
        }
    }

    pub(super) fn is_ours(&self, recipient: Recipient) -> bool {
        match recipient {
            Recipient::Identifier(id) => match Slice::of_communication(id.value()) {
                // An id that nobody can have chosen is ours to refuse.
                None => true,
                owner => owner == self.slice,
            },
            Recipient::Listener(service) => self.manager.is_listening(service),
            Recipient::Everyone => false,
        }
    }

    fn take(&mut self, now: Instant, completion: &Completion) {
        let slot = completion.id as usize * SLOT;
        let mut header = [0; grh::LENGTH];
        let mut message = vec![0; (completion.length as usize).saturating_sub(grh::LENGTH)];
        self.buffer.read(slot, &mut header);
        self.buffer.read(slot + grh::LENGTH, &mut message);
        let Some(route) = grh::route(&header) else {
            return;
        };
        let (Some(source), Some(destination)) = (route.source.ip(), route.destination.ip()) else {
            return;
        };
        let arrival = cm::Arrival {
            source,
            destination,
        };
        self.manager.handle_datagram(now, arrival, &message);
    }

    fn perform(&mut self, instruction: &Instruction, device: &mut Device, ports: &mut Ports) {
        match *instruction {
            Instruction::ResolveAddress { id, source, .. } => {
                // Who asks has looked for the way already: that is how he found this device.
                self.manager.address_resolved(id, Ok(source.ip()));
            }
            Instruction::ResolveRoute { id, .. } => {
                let route = cm::Route::new(self.mtu);
                self.manager.route_resolved(id, Ok(route));
            }
            Instruction::JoinMulticast { id, group, .. } => {
                let joined = ports.join(Gid::from(group));
                let result = joined.map_err(|_| Failure::Os(NO_DEVICE));
                self.manager.multicast_joined(id, group, result);
            }
            Instruction::LeaveMulticast { group, .. } => ports.leave(Gid::from(group)),
            Instruction::BreakQueuePair { qpn, .. } => {
                // Its owner may have destroyed it: then there is nothing to break.
                let _ = device.break_queue_pair(qpn);
            }
        }
    }

    fn tell(&mut self, now: Instant, event: cm::Event) {
        self.note_setback(&event);
        let listener = match event.kind {
            EventKind::ConnectRequest { listener, .. } => Some(listener),
            _ => None,
        };
        let Some(watcher) = self.watchers.get(&listener.unwrap_or(event.id)) else {
            return;
        };
        let mut watcher = watcher.clone();
        let from = watcher.token;
        let ends = matches!(event.kind, EventKind::Disconnected { .. });
        if ends && watcher.queue.parts_at_once() {
            // It was there a moment ago.
            let _ = self.manager.disconnect(now, event.id);
        }
        if listener.is_some() {
            watcher.token = crate::rdma_cm::queue::next_token();
            self.watchers.insert(event.id, watcher.clone());
        }
        watcher.queue.push(Notice {
            token: watcher.token,
            listener: listener.map(|_| from),
            id: Some(event.id),
            context: watcher.context,
            kind: event.kind,
        });
    }

    fn post(&self, device: &mut Device, message: &cm::Transmit) {
        let source = Gid::from(message.source);
        let Some(index) = device.gids().iter().position(|gid| *gid == source) else {
            return;
        };
        let destination = Destination {
            address: Address {
                traffic_class: message.traffic_class,
                hop_limit: message.hop_limit,
                ..Address::new(Gid::from(message.destination), index as u8)
            },
            queue_pair: Qpn::GSI,
            queue_key: QueueKey::GSI,
        };
        let request = SendRequest::new(0, Work::Send)
            .inline(&*message.datagram)
            .flags(SendFlags::empty())
            .to(destination);
        // What can't be sent is as good as lost on the way: the manager repeats it.
        let _ = device.post_send(Qpn::GSI, request);
    }

    fn post_receive(&self, device: &mut Device, slot: u64) {
        let segment = Segment {
            address: self.registration.address + slot * SLOT as u64,
            length: SLOT as u32,
            key: self.registration.local_key,
        };
        let posted = device.post_receive(Qpn::GSI, ReceiveRequest::new(slot, [segment]));
        posted.expect("as many receives as slots");
    }
}

fn homes(device: &net::interface::Device) -> Vec<(IpAddr, InterfaceId)> {
    let entries = device.gids.iter();
    entries
        .map(|entry| (entry.address, entry.interface.clone()))
        .collect()
}

/// `ENODEV`: no interface of ours takes part in the group.
const NO_DEVICE: i32 = 19;

/// Takes queue pair 1 through its states, which need nothing but a sequence number.
fn bring_up(device: &mut Device) {
    let steps = [
        Attributes {
            state: Some(State::Initialized),
            port: Some(1),
            partition_index: Some(0),
            queue_key: Some(QueueKey::GSI),
            ..Attributes::default()
        },
        Attributes {
            state: Some(State::ReadyToReceive),
            ..Attributes::default()
        },
        Attributes {
            state: Some(State::ReadyToSend),
            send_psn: Some(wire::Psn::new(0)),
            ..Attributes::default()
        },
    ];
    for step in steps {
        let done = device.modify(Qpn::GSI, &step);
        done.expect("the attributes that each step needs");
    }
}

/// Whom a packet to queue pair 1 is for; nothing if it is no message of the connection manager.
fn recipient(packet: &[u8]) -> Option<Recipient> {
    if !is_management(packet) {
        return None;
    }
    let packet = Packet::parse(packet).ok()?;
    let datagram = <&[u8; mad::LENGTH]>::try_from(packet.payload).ok()?;
    let (_, message) = Message::parse(datagram).ok()?;
    Some(cm::owner_of(&message))
}

/// Whether a packet is for queue pair 1: a glance at its BTH, for every packet that arrives.
pub(super) fn is_management(packet: &[u8]) -> bool {
    packet.get(5..8) == Some(&[0, 0, 1])
}

//! The device, connection manager and queue pair 1 of one process.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Instant;

use cm::{Instruction, Manager, Recipient};
use engine::{Device, Event, Now, ObjectError, SharedRoom, Transmit};
use wire::extension::{self, Kind};
use wire::{IcrcChecker, Route, mad};

use crate::general_services::{GeneralServices, SENDS};
use crate::pending_requests::{Message, Pending};
use crate::recipient::{self, Owner, is_management};

/// The configuration of a [`Host`].
pub struct Config {
    /// The device's configuration.
    pub device: engine::Config,
    /// The connection manager's configuration.
    pub manager: cm::Config,
    /// Whether other processes may share the addresses, so that messages may belong to them.
    pub shares_addresses: bool,
    /// The objects of another device, if this one shares them.
    pub objects: Option<Arc<engine::SharedObjects>>,
}

/// A device with its connection manager and queue pair 1.
pub struct Host {
    device: Device,
    manager: Manager,
    general_services: GeneralServices,
    pending: Pending,
    checker: IcrcChecker,
    /// The communication IDs of this process, if other processes may share the addresses.
    id_range: Option<cm::IdRange>,
    /// The hop limit of management datagrams that no exchange determines.
    hop_limit: u8,
}

impl Host {
    /// Creates the device and the manager, and moves queue pair 1 to Ready to Send.
    pub fn new(mut config: Config) -> Result<Self, ObjectError> {
        config.manager.max_mtu = config.device.active_mtu;
        let hop_limit = config.manager.hop_limit;
        let id_range = config.shares_addresses.then_some(config.manager.id_range);
        let mut device = match config.objects {
            Some(objects) => Device::sharing(config.device, objects),
            None => Device::new(config.device),
        };
        let general_services = GeneralServices::open(&mut device)?;
        device.hide_objects(device.object_counts());
        Ok(Self {
            device,
            manager: Manager::new(config.manager),
            general_services,
            pending: Pending::default(),
            checker: IcrcChecker::new(),
            id_range,
            hop_limit,
        })
    }

    /// The device, for changes.
    pub fn device_mut(&mut self) -> &mut Device {
        &mut self.device
    }

    /// The device, read-only.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The connection manager.
    pub fn manager(&mut self) -> &mut Manager {
        &mut self.manager
    }

    /// How many ids of the connection manager the program has.
    #[must_use]
    pub fn connection_id_count(&self) -> usize {
        self.manager.id_count()
    }

    /// The counters of the connection manager.
    #[must_use]
    pub fn connection_counters(&self) -> &cm::Counters {
        self.manager.counters()
    }

    /// The device and the connection manager, to borrow both at once.
    pub fn parts(&mut self) -> (&mut Device, &mut Manager) {
        (&mut self.device, &mut self.manager)
    }

    /// Keeps a connection manager message that another process may own.
    /// [`poll_lookup`](Self::poll_lookup) returns it later. Returns false if the packet is for this
    /// process.
    ///
    /// A look-up costs more than a checksum, so a packet with a wrong ICRC is not looked up. The
    /// device drops and counts it.
    ///
    /// A message that another process forwarded (`forwarded`) was looked up there. Only a request
    /// is looked up again: the process that reserved its service may not listen yet.
    pub fn hold_for_lookup(&mut self, route: &Route, packet: &[u8], forwarded: bool) -> bool {
        let recipient = match recipient::recipient(packet) {
            Some(recipient) if !self.is_ours(recipient) => recipient,
            _ => return false,
        };
        if forwarded && !matches!(recipient, Recipient::Listener(_)) {
            return false;
        }
        if self.checker.check(&route.flow, packet).is_err() {
            return false;
        }
        self.pending.add(Message::new(*route, packet, recipient));
        true
    }

    /// The next message whose owner the caller must look up. The caller answers with
    /// [`finish_lookup`](Self::finish_lookup).
    pub fn poll_lookup(&mut self, now: Instant) -> Option<Message> {
        self.pending.poll(now)
    }

    /// Reports the owner of a message. Returns the message if this host must handle it now.
    #[must_use]
    pub fn finish_lookup(
        &mut self,
        now: Instant,
        message: Message,
        owner: Owner,
    ) -> Option<Message> {
        match owner {
            Owner::Elsewhere => None,
            Owner::Here => Some(message),
            Owner::None if matches!(message.recipient, Recipient::Listener(_)) => {
                self.pending.wait(now, message).err()
            }
            Owner::None => Some(message),
        }
    }

    /// Whether this process must handle a message.
    #[must_use]
    pub fn is_ours(&self, recipient: Recipient) -> bool {
        let Some(id_range) = self.id_range else {
            return true;
        };
        match recipient {
            Recipient::CommunicationId(id) => id_range.contains(id),
            Recipient::Listener(service) => self.manager.is_listening(service),
            Recipient::Everyone => false,
        }
    }

    /// Handles a packet that is for this process.
    pub fn handle_datagram(&mut self, now: Instant, route: &Route, packet: &[u8]) {
        self.device.handle_datagram(now, route, packet);
        if is_management(packet) {
            self.read_messages(now);
        }
    }

    /// Handles a packet that has not left the machine's memory, and has no ICRC.
    pub fn handle_without_icrc(&mut self, now: Instant, route: &Route, packet: &[u8]) {
        self.device.handle_without_icrc(now, route, packet);
        if is_management(packet) {
            self.read_messages(now);
        }
    }

    /// Handles a packet that is in memory which another process can change. `head` is a copy of its first bytes: all
    /// headers, or more. It is not one of the connection manager's.
    pub fn handle_shared(&mut self, now: Instant, route: &Route, head: &[u8], packet: &[AtomicU8]) {
        self.device.handle_shared(now, route, head, packet);
    }

    /// Runs the timers that are due. An early or repeated call has no effect.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.device.poll_timeout().is_some_and(|at| at <= now) {
            self.device.handle_timeout(now);
        }
        if self.manager.poll_timeout().is_some_and(|at| at <= now) {
            self.manager.handle_timeout(now);
        }
    }

    /// When the next timer is due. Call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_lookup`](Self::poll_lookup) then.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        [
            self.device.poll_timeout(),
            self.manager.poll_timeout(),
            self.pending.next_lookup(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The next packets to send: first those of the device, then those of the connection manager.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        self.poll_transmit_shared(&now.into(), buffer, &mut ())
    }

    /// As [`poll_transmit`](Self::poll_transmit), but builds long packets in shared memory where there is room. The time is
    /// read only if something depends on it.
    pub fn poll_transmit_shared(
        &mut self,
        now: &Now,
        buffer: &mut Vec<u8>,
        shared_room: &mut dyn SharedRoom,
    ) -> Option<Transmit> {
        loop {
            let sent = (self.device).poll_transmit_shared(now, buffer, shared_room);
            if let Some(transmit) = sent {
                return Some(transmit);
            }
            // Messages that can't leave stay with the manager, and those for which this call has done too much already.
            if shared_room.is_closed() || self.device.has_more_to_deliver() {
                return None;
            }
            let sent = self.send_messages();
            if sent + self.ask_peers(SENDS as usize - sent) == 0 {
                return None;
            }
        }
    }

    /// The next event of the device.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.device.poll_event()?;
        if let Event::FirstPacket(number) = event {
            self.manager.notify_established(number);
        }
        Some(event)
    }

    /// The next event of the connection manager.
    pub fn poll_connection_event(&mut self) -> Option<cm::Event> {
        self.manager.poll_event()
    }

    /// The next instruction of the connection manager to the caller. Instructions that concern only
    /// the device are executed here. A queue pair that this device does not have was destroyed, or belongs to another
    /// device that shares its objects.
    pub fn poll_instruction(&mut self) -> Option<Instruction> {
        while let Some(instruction) = self.manager.poll_instruction() {
            let Instruction::MoveToError { qpn, .. } = instruction else {
                return Some(instruction);
            };
            if self.device.queue_pair(qpn).is_none() {
                return Some(instruction);
            }
            // From every other state this is a legal transition.
            let _ = self.device.move_to_error(qpn);
        }
        None
    }

    /// How many messages were dropped because too many messages waited for a look-up.
    #[must_use]
    pub fn dropped_messages(&self) -> u64 {
        self.pending.dropped
    }

    fn read_messages(&mut self, now: Instant) {
        while let Some(received) = self.general_services.receive(&mut self.device) {
            let datagram = <&[u8; mad::LENGTH]>::try_from(&*received.datagram).ok();
            if let Some(message) = datagram.and_then(extension::Message::parse) {
                self.handle_extension(message, received.addresses);
                continue;
            }
            self.manager
                .handle_datagram(now, received.addresses, &received.datagram);
        }
    }

    /// Posts messages to the device, at most as many as queue pair 1 takes. Returns how many.
    fn send_messages(&mut self) -> usize {
        let messages = std::iter::from_fn(|| self.manager.poll_transmit());
        let mut sent = 0;
        for message in messages.take(SENDS as usize) {
            self.general_services.send(&mut self.device, &message);
            sent += 1;
        }
        sent
    }

    /// Asks peers what the device wants to know of them, at most this many. Returns how many questions it posted.
    fn ask_peers(&mut self, limit: usize) -> usize {
        let mut asked = 0;
        while asked < limit
            && let Some(question) = self.device.poll_question()
        {
            let id_range = self.id_range.unwrap_or(cm::IdRange::ALL);
            let addresses = cm::Addresses {
                source: question.source,
                destination: question.destination,
            };
            let transaction = recipient::transaction(question.nonce, id_range);
            self.send_extension(Kind::Question, transaction, addresses);
            asked += 1;
        }
        asked
    }

    /// Answers a question, or tells the device an answer.
    fn handle_extension(&mut self, message: extension::Message, from: cm::Addresses) {
        match message.kind {
            Kind::Question => {
                let back = cm::Addresses {
                    source: from.destination,
                    destination: from.source,
                };
                let held_packets = self.device.understands_held_lists();
                self.send_extension(Kind::Answer { held_packets }, message.transaction, back);
            }
            Kind::Answer { held_packets } => {
                let nonce = recipient::nonce(message.transaction);
                self.device.note_answer(from.source, nonce, held_packets);
            }
        }
    }

    fn send_extension(&mut self, kind: Kind, transaction: u64, addresses: cm::Addresses) {
        let message = extension::Message { kind, transaction };
        let message = cm::Transmit {
            source: addresses.source,
            destination: addresses.destination,
            traffic_class: 0,
            hop_limit: self.hop_limit,
            datagram: Box::new(message.emit()),
        };
        self.general_services.send(&mut self.device, &message);
    }
}

//! Receiving, forwarding and sending packets of a member.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use wire::{IcrcChecker, Qpn, Route, destination_queue_pair, shared_bytes, split_acknowledgement};

use super::mailbox::{HEADER_LENGTH, Header, MAX_MESSAGE, MailboxMessage, decode, encode, parse};
use super::member::{Member, owns};
use super::number_block::NumberBlock;
use super::outbox::QueuedMessage;
use super::probe::Probe;
use super::shortcut::{Outcome, RingMessage, Shortcuts};
use crate::socket::{Batch, Inbox, SendError};

/// Every how many calls of [`Member::receive`] the mailbox is polled. It is nearly always empty, and polling
/// is a system call.
const MAILBOX_POLL_INTERVAL: u32 = 16;

/// How many messages are taken from the mailbox at a time.
const MAILBOX_BATCH: usize = 32;

/// The maximum number of datagrams in a socket, even of the smallest.
const MAX_SOCKET_DATAGRAMS: usize = 1 << 14;

/// How many bytes of a packet in a ring are copied: at least its headers.
const COPIED_HEAD: usize = 64;

/// A packet that has arrived.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedPacket<'p> {
    /// Addresses and IP fields of the packet.
    pub route: Route,
    /// Its bytes, from the BTH on. Of one in shared memory only its headers, and perhaps a part of its payload.
    pub packet: &'p [u8],
    /// The whole packet, if it is in memory that another process may change at any time.
    pub shared: Option<&'p [AtomicU8]>,
    /// Whether it has an ICRC. One that has not left the machine's memory has none.
    pub has_icrc: bool,
    /// Whether another member forwarded it.
    pub forwarded: bool,
}

impl<'p> ReceivedPacket<'p> {
    /// One that came through a socket.
    pub fn of_batch(batch: &Batch<'_>, packet: &'p [u8]) -> Self {
        Self {
            route: batch.route,
            packet,
            shared: None,
            has_icrc: batch.has_icrc,
            forwarded: false,
        }
    }
}

impl Member {
    /// Allows shortcuts: packets through shared memory, to and from other processes of this user and machine that
    /// allow them, too. Nothing is sent that way before they are [enabled](Self::enable_shortcuts).
    pub fn allow_shortcuts(&mut self) {
        self.shortcuts = Some(Box::new(Shortcuts::new(self.process)));
    }

    /// Sets whether packets are sent through shared memory, if that is allowed. The order of packets stays the
    /// same.
    pub fn enable_shortcuts(&mut self, enabled: bool) {
        if let Some(shortcuts) = &mut self.shortcuts {
            shortcuts.set_enabled(enabled);
        }
    }

    /// Whether this member has sent packets to another process of this machine that could use shortcuts.
    pub fn has_local_peer(&self) -> bool {
        let shortcuts = self.shortcuts.as_ref();
        shortcuts.is_some_and(|shortcuts| shortcuts.has_local_peer())
    }

    /// Whether packets to a queue pair go through shared memory.
    pub fn sends_through_memory(&self, address: IpAddr, number: Qpn) -> bool {
        let shortcuts = self.shortcuts.as_ref();
        shortcuts.is_some_and(|shortcuts| shortcuts.has_ring((address, number)))
    }

    /// Sends packets of `segment_size` bytes each; see [`Sender::send`](crate::socket::Sender::send). If they have
    /// no ICRC, it is filled in before they leave the machine's memory.
    pub fn send(
        &mut self,
        now: Instant,
        route: &Route,
        segment_size: usize,
        has_icrc: bool,
        bytes: &mut [u8],
    ) -> Result<(), SendError> {
        self.tell_time(now);
        let header = Header {
            route: *route,
            segment_size,
            has_icrc,
        };
        match self.send_by_shortcut(header, bytes) {
            Outcome::Sent | Outcome::Dropped => Ok(()),
            Outcome::Full => Err(SendError::RingFull),
            Outcome::NoRing => {
                if !has_icrc {
                    self.generator.fill(&route.flow, segment_size, bytes);
                }
                self.sender.send(route, segment_size, bytes)
            }
        }
    }

    fn send_by_shortcut(&mut self, header: Header, bytes: &[u8]) -> Outcome {
        let Some(shortcuts) = &mut self.shortcuts else {
            return Outcome::NoRing;
        };
        let number =
            destination_queue_pair(bytes).filter(|number| !NumberBlock::is_shared(*number));
        let Some(number) = number else {
            return Outcome::NoRing;
        };
        let address = header.route.flow.destination;
        let to_us = address == self.address && owns(self.block, &self.given, number);
        if to_us || HEADER_LENGTH + bytes.len() > MAX_MESSAGE {
            return Outcome::NoRing;
        }
        let encoded = ring_header(header);
        let (registry, mailbox) = (&self.registry, &self.mailbox);
        let sent = shortcuts.send((address, number), &encoded, bytes, registry, mailbox);
        let packets = bytes.len().div_ceil(header.segment_size) as u64;
        match sent {
            Outcome::Sent => self.counters.by_shortcut += packets,
            Outcome::Dropped => self.counters.dropped_at_full_ring += packets,
            Outcome::Full | Outcome::NoRing => {}
        }
        sent
    }

    /// Room for at most `bytes` bytes of packets in the memory of the process that owns a queue pair; `None` if there is
    /// none. Packets that are built there are sent by [`commit`](Self::commit).
    pub fn reserve(
        &mut self,
        now: Instant,
        address: IpAddr,
        number: Qpn,
        bytes: usize,
    ) -> Option<&[AtomicU8]> {
        self.tell_time(now);
        let to_us = address == self.address && self.owns(number);
        if to_us || NumberBlock::is_shared(number) {
            return None;
        }
        self.shortcuts.as_mut()?.reserve((address, number), bytes)
    }

    /// Sends packets of `segment_size` bytes each, without ICRC, that were built in the room that was
    /// [reserved](Self::reserve) last.
    pub fn commit(&mut self, route: &Route, number: Qpn, segment_size: usize, bytes: usize) {
        let Some(shortcuts) = &mut self.shortcuts else {
            return;
        };
        let header = ring_header(Header {
            route: *route,
            segment_size,
            has_icrc: false,
        });
        let destination = (route.flow.destination, number);
        shortcuts.commit(destination, &header, bytes, &self.mailbox);
        self.counters.by_shortcut += bytes.div_ceil(segment_size) as u64;
    }

    /// Receives packets, and forwards those of other members. Never waits.
    ///
    /// `take` gets every packet for this member's queue pairs, for queue pair 1 and for multicast, and packets
    /// that are too short to tell. Returns how many it got.
    pub fn receive(
        &mut self,
        now: Instant,
        inbox: &mut Inbox,
        mut take: impl FnMut(ReceivedPacket<'_>),
    ) -> io::Result<usize> {
        self.tell_time(now);
        let mut taken = self.receive_from_socket(inbox, &mut take)?.packets;
        taken += self.receive_by_shortcut(inbox, &mut take)?;
        if !self.outbox.is_empty() {
            self.empty_outbox();
        }
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(MAILBOX_POLL_INTERVAL) {
            taken += self.empty_mailbox(inbox, usize::MAX, &mut take)?;
        }
        self.check_registry_after_strays(now);
        Ok(taken)
    }

    /// Makes the next [`receive`](Self::receive) poll the mailbox, which it otherwise does periodically.
    pub fn poll_mailbox_next(&mut self) {
        self.turn = MAILBOX_POLL_INTERVAL - 1;
    }

    /// As [`receive`](Self::receive), but polls only the shared-memory rings while packets arrive there, which
    /// is no system call. A thread that polls continuously must also call `receive` from time to time.
    pub fn poll_last_active(
        &mut self,
        now: Instant,
        inbox: &mut Inbox,
        mut take: impl FnMut(ReceivedPacket<'_>),
    ) -> io::Result<usize> {
        if self.has_shortcuts() {
            self.tell_time(now);
            self.receive_by_shortcut(inbox, &mut take)
        } else {
            self.receive(now, inbox, take)
        }
    }

    pub(super) fn tell_time(&mut self, now: Instant) {
        if let Some(shortcuts) = &mut self.shortcuts {
            shortcuts.tell_time(now);
        }
    }

    /// Whether other processes send to this member through shared memory.
    pub fn has_shortcuts(&self) -> bool {
        let shortcuts = self.shortcuts.as_ref();
        shortcuts.is_some_and(|shortcuts| shortcuts.has_sources())
    }

    /// How often something was read from one of the [descriptors](Self::fds), or an error. A thread that waits for
    /// them may have been woken by that.
    pub fn descriptor_reads(&self) -> u64 {
        self.descriptor_reads
    }

    /// Prepares to sleep on [`fds`](Self::fds). Returns whether there is already something to receive.
    pub fn prepare_sleep(&mut self) -> bool {
        let shortcuts = self.shortcuts.as_mut();
        shortcuts.is_some_and(|shortcuts| shortcuts.prepare_sleep())
    }

    /// Reverts [`prepare_sleep`](Self::prepare_sleep), because a thread stays awake and looks for what arrives.
    pub fn stay_awake(&mut self) {
        if let Some(shortcuts) = &mut self.shortcuts {
            shortcuts.stay_awake();
        }
    }

    /// Whether a thread may sleep on [`fds`](Self::fds): nothing waits in shared memory, and what arrives there next
    /// makes a descriptor readable. That happens once for each [`prepare_sleep`](Self::prepare_sleep), also for several
    /// threads that sleep: the first one that receives takes it from the others.
    pub fn may_sleep(&mut self) -> bool {
        let shortcuts = self.shortcuts.as_mut();
        shortcuts.is_none_or(|shortcuts| shortcuts.may_sleep())
    }

    pub(super) fn receive_from_socket(
        &mut self,
        inbox: &mut Inbox,
        take: &mut impl FnMut(ReceivedPacket<'_>),
    ) -> io::Result<Received> {
        let mut received = Received::default();
        let batches = self.receiver.receive(inbox).inspect_err(|_| {
            // The error made the descriptor readable, and is gone.
            self.descriptor_reads += 1;
        })?;
        self.descriptor_reads += batches.reads() as u64;
        for batch in batches {
            if received.datagrams == 0 {
                received.packets += self.receive_older_by_shortcut(take);
            }
            received.datagrams += 1;
            received.packets += self.sort_out(&batch, take);
        }
        Ok(received)
    }

    /// Receives what other processes sent through shared memory before they sent packets to the socket.
    fn receive_older_by_shortcut(&mut self, take: &mut impl FnMut(ReceivedPacket<'_>)) -> usize {
        let Some(mut shortcuts) = self.shortcuts.take_if(|it| it.has_sources()) else {
            return 0;
        };
        let mut taken = 0;
        shortcuts.receive_older(|message| taken += self.take_message(message, take));
        self.shortcuts = Some(shortcuts);
        taken
    }

    /// Receives everything that is in the socket now. Returns how many packets are for this member.
    fn empty_socket(
        &mut self,
        inbox: &mut Inbox,
        take: &mut impl FnMut(ReceivedPacket<'_>),
    ) -> io::Result<usize> {
        let mut taken = 0;
        // Bounded, so that a flood cannot keep this loop running.
        for _ in 0..MAX_SOCKET_DATAGRAMS {
            let received = self.receive_from_socket(inbox, take)?;
            taken += received.packets;
            if received.datagrams == 0 {
                break;
            }
        }
        Ok(taken)
    }

    fn receive_by_shortcut(
        &mut self,
        inbox: &mut Inbox,
        take: &mut impl FnMut(ReceivedPacket<'_>),
    ) -> io::Result<usize> {
        let Some(mut shortcuts) = self.shortcuts.take() else {
            return Ok(0);
        };
        let mut taken = 0;
        if shortcuts.has_new_source() {
            // A socket that fails has no older packets.
            taken += self.empty_socket(inbox, take).unwrap_or(0);
        }
        shortcuts.receive(|message| taken += self.take_message(message, take));
        let wakers = shortcuts.take_wakers();
        self.shortcuts = Some(shortcuts);
        if wakers > 0 {
            taken += self.empty_mailbox(inbox, wakers, take)?;
        }
        Ok(taken)
    }

    /// Handles a message of a ring.
    fn take_message(
        &mut self,
        message: RingMessage<'_>,
        take: &mut impl FnMut(ReceivedPacket<'_>),
    ) -> usize {
        match message {
            RingMessage::Copied(message) => {
                decode(message).map_or(0, |batch| self.sort_out(&batch, take))
            }
            RingMessage::InPlace(message) => self.take_in_place(message, take),
        }
    }

    /// Handles packets that stay in the ring. Those that are not for this member are copied.
    fn take_in_place(
        &mut self,
        message: &[AtomicU8],
        take: &mut impl FnMut(ReceivedPacket<'_>),
    ) -> usize {
        let Some((header, packets)) = message.split_first_chunk::<HEADER_LENGTH>() else {
            return 0;
        };
        let mut encoded = [0; HEADER_LENGTH];
        shared_bytes::load(header, &mut encoded);
        let header = parse(&encoded);
        let size = header.segment_size;
        let split = split_acknowledgement(packets, size, |byte| byte.load(Ordering::Relaxed));
        let (first, rest) = split.unwrap_or((&[], packets));
        let mut taken = 0;
        for shared in first.chunks(size).chain(rest.chunks(size)) {
            let mut head = [0; COPIED_HEAD];
            let head = &mut head[..COPIED_HEAD.min(shared.len())];
            shared_bytes::load(&shared[..head.len()], head);
            let destination = destination_queue_pair(head);
            let is_ours = destination.is_some_and(|number| self.owns(number));
            if !is_ours || header.has_icrc {
                taken += self.sort_out_copy(&header, shared, take);
                continue;
            }
            take(ReceivedPacket {
                route: header.route,
                packet: head,
                shared: Some(shared),
                has_icrc: false,
                forwarded: false,
            });
            taken += 1;
        }
        taken
    }

    #[cold]
    fn sort_out_copy(
        &mut self,
        header: &Header,
        shared: &[AtomicU8],
        take: &mut impl FnMut(ReceivedPacket<'_>),
    ) -> usize {
        let mut bytes = vec![0; shared.len()];
        shared_bytes::load(shared, &mut bytes);
        let batch = Batch {
            route: header.route,
            segment_size: bytes.len(),
            has_icrc: header.has_icrc,
            bytes: &bytes,
        };
        self.sort_out(&batch, take)
    }

    /// Forwards a packet to the member that owns a block, which handles it as if it had just arrived.
    ///
    /// A packet that does not fit into the mailbox is queued. If the member has died, the packet is lost and
    /// counted.
    pub fn forward_to(&mut self, owner: NumberBlock, route: &Route, packet: &[u8]) {
        let batch = Batch {
            route: *route,
            segment_size: packet.len(),
            has_icrc: true,
            bytes: packet,
        };
        self.send_to_mailbox(owner, 1, &batch);
    }

    /// Forwards a packet to all other members, up to a number of copies per second, because anyone can send
    /// such packets.
    pub fn forward_to_others(&mut self, now: Instant, route: &Route, packet: &[u8]) {
        let others = self.others().unwrap_or_default();
        let copies = self.copies.take(now, others.len());
        for owner in others.into_iter().take(copies) {
            self.forward_to(owner, route, packet);
        }
    }

    /// Handles this member's packets of a batch, and forwards the rest.
    fn sort_out(&mut self, batch: &Batch<'_>, take: &mut impl FnMut(ReceivedPacket<'_>)) -> usize {
        let ours = batch.split_acknowledgement();
        let ours = ours.filter(|[it, _]| matches!(self.classify(it.bytes), PacketClass::Ours));
        match ours {
            Some([acknowledgement, requests]) => {
                self.sort_out_in_order(&acknowledgement, take)
                    + self.sort_out_in_order(&requests, take)
            }
            None => self.sort_out_in_order(batch, take),
        }
    }

    fn sort_out_in_order(
        &mut self,
        batch: &Batch<'_>,
        take: &mut impl FnMut(ReceivedPacket<'_>),
    ) -> usize {
        let mut taken = 0;
        let mut rest = *batch;
        while let Some(packet) = rest.packets().next() {
            let length = match self.classify(packet) {
                PacketClass::Ours => {
                    take(ReceivedPacket::of_batch(batch, packet));
                    taken += 1;
                    packet.len()
                }
                PacketClass::Probe(probe) => {
                    self.note_probe(probe);
                    packet.len()
                }
                // Only the first packet of a batch was steered.
                PacketClass::Stray(number) => match self.owner_of_intact(number, &rest) {
                    Some(owner) => {
                        self.forward_leading(owner, &rest, rest.bytes.len() == batch.bytes.len())
                    }
                    None => {
                        self.counters.strays_lost += 1;
                        packet.len()
                    }
                },
            };
            rest.bytes = &rest.bytes[length..];
        }
        taken
    }

    /// The owner of the first packet of a batch; `None` if its ICRC is wrong.
    fn owner_of_intact(&mut self, number: Qpn, batch: &Batch<'_>) -> Option<NumberBlock> {
        let packet = batch.packets().next()?;
        let owner = is_intact(&mut self.checker, batch, packet).then(|| self.owner_of(number));
        owner.flatten().filter(|owner| *owner != self.block)
    }

    fn classify(&self, packet: &[u8]) -> PacketClass {
        classify(packet, self.block, &self.given)
    }

    /// Forwards the leading packets of a batch that have the same owner. Returns how many bytes.
    fn forward_leading(&mut self, owner: NumberBlock, batch: &Batch<'_>, steered: bool) -> usize {
        let (block, given, checker) = (self.block, &self.given, &mut self.checker);
        let run = batch.packets().take_while(|packet| {
            matches!(classify(packet, block, given), PacketClass::Stray(it) if owner.contains(it))
                && is_intact(checker, batch, packet)
        });
        let (packets, length) = run.fold((0, 0), |(count, bytes), packet| {
            (count + 1, bytes + packet.len())
        });
        let bytes = &batch.bytes[..length];
        let lost = self.send_to_mailbox(owner, packets, &Batch { bytes, ..*batch });
        // Packets for a part that was given away arrive here for a while, as they should.
        let is_expected = self.block.encloses(owner);
        if steered && !is_expected || lost {
            self.repair.suspect(owner);
        }
        length
    }

    /// Sends packets to their owner's mailbox, or queues them while it is full. Returns whether something was
    /// lost because an owner has died.
    fn send_to_mailbox(&mut self, owner: NumberBlock, packets: u64, batch: &Batch<'_>) -> bool {
        let kept = self.outbox.push(QueuedMessage {
            owner,
            packets,
            bytes: encode(batch),
        });
        self.counters.strays_lost += kept.lost;
        self.empty_outbox()
    }

    /// Delivers queued messages to other members. Returns whether something was lost because an owner has died.
    pub(super) fn empty_outbox(&mut self) -> bool {
        let outcome = self.outbox.flush(|message| {
            let path = self.registry.mailbox(message.owner);
            self.mailbox.send(&path, &message.bytes)
        });
        self.counters.strays_forwarded += outcome.delivered;
        self.counters.strays_lost += outcome.lost;
        outcome.lost > 0
    }

    /// Receives the messages in the mailbox up to this number of wake-ups. Looking for more behind the last one that is
    /// expected would be a system call for each packet. If there is more, it makes the descriptor readable.
    fn empty_mailbox(
        &mut self,
        inbox: &mut Inbox,
        mut wake_ups: usize,
        take: &mut impl FnMut(ReceivedPacket<'_>),
    ) -> io::Result<usize> {
        let mut taken = 0;
        for _ in 0..MAILBOX_BATCH {
            if wake_ups == 0 {
                break;
            }
            let message = self.mailbox.next();
            self.descriptor_reads += u64::from(!matches!(message, Ok(None)));
            match message? {
                Some(MailboxMessage::Packets(batch)) => {
                    let (route, segment_size) = (batch.route, batch.segment_size);
                    let has_icrc = batch.has_icrc;
                    let bytes = batch.bytes.to_vec();
                    // Packets that the same sender sent earlier are in the socket already.
                    taken += self.empty_socket(inbox, take).unwrap_or(0);
                    let batch = Batch {
                        route,
                        segment_size,
                        has_icrc,
                        bytes: &bytes,
                    };
                    taken += self.take_forwarded(&batch, take);
                }
                Some(MailboxMessage::RingOffer(offer)) => {
                    if let Some(shortcuts) = &mut self.shortcuts {
                        shortcuts.accept(&offer);
                    }
                }
                Some(MailboxMessage::WakeUp) => wake_ups -= 1,
                Some(MailboxMessage::Inspect) => {
                    // If this fails, the next inspection repeats it.
                    let _ = self.inspect(Instant::now());
                }
                None => break,
            }
        }
        Ok(taken)
    }

    /// A forwarded packet for another member was sent with a stale table. Forwarding it again could loop.
    fn take_forwarded(
        &mut self,
        batch: &Batch<'_>,
        take: &mut impl FnMut(ReceivedPacket<'_>),
    ) -> usize {
        let mut taken = 0;
        for packet in batch.packets_to_handle() {
            self.counters.forwarded_to_us += 1;
            if matches!(self.classify(packet), PacketClass::Ours) {
                take(ReceivedPacket {
                    forwarded: true,
                    ..ReceivedPacket::of_batch(batch, packet)
                });
                taken += 1;
            }
        }
        taken
    }
}

/// The result of one receive from the socket.
#[derive(Default)]
pub(super) struct Received {
    pub(super) datagrams: usize,
    /// How many of the packets in them were for this member.
    packets: usize,
}

/// The header of packets in a ring, as it arrives over the network.
fn ring_header(mut header: Header) -> [u8; HEADER_LENGTH] {
    if header.route.hop_limit == 0 {
        header.route.hop_limit = Route::DEFAULT_HOP_LIMIT;
    }
    header.encode()
}

/// Whether a packet arrived as it was sent. One that has not left the machine's memory has no ICRC.
fn is_intact(checker: &mut IcrcChecker, batch: &Batch<'_>, packet: &[u8]) -> bool {
    !batch.has_icrc || checker.check(&batch.route.flow, packet).is_ok()
}

/// What a packet is for this member.
enum PacketClass {
    Ours,
    Probe(Probe),
    /// For another member, or for no member.
    Stray(Qpn),
}

#[inline]
fn classify(packet: &[u8], own: NumberBlock, given: &[NumberBlock]) -> PacketClass {
    let Some(destination) = destination_queue_pair(packet) else {
        return PacketClass::Ours;
    };
    if owns(own, given, destination) {
        return PacketClass::Ours;
    }
    if NumberBlock::is_shared(destination) {
        return Probe::parse(packet).map_or(PacketClass::Ours, PacketClass::Probe);
    }
    PacketClass::Stray(destination)
}

#[cfg(test)]
mod tests {
    use wire::Opcode;

    use super::*;
    use crate::sharing::RuntimeDirectory;

    #[test]
    fn the_headers_of_every_packet_are_copied() {
        let opcodes = (0..=u8::MAX).filter_map(Opcode::from_byte);
        let longest = opcodes.map(Opcode::header_length).max();
        assert!(longest.unwrap() <= COPIED_HEAD);
    }

    #[test]
    fn a_packet_in_a_ring_has_the_hop_limit_of_its_sender() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let hop_limit = |sent| {
            let flow = wire::Flow {
                source: address,
                destination: address,
                source_port: 50_000,
                destination_port: wire::ROCE_PORT,
            };
            let route = Route {
                hop_limit: sent,
                ..Route::new(flow)
            };
            let header = Header {
                route,
                segment_size: 1,
                has_icrc: false,
            };
            parse(&ring_header(header)).route.hop_limit
        };
        assert_eq!([1, 255].map(hop_limit), [1, 255]);
        assert_eq!(
            hop_limit(0),
            Route::DEFAULT_HOP_LIMIT,
            "the sender has not chosen one"
        );
    }

    #[test]
    fn the_owner_of_a_stray_is_checked_later() {
        let [low, high, ..] = std::process::id().to_le_bytes();
        let address = IpAddr::from([127, 192 | high & 63, low, 41]);
        let path = std::env::temp_dir().join(format!("roci-stray-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&path).unwrap();
        let [mut member, owner] = [(); 2].map(|()| Member::join_in(&directory, address).unwrap());
        let batch = Batch {
            route: Route::new(member.sender.flow_to(address)),
            segment_size: 1,
            has_icrc: false,
            bytes: &[],
        };
        member.forward_leading(owner.block, &batch, false);
        assert_eq!(member.repair.suspect, None, "it was sent here on purpose");
        member.forward_leading(owner.block, &batch, true);
        assert_eq!(member.repair.suspect, Some(owner.block));
        drop((member, owner));
        std::fs::remove_dir_all(path).unwrap();
    }
}

//! Events for the crate `tracing`.
//!
//! A subscriber is code of the application and may use the device, so events that happen under a lane's lock are
//! kept until it is released ([`deferred_wakeups`]). They are emitted in order, on the same thread.

use std::net::IpAddr;

use engine::transmit::packets;
use engine::{AsyncEvent, Completion, Counters, Status, Transmit};
use net::sharing::ReceivedPacket;
use tracing::Level;
use wire::{Opcode, Packet};

use crate::waiting::deferred_wakeups::{self, Wake};

/// The target of packet events, which are many: a filter can leave them out.
const PACKET: &str = "rocinante::packet";

/// An event that is not emitted yet.
#[derive(Debug)]
pub(crate) enum Record {
    Sent(PacketRecord),
    Received(PacketRecord),
    Completion(Completion),
    Retransmission { packets: u64, timeouts: u64 },
    Async(AsyncEvent),
    Connection(cm::EventKind),
}

/// What identifies a packet.
#[derive(Debug)]
pub(crate) struct PacketRecord {
    opcode: Opcode,
    /// The queue pair in the BTH.
    destination: u32,
    psn: u32,
    length: usize,
    peer: IpAddr,
}

impl PacketRecord {
    fn of(packet: &Packet<'_>, peer: IpAddr) -> Self {
        Self {
            opcode: packet.opcode,
            destination: packet.destination.value(),
            psn: packet.psn.value(),
            length: packet.payload.len(),
            peer,
        }
    }
}

impl Record {
    fn emit(self) {
        match self {
            Self::Sent(packet) => packet_event("sent", &packet),
            Self::Received(packet) => packet_event("received", &packet),
            Self::Completion(completion) => completion_event(&completion),
            Self::Retransmission { packets, timeouts } => {
                tracing::debug!(target: "rocinante", packets, timeouts, "retransmission");
            }
            Self::Async(event) => {
                tracing::info!(target: "rocinante", ?event, "asynchronous event");
            }
            Self::Connection(kind) => {
                tracing::debug!(target: "rocinante", ?kind, "connection event");
            }
        }
    }
}

fn packet_event(direction: &'static str, packet: &PacketRecord) {
    let PacketRecord {
        opcode,
        destination,
        psn,
        length,
        peer,
    } = packet;
    tracing::trace!(
        target: PACKET, direction, ?opcode, queue_pair = destination, psn, length, %peer, "packet"
    );
}

fn completion_event(completion: &Completion) {
    let (id, queue_pair) = (completion.id, completion.queue_pair.value());
    let (status, work) = (completion.status, completion.work);
    if status == Status::Success {
        let length = completion.length;
        tracing::debug!(target: "rocinante", id, queue_pair, ?work, length, "completion");
    } else {
        tracing::warn!(target: "rocinante", id, queue_pair, ?status, "completion");
    }
}

/// The packets of one send.
pub(crate) fn sent(transmit: &Transmit, buffer: &[u8]) {
    if wants_packets() {
        for packet in packets(transmit, buffer) {
            let packet = Packet::parse(packet).ok();
            let record = packet.map(|it| PacketRecord::of(&it, transmit.route.flow.destination));
            defer(record.map(Record::Sent));
        }
    }
}

/// Whether packets are traced. They must then be built in memory of this process.
pub(crate) fn wants_packets() -> bool {
    tracing::enabled!(target: PACKET, Level::TRACE)
}

/// A packet that has arrived.
pub(crate) fn received(received: &ReceivedPacket<'_>) {
    if wants_packets() {
        let packet = match received.shared {
            Some(shared) => Packet::parse_shared(received.packet, shared),
            None => Packet::parse(received.packet),
        };
        let record = packet
            .ok()
            .map(|it| PacketRecord::of(&it, received.route.flow.source));
        defer(record.map(Record::Received));
    }
}

/// A completion that the application takes.
pub(crate) fn completion(completion: &Completion) {
    if tracing::enabled!(target: "rocinante", Level::WARN) {
        defer(Some(Record::Completion(*completion)));
    }
}

/// Compares the counters with those of the last call.
pub(crate) fn retransmissions(before: &mut Counters, now: &Counters) {
    let packets = now.retransmitted - before.retransmitted;
    let timeouts = now.timeouts - before.timeouts;
    if packets > 0 || timeouts > 0 {
        *before = *now;
        defer(Some(Record::Retransmission { packets, timeouts }));
    }
}

/// An asynchronous event of the device.
pub(crate) fn async_event(event: AsyncEvent) {
    defer(Some(Record::Async(event)));
}

/// An event of the connection manager.
pub(crate) fn connection_event(kind: &cm::EventKind) {
    if tracing::enabled!(target: "rocinante", Level::DEBUG) {
        defer(Some(Record::Connection(kind.clone())));
    }
}

fn defer(record: Option<Record>) {
    if let Some(record) = record {
        deferred_wakeups::wake(Wake::Subscriber(Box::new(|| record.emit())));
    }
}

//! Events for the crate `tracing`.
//!
//! A subscriber is code of the application and may use the device, so events that happen under a lane's lock are
//! kept until it is released ([`deferred_wakeups`]). They are emitted in order, on the same thread.

use std::net::IpAddr;

use engine::transmit::packets;
use engine::{AsyncEvent, Completion, Counters, Status, Transmit};
use tracing::Level;
use wire::{Opcode, Packet, Route};

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
    fn of(bytes: &[u8], peer: IpAddr) -> Option<Self> {
        let packet = Packet::parse(bytes).ok()?;
        Some(Self {
            opcode: packet.opcode,
            destination: packet.destination.value(),
            psn: packet.psn.value(),
            length: packet.payload.len(),
            peer,
        })
    }
}

impl Record {
    pub(crate) fn emit(self) {
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
    if tracing::enabled!(target: PACKET, Level::TRACE) {
        for packet in packets(transmit, buffer) {
            defer(PacketRecord::of(packet, transmit.route.flow.destination).map(Record::Sent));
        }
    }
}

/// A packet that has arrived.
pub(crate) fn received(route: &Route, packet: &[u8]) {
    if tracing::enabled!(target: PACKET, Level::TRACE) {
        defer(PacketRecord::of(packet, route.flow.source).map(Record::Received));
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
        deferred_wakeups::wake(Wake::Trace(record));
    }
}

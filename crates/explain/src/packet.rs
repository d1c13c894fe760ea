//! One packet. There may be millions of them, so it is small.

use std::num::NonZeroU32;
use std::time::Duration;

use bitflags::bitflags;
use serde::Serialize;
use wire::{Opcode, Psn, Qpn};

use crate::connection_end::Side;
use crate::typed_index::{ConnectionId, MessageId};

/// A packet of RoCEv2. Its headers are kept elsewhere, see [`Analysis::head`](crate::Analysis::head).
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// When it was captured, in nanoseconds since the first packet of the capture.
    pub time: u64,
    /// Its network delay in nanoseconds, if it was captured at both ends.
    pub flight: Option<NonZeroU32>,
    /// Its number in the file, counted from 1 as in Wireshark. Packets of one offloaded datagram share
    /// it.
    pub frame: u32,
    /// Its connection.
    pub connection: ConnectionId,
    /// The message that it is a part of, or that it answers.
    pub message: Option<MessageId>,
    /// The destination queue pair.
    pub destination: Qpn,
    /// Its PSN.
    pub psn: Psn,
    /// The position of its headers.
    pub(crate) head: u32,
    /// The length of its payload.
    pub length: u16,
    /// Its UDP source port.
    pub source_port: u16,
    /// Its opcode.
    pub opcode: Opcode,
    /// Which end of the connection sent it.
    pub from: Side,
    /// Its role in the connection.
    pub role: Role,
    /// Further properties.
    pub marks: Marks,
}

const _: () = assert!(size_of::<Packet>() <= 48, "there may be millions of them");

impl Packet {
    /// When it was captured, since the first packet of the capture.
    pub fn at(&self) -> Duration {
        Duration::from_nanos(self.time)
    }
}

/// The role of a packet in a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A request, or data of a message.
    Request,
    /// A response with requested data.
    Response,
    /// Acknowledges everything up to its PSN.
    Acknowledge,
    /// A NAK.
    Reject,
    /// An RNR NAK: no receive was posted.
    NotReady,
    /// A message of the connection manager.
    Manage,
    /// A congestion notification.
    Congestion,
}

bitflags! {
    /// Properties of a packet.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Marks: u16 {
        /// It was sent before.
        const RETRANSMITTED = 1;
        /// It did not arrive, as far as the capture shows.
        const LOST = 1 << 1;
        /// Its ICRC is wrong: the receiver drops it.
        const DAMAGED = 1 << 2;
        /// It is obsolete: its request or response was complete before.
        const NEEDLESS = 1 << 3;
        /// It answers something that is not in the capture.
        const STRAY = 1 << 4;
        /// It arrived out of order.
        const LATE = 1 << 5;
        /// It is truncated in the capture, so the ICRC can't be checked.
        const CUT = 1 << 6;
        /// It is in the capture twice, and listed once.
        const SEEN_TWICE = 1 << 7;
        /// It requests an acknowledgement.
        const ASKS = 1 << 8;
        /// It has a congestion mark.
        const CONGESTED = 1 << 9;
        /// It was captured at its sender.
        const LEFT_HERE = 1 << 10;
        /// It was captured at its receiver.
        const CAME_HERE = 1 << 11;
        /// A fault was injected into it on purpose. Its comment says which.
        const FAULTED = 1 << 12;
    }
}

impl Marks {
    /// The names of the marks for programs: lower case, joined by dashes.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(Marks, &str); 13] = [
            (Marks::RETRANSMITTED, "retransmitted"),
            (Marks::LOST, "lost"),
            (Marks::DAMAGED, "damaged"),
            (Marks::NEEDLESS, "needless"),
            (Marks::STRAY, "stray"),
            (Marks::LATE, "late"),
            (Marks::CUT, "cut"),
            (Marks::SEEN_TWICE, "seen-twice"),
            (Marks::ASKS, "asks"),
            (Marks::CONGESTED, "congested"),
            (Marks::LEFT_HERE, "left-here"),
            (Marks::CAME_HERE, "came-here"),
            (Marks::FAULTED, "faulted"),
        ];
        let set = NAMES
            .into_iter()
            .filter(move |(mark, _)| self.contains(*mark));
        set.map(|(_, name)| name)
    }
}

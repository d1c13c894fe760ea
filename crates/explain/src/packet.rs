//! One packet: what is kept of each of perhaps a million.

use std::num::NonZeroU32;
use std::time::Duration;

use bitflags::bitflags;
use serde::Serialize;
use wire::{Opcode, Psn, Qpn};

use crate::connection::Side;
use crate::id::{ConnectionId, MessageId};

/// A packet of RoCEv2. Its headers are kept elsewhere, see [`Story::head`](crate::Story::head).
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// When it was captured, in nanoseconds since the first packet of the capture.
    pub time: u64,
    /// How long it was under way, in nanoseconds, if it was captured at both ends.
    pub flight: Option<NonZeroU32>,
    /// Its number in the file, counted from 1 as Wireshark does. Packets that a network card would
    /// have divided later share one.
    pub frame: u32,
    /// Between whom it goes.
    pub connection: ConnectionId,
    /// The message that it is a part of, or that it answers.
    pub message: Option<MessageId>,
    /// The queue pair it is for.
    pub destination: Qpn,
    /// Its sequence number.
    pub psn: Psn,
    /// Where its headers are kept.
    pub(crate) head: u32,
    /// How many bytes of data it carries.
    pub length: u16,
    /// The UDP port it comes from.
    pub source_port: u16,
    /// What it is.
    pub opcode: Opcode,
    /// Which end of the connection sent it.
    pub from: Side,
    /// What it does in the conversation.
    pub role: Role,
    /// What else is to be said about it.
    pub marks: Marks,
}

const _: () = assert!(size_of::<Packet>() <= 48, "there may be millions of them");

impl Packet {
    /// When it was captured, since the first packet of the capture.
    pub fn at(&self) -> Duration {
        Duration::from_nanos(self.time)
    }
}

/// What a packet does in the conversation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Asks for something, or carries data of a message.
    Request,
    /// Carries data that was asked for.
    Response,
    /// Everything up to here arrived.
    Acknowledge,
    /// Refuses, or says that something before it is missing.
    Refuse,
    /// No receive was posted: try again later.
    NotReady,
    /// A message of the connection manager.
    Manage,
    /// Tells of congestion.
    Congestion,
}

bitflags! {
    /// What is to be said about a packet besides its role.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Marks: u16 {
        /// It was sent before.
        const REPEATED = 1;
        /// It did not arrive, as far as the capture shows.
        const LOST = 1 << 1;
        /// Its ICRC does not fit its contents: the receiver drops it.
        const DAMAGED = 1 << 2;
        /// What it says or asks was settled before it was sent.
        const NEEDLESS = 1 << 3;
        /// It answers something that is not in the capture.
        const STRAY = 1 << 4;
        /// It came after packets that should have followed it.
        const LATE = 1 << 5;
        /// The capture has only the beginning of it, so the ICRC can't be checked.
        const CUT = 1 << 6;
        /// The capture has it twice; only once it is listed.
        const SEEN_TWICE = 1 << 7;
        /// It asks for an acknowledgement.
        const ASKS = 1 << 8;
        /// A switch or the receiver marked congestion on its way.
        const CONGESTED = 1 << 9;
        /// It was captured where it was sent.
        const LEFT_HERE = 1 << 10;
        /// It was captured where it arrived.
        const CAME_HERE = 1 << 11;
    }
}

impl Marks {
    /// The marks in words for programs: lower case, joined by dashes.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(Marks, &str); 12] = [
            (Marks::REPEATED, "repeated"),
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
        ];
        let set = NAMES
            .into_iter()
            .filter(move |(mark, _)| self.contains(*mark));
        set.map(|(_, name)| name)
    }
}

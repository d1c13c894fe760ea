//! Packets and messages as columns of numbers: compact in the file, one array each in the browser.

use std::collections::HashMap;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use crate::analysis::Analysis;
use crate::message::{Message, Outcome};
use crate::packet::Packet;
use crate::typed_index::PacketId;

/// The value for "none" in columns of packet and message indices.
const NONE: u32 = u32::MAX;

/// Bytes in base64, little-endian as browsers on today's machines read them.
struct Column(Vec<u8>);

impl Column {
    fn of<T, const SIZE: usize>(list: &[T], bytes: impl FnMut(&T) -> [u8; SIZE]) -> Self {
        Column(list.iter().flat_map(bytes).collect())
    }
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&Base64Display::new(&self.0, &STANDARD))
    }
}

/// Each column is built when it is written, so only one of them is in memory.
pub(super) struct PacketColumns<'a>(pub(super) &'a Analysis);

impl Serialize for PacketColumns<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let packets = &self.0.packets;
        let mut columns = to.serialize_struct("packets", 15)?;
        columns.serialize_field("count", &packets.len())?;
        columns.serialize_field(
            "time",
            &Column::of(packets, |packet| (packet.time as f64).to_le_bytes()),
        )?;
        columns.serialize_field("flight", &Column::of(packets, flight))?;
        columns.serialize_field(
            "frame",
            &Column::of(packets, |packet| packet.frame.to_le_bytes()),
        )?;
        columns.serialize_field("connection", &Column::of(packets, connection))?;
        columns.serialize_field(
            "side",
            &Column::of(packets, |packet| [packet.from.index() as u8]),
        )?;
        columns.serialize_field("role", &Column::of(packets, |packet| [packet.role as u8]))?;
        columns.serialize_field(
            "marks",
            &Column::of(packets, |packet| packet.marks.bits().to_le_bytes()),
        )?;
        columns.serialize_field("message", &Column::of(packets, message))?;
        columns.serialize_field(
            "length",
            &Column::of(packets, |packet| packet.length.to_le_bytes()),
        )?;
        columns.serialize_field(
            "sourcePort",
            &Column::of(packets, |packet| packet.source_port.to_le_bytes()),
        )?;
        columns.serialize_field("heads", &heads(self.0))?;
        columns.serialize_field("headEnds", &head_ends(packets))?;
        columns.serialize_field("payloads", &payloads(self.0))?;
        columns.serialize_field("payloadEnds", &payload_ends(self.0))?;
        columns.end()
    }
}

fn flight(packet: &Packet) -> [u8; 4] {
    packet.flight.map_or(0, Into::into).to_le_bytes()
}

fn connection(packet: &Packet) -> [u8; 4] {
    (packet.connection.index() as u32).to_le_bytes()
}

fn message(packet: &Packet) -> [u8; 4] {
    packet
        .message
        .map_or(NONE, |id| id.index() as u32)
        .to_le_bytes()
}

/// The headers only: messages of the connection manager are decoded here and not in the browser.
fn heads(analysis: &Analysis) -> Column {
    let ids = analysis.packet_ids();
    let heads = ids.flat_map(|id| &analysis.head(id)[..analysis[id].opcode.header_length()]);
    Column(heads.copied().collect())
}

fn head_ends(packets: &[Packet]) -> Column {
    let mut end = 0;
    Column::of(packets, |packet| {
        end += packet.opcode.header_length() as u32;
        end.to_le_bytes()
    })
}

/// How many bytes of a payload the page shows. Management datagrams are kept whole.
const SHOWN_OF_PAYLOAD: usize = 64;

fn shown(analysis: &Analysis, packet: PacketId) -> &[u8] {
    let payload = analysis.payload(packet);
    &payload[..payload.len().min(SHOWN_OF_PAYLOAD)]
}

fn payloads(analysis: &Analysis) -> Column {
    let bytes = analysis.packet_ids().flat_map(|id| shown(analysis, id));
    Column(bytes.copied().collect())
}

fn payload_ends(analysis: &Analysis) -> Column {
    let mut end = 0;
    let ends = analysis.packet_ids().flat_map(|id| {
        end += shown(analysis, id).len() as u32;
        end.to_le_bytes()
    });
    Column(ends.collect())
}

/// Each column is built when it is written, as above.
pub(super) struct MessageColumns<'a>(pub(super) &'a [Message]);

impl Serialize for MessageColumns<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let messages = self.0;
        let (mut names, mut outcomes) = (Words::default(), Words::default());
        let mut columns = to.serialize_struct("messages", 10)?;
        columns.serialize_field(
            "sent",
            &Column::of(messages, |message| (message.sent as f64).to_le_bytes()),
        )?;
        columns.serialize_field("answered", &Column::of(messages, answered))?;
        columns.serialize_field(
            "first",
            &Column::of(messages, |message| {
                (message.first.index() as u32).to_le_bytes()
            }),
        )?;
        columns.serialize_field(
            "response",
            &Column::of(messages, |message| number(message.response)),
        )?;
        columns.serialize_field(
            "length",
            &Column::of(messages, |message| (message.length as f64).to_le_bytes()),
        )?;
        columns.serialize_field(
            "retransmitted",
            &Column::of(messages, |message| [message.retransmitted.min(255) as u8]),
        )?;
        columns.serialize_field(
            "name",
            &Column::of(messages, |message| [names.place(message.name())]),
        )?;
        columns.serialize_field(
            "outcome",
            &Column::of(messages, |message| {
                [outcomes.place(&outcome(message.outcome))]
            }),
        )?;
        columns.serialize_field("names", &names.list)?;
        columns.serialize_field("outcomes", &outcomes.list)?;
        columns.end()
    }
}

fn answered(message: &Message) -> [u8; 8] {
    message
        .answered
        .map_or(f64::NAN, |time| time as f64)
        .to_le_bytes()
}

fn number(packet: Option<PacketId>) -> [u8; 4] {
    packet.map_or(NONE, |id| id.index() as u32).to_le_bytes()
}

fn outcome(outcome: Outcome) -> String {
    match outcome {
        Outcome::Unanswered => "no response in the capture".to_owned(),
        Outcome::Done => "done".to_owned(),
        Outcome::Unacknowledged => "sent; this service has no acknowledgements".to_owned(),
        Outcome::Rejected(code) => format!("rejected: {code}"),
        Outcome::NotReady => "the receiver was not ready".to_owned(),
        Outcome::GivenUp => "given up".to_owned(),
        Outcome::Incomplete => "not all of it is in the capture".to_owned(),
    }
}

/// A list of repeated texts, each stored once.
#[derive(Default)]
struct Words {
    list: Vec<String>,
    places: HashMap<String, u8>,
}

impl Words {
    fn place(&mut self, word: &str) -> u8 {
        if let Some(&place) = self.places.get(word) {
            return place;
        }
        let place = u8::try_from(self.list.len()).expect("there are few names and outcomes");
        self.list.push(word.to_owned());
        self.places.insert(word.to_owned(), place);
        place
    }
}

//! The analysis as JSON.
//!
//! Names and meanings of fields change only with `version`. New fields may be added.

use std::io::{self, Write};

use serde::ser::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::analysis::Analysis;
use crate::anomaly::Anomaly;
use crate::connection::{Connection, End, QueuePair};
use crate::handshake::Handshake;
use crate::message::{Message, packet_name};
use crate::packet_headers::readable;
use crate::typed_index::PacketId;
use crate::work_request::WorkRequest;

/// Increases when a field changes its name or meaning.
const VERSION: u32 = 1;

impl Analysis {
    /// Writes the analysis as JSON.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *to, &Document(self)).map_err(io::Error::from)?;
        writeln!(to)
    }
}

struct Document<'a>(&'a Analysis);

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let analysis = self.0;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("version", &VERSION)?;
        map.serialize_entry("capture", &capture(analysis))?;
        map.serialize_entry("statistics", &analysis.statistics)?;
        map.serialize_entry("endpoints", &addresses(analysis))?;
        map.serialize_entry("queue_pairs", &List(&analysis.queue_pairs, queue_pair))?;
        map.serialize_entry("connections", &List(&analysis.connections, connection))?;
        map.serialize_entry("anomalies", &List(&analysis.anomalies, anomaly))?;
        map.serialize_entry("messages", &List(&analysis.messages, message))?;
        map.serialize_entry(
            "work_requests",
            &List(&analysis.work_requests, work_request),
        )?;
        map.serialize_entry("packets", &Packets(analysis))?;
        map.end()
    }
}

/// A list whose entries become JSON one by one: there may be millions of them.
struct List<'a, T>(&'a [T], fn(&T) -> Value);

impl<T> Serialize for List<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(self.1))
    }
}

struct Packets<'a>(&'a Analysis);

impl Serialize for Packets<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.packet_ids().map(|id| packet(self.0, id)))
    }
}

fn capture(analysis: &Analysis) -> Value {
    let capture = &analysis.capture;
    let async_events = capture.async_events.iter();
    let async_events = async_events.map(|(time, name)| json!({ "time_ns": time, "name": name }));
    json!({
        "format": capture.format,
        "start_ns": capture.start.as_nanos() as u64,
        "duration_ns": capture.duration,
        "frames": capture.frames,
        "foreign": capture.foreign,
        "journal": capture.journal,
        "async_events": async_events.collect::<Vec<_>>(),
        "seen_twice": capture.seen_twice,
        "processes": capture.processes,
        "remarks": capture.remarks,
    })
}

fn addresses(analysis: &Analysis) -> Vec<Value> {
    let addresses = analysis.endpoints.iter();
    addresses
        .map(|endpoint| json!({ "address": endpoint.address }))
        .collect()
}

fn queue_pair(queue_pair: &QueuePair) -> Value {
    json!({
        "endpoint": queue_pair.endpoint,
        "number": queue_pair.number.value(),
        "service": queue_pair.transport.to_string(),
        "process": queue_pair.process,
        "connections": queue_pair.connections,
        "states": queue_pair.states,
    })
}

fn connection(connection: &Connection) -> Value {
    json!({
        "service": connection.transport.to_string(),
        "left": end(&connection.ends[0]),
        "right": end(&connection.ends[1]),
        "paired_by": connection.paired_by,
        "path_mtu": connection.path_mtu.map(wire::PathMtu::bytes),
        "packets": connection.packets,
        "first_packet": connection.first,
        "last_packet": connection.last,
        "handshake": connection.handshake.as_ref().map(handshake),
    })
}

fn end(end: &End) -> Value {
    json!({
        "endpoint": end.endpoint,
        "queue_pair": end.queue_pair,
        "agreed_psn": end.agreed_psn.map(wire::Psn::value),
        "first_psn": end.first_psn.map(wire::Psn::value),
    })
}

fn handshake(handshake: &Handshake) -> Value {
    let steps = handshake.steps.iter().map(|step| {
        json!({
            "packet": step.packet,
            "from": step.from,
            "name": step.name,
            "says": step.says,
            "private_data": readable(&step.private_data),
            "retransmitted": step.retransmitted,
        })
    });
    json!({
        "service": handshake.service.map(|service| service.to_string()),
        "active": handshake.active,
        "outcome": handshake.outcome,
        "duration_ns": handshake.duration,
        "steps": steps.collect::<Vec<_>>(),
    })
}

fn message(message: &Message) -> Value {
    json!({
        "connection": message.connection,
        "from": message.from,
        "name": message.name(),
        "outcome": message.outcome,
        "first_psn": message.first_psn.value(),
        "last_psn": message.last_psn().value(),
        "length": message.length,
        "begun_ns": message.begun,
        "sent_ns": message.sent,
        "answered_ns": message.answered,
        "first_packet": message.first,
        "last_packet": message.last,
        "response": message.response,
        "packets": message.packets,
        "responses": message.responses,
        "retransmitted": message.retransmitted,
        "not_ready": message.not_ready,
    })
}

fn work_request(request: &WorkRequest) -> Value {
    json!({
        "process": request.process,
        "queue_pair": request.number.map(wire::Qpn::value),
        "wr_id": request.id,
        "work": request.work,
        "is_receive": request.is_receive,
        "length": request.length,
        "posted_ns": request.posted,
        "message": request.message,
        "completed_ns": request.completed,
        "polled_ns": request.polled,
        "status": request.status,
    })
}

fn anomaly(anomaly: &Anomaly) -> Value {
    let explanation = anomaly.kind.explanation();
    json!({
        "kind": explanation.name,
        "severity": explanation.severity,
        "time_ns": anomaly.time,
        "sentence": anomaly.sentence,
        "rule": explanation.rule,
        "causes": explanation.causes,
        "connection": anomaly.connection,
        "message": anomaly.message,
        "packet": anomaly.packet,
    })
}

/// The first bytes of a payload.
fn hexadecimal(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn packet(analysis: &Analysis, id: PacketId) -> Value {
    let packet = &analysis[id];
    json!({
        "time_ns": packet.time,
        "flight_ns": packet.flight,
        "frame": packet.frame,
        "connection": packet.connection,
        "from": packet.from,
        "message": packet.message,
        "opcode": packet.opcode.byte(),
        "name": packet_name(packet),
        "role": packet.role,
        "marks": packet.marks.names().collect::<Vec<_>>(),
        "destination": packet.destination.value(),
        "psn": packet.psn.value(),
        "length": packet.length,
        "data": hexadecimal(analysis.payload(id)),
        "syndrome": analysis.heads.syndrome(packet).map(wire::Syndrome::byte),
        "comment": analysis.comment(id),
    })
}

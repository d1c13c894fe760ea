//! The data of the page's script.

use std::collections::BTreeMap;

use serde::Serialize;
use wire::{Extension, Opcode, Operation, Position, Syndrome, Transport};

use super::columns::{MessageColumns, PacketColumns};
use super::lifeline::{Lifeline, Lifelines};
use crate::analysis::Analysis;
use crate::anomaly::{Anomaly, AnomalyKind, Severity};
use crate::connection::{Connection, End, State};
use crate::connection_end::Side;
use crate::message::describe;
use crate::packet::{Marks, Role};
use crate::packet_headers::{Field, Layer};
use crate::typed_index::PacketId;

/// All data.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Content<'a> {
    capture: Capture<'a>,
    /// The vertical lines of the diagram.
    lifelines: Vec<Lifeline>,
    connections: Vec<PageConnection>,
    /// By their bytes.
    opcodes: BTreeMap<u8, OpcodeRow>,
    /// Descriptions, by their bytes.
    syndromes: Vec<String>,
    marks: BTreeMap<&'static str, u16>,
    roles: BTreeMap<&'static str, u8>,
    /// Messages of the connection manager, by packet.
    managed: BTreeMap<usize, PageManagerMessage>,
    comments: BTreeMap<usize, &'a str>,
    anomaly_kinds: Vec<PageExplanation>,
    anomalies: Vec<PageAnomaly<'a>>,
    packets: PacketColumns<'a>,
    messages: MessageColumns<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Capture<'a> {
    /// Milliseconds since 1970, as in JavaScript.
    start: f64,
    remarks: &'a [String],
}

#[derive(Serialize)]
struct PageConnection {
    service: String,
    ends: [PageEnd; 2],
    packets: u64,
    note: String,
}

#[derive(Serialize)]
struct PageEnd {
    name: String,
    lifeline: usize,
    qpn: Option<u32>,
    states: Vec<(u64, State)>,
}

#[derive(Serialize)]
struct OpcodeRow {
    /// Its name in the BTH.
    name: String,
    /// Its label on an arrow.
    title: String,
    headers: Vec<&'static str>,
    /// For atomic operations: whether it is fetch-and-add.
    adds: bool,
    /// Whether the packets of a message have consecutive PSNs.
    continues: bool,
}

#[derive(Serialize)]
struct PageManagerMessage {
    title: String,
    name: &'static str,
    fields: Vec<(&'static str, String)>,
}

#[derive(Serialize)]
struct PageExplanation {
    name: &'static str,
    severity: Severity,
    rule: &'static str,
    causes: &'static [&'static str],
}

#[derive(Serialize)]
struct PageAnomaly<'a> {
    kind: usize,
    time: u64,
    sentence: &'a str,
    packet: Option<PacketId>,
}

impl<'a> Content<'a> {
    pub(super) fn of(analysis: &'a Analysis) -> Self {
        let comments = analysis.capture.comments.iter();
        let lifelines = Lifelines::of_analysis(analysis);
        Content {
            capture: Capture {
                start: analysis.capture.start.as_secs_f64() * 1000.0,
                remarks: &analysis.capture.remarks,
            },
            connections: page_connections(analysis, &lifelines),
            lifelines: lifelines.list,
            opcodes: opcodes(analysis),
            syndromes: (0..=u8::MAX).map(syndrome).collect(),
            marks: marks(),
            roles: ROLES
                .iter()
                .map(|&(name, role)| (name, role as u8))
                .collect(),
            managed: managed(analysis),
            comments: comments
                .map(|(id, text)| (id.index(), text.as_str()))
                .collect(),
            anomaly_kinds: AnomalyKind::ALL
                .iter()
                .map(|&kind| page_explanation(kind))
                .collect(),
            anomalies: analysis.anomalies.iter().map(page_anomaly).collect(),
            packets: PacketColumns(analysis),
            messages: MessageColumns(&analysis.messages),
        }
    }
}

const ROLES: [(&str, Role); 7] = [
    ("request", Role::Request),
    ("response", Role::Response),
    ("acknowledge", Role::Acknowledge),
    ("reject", Role::Reject),
    ("not-ready", Role::NotReady),
    ("manage", Role::Manage),
    ("congestion", Role::Congestion),
];

fn marks() -> BTreeMap<&'static str, u16> {
    let each = Marks::all().iter();
    each.flat_map(|mark| mark.names().map(move |name| (name, mark.bits())))
        .collect()
}

fn page_connections(analysis: &Analysis, lifelines: &Lifelines) -> Vec<PageConnection> {
    let connections = analysis.connections.iter();
    connections
        .map(|connection| PageConnection {
            service: connection.transport.to_string(),
            ends: Side::BOTH.map(|side| page_end(analysis, lifelines, connection, side)),
            packets: connection.packets,
            note: note(connection),
        })
        .collect()
}

fn note(connection: &Connection) -> String {
    let service = connection
        .handshake
        .as_ref()
        .and_then(|handshake| handshake.service);
    service
        .map(|service| service.to_string())
        .unwrap_or_default()
}

fn page_end(
    analysis: &Analysis,
    lifelines: &Lifelines,
    connection: &Connection,
    side: Side,
) -> PageEnd {
    let end: &End = &connection.ends[side.index()];
    let queue_pair = end.queue_pair.map(|id| &analysis[id]);
    let changes = queue_pair
        .map(|pair| pair.states.as_slice())
        .unwrap_or_default();
    PageEnd {
        name: analysis[end.endpoint].address.to_string(),
        lifeline: lifelines.of(connection, side),
        qpn: queue_pair.map(|pair| pair.number.value()),
        states: changes
            .iter()
            .map(|change| (change.time, change.state))
            .collect(),
    }
}

/// Only those that occur.
fn opcodes(analysis: &Analysis) -> BTreeMap<u8, OpcodeRow> {
    let mut rows = BTreeMap::new();
    for packet in &analysis.packets {
        let opcode = packet.opcode;
        rows.entry(opcode.byte())
            .or_insert_with(|| opcode_row(opcode));
    }
    rows
}

fn opcode_row(opcode: Opcode) -> OpcodeRow {
    let extensions = opcode.extensions().iter();
    OpcodeRow {
        name: opcode.to_string(),
        title: title(opcode),
        headers: extensions
            .map(|&extension| header_name(extension))
            .collect(),
        adds: opcode.operation() == Operation::FetchAdd,
        continues: opcode.position() != Position::Only,
    }
}

/// With the service, unless it is the usual one.
fn title(opcode: Opcode) -> String {
    match opcode.transport() {
        Transport::Rc | Transport::Cnp => describe(opcode),
        other => format!("{other} {}", describe(opcode)),
    }
}

fn header_name(extension: Extension) -> &'static str {
    match extension {
        Extension::Xrceth => "XRCETH",
        Extension::Deth => "DETH",
        Extension::Reth => "RETH",
        Extension::AtomicEth => "AtomicETH",
        Extension::Aeth => "AETH",
        Extension::AtomicAckEth => "AtomicAckETH",
        Extension::Immediate => "ImmDt",
        Extension::Ieth => "IETH",
        Extension::Feth => "FETH",
    }
}

fn syndrome(byte: u8) -> String {
    Syndrome::from_byte(byte).to_string()
}

fn managed(analysis: &Analysis) -> BTreeMap<usize, PageManagerMessage> {
    let ids = analysis
        .packet_ids()
        .filter(|&id| analysis[id].role == Role::Manage);
    ids.filter_map(|id| {
        // After BTH and DETH.
        let message = analysis.layers(id).into_iter().nth(2)?;
        Some((id.index(), manager_message(message)))
    })
    .collect()
}

fn manager_message(layer: Layer) -> PageManagerMessage {
    let fields = layer.fields.into_iter();
    PageManagerMessage {
        title: format!("CM {}", layer.name),
        name: layer.name,
        fields: fields.map(|Field { name, value }| (name, value)).collect(),
    }
}

fn page_explanation(kind: AnomalyKind) -> PageExplanation {
    let explanation = kind.explanation();
    PageExplanation {
        name: explanation.name,
        severity: explanation.severity,
        rule: explanation.rule,
        causes: explanation.causes,
    }
}

fn page_anomaly(anomaly: &Anomaly) -> PageAnomaly<'_> {
    PageAnomaly {
        kind: anomaly.kind as usize,
        time: anomaly.time,
        sentence: &anomaly.sentence,
        packet: anomaly.packet,
    }
}

//! The ladder diagram: two ends, and an arrow for every packet.

use std::fmt::Write as _;

use anstyle::Style;
use wire::Opcode;

use super::View;
use super::colours::{BAD, FAINT, MANAGE, STRONG, WARNING, paint};
use super::fold::run_at;
use super::lists::end;
use super::table::cut;
use crate::analysis::Analysis;
use crate::anomaly::Severity;
use crate::connection_end::Side;
use crate::handshake::Step;
use crate::message::{describe, packet_name};
use crate::packet::{Marks, Packet, Role};
use crate::text_format::{count, moment, psn_range};
use crate::typed_index::{ConnectionId, PacketId};

/// More ladders than this are shown only on request.
const SHOWN: usize = 4;

/// The width of the time column.
const MARGIN: usize = 12;

/// Packets with equal shapes are folded.
type Shape = (Side, Opcode, Role, Marks, Option<&'static str>);

/// The ladders of all selected connections.
pub(super) fn draw(analysis: &Analysis, view: &View, connections: &[ConnectionId]) -> String {
    let mut text = String::new();
    for &id in connections.iter().take(SHOWN) {
        text.push_str(&ladder(analysis, view, id));
    }
    if connections.len() > SHOWN {
        let more = count(
            (connections.len() - SHOWN) as u64,
            "connection",
            "connections",
        );
        let hint = format!("\n… and {more} more: --qp chooses one");
        let _ = writeln!(text, "{}", paint(FAINT, hint));
    }
    text
}

fn ladder(analysis: &Analysis, view: &View, id: ConnectionId) -> String {
    let packets = packets(analysis, view, id);
    if packets.is_empty() {
        return String::new();
    }
    let shapes: Vec<Shape> = packets.iter().map(|&id| shape(analysis, id)).collect();
    let drawing = Drawing {
        analysis,
        inside: view.width() - MARGIN - 2,
    };
    let mut text = drawing.heading(id);
    let (mut at, mut lines) = (start(analysis, view, id, &packets, &shapes), 0);
    if at > 0 {
        let before = count(at as u64, "packet", "packets");
        let hint = format!(
            "  … {before} before the first problem: --ladder {} shows all",
            packets.len()
        );
        let _ = writeln!(text, "{}", paint(FAINT, hint));
    }
    while at < packets.len() && lines < view.ladder {
        let run = run_at(&shapes[at..]);
        for &packet in &packets[at..at + run.period] {
            let _ = writeln!(text, "{}", drawing.arrow(packet));
        }
        lines += run.period;
        let all = run.period * run.rounds;
        if run.rounds > 1 {
            let folded = &packets[at + run.period..at + all];
            let _ = writeln!(
                text,
                "{}",
                drawing.folded(run.period, run.rounds - 1, folded)
            );
            lines += 1;
        }
        at += all;
    }
    if at < packets.len() {
        let more = count((packets.len() - at) as u64, "more packet", "more packets");
        let hint = format!("  … {more}: --ladder {} shows all", packets.len());
        let _ = writeln!(text, "{}", paint(FAINT, hint));
    }
    text
}

/// Where the ladder begins: at the first packet, or a little before the first problem if a ladder from the beginning
/// would end before it.
fn start(
    analysis: &Analysis,
    view: &View,
    id: ConnectionId,
    packets: &[PacketId],
    shapes: &[Shape],
) -> usize {
    /// How many packets show what was going on before.
    const BEFORE: usize = 4;
    let problems = analysis.anomalies.iter().filter(|anomaly| {
        let is_worth_it = anomaly.kind.severity() >= Severity::Warning;
        anomaly.connection == Some(id) && is_worth_it && view.shows_time(anomaly.time)
    });
    let told = problems.filter_map(|anomaly| anomaly.packet).min();
    let Some(told) = told else { return 0 };
    // The packet that shows a problem comes after the lost one.
    let told = packets.partition_point(|&packet| packet < told);
    let is_lost = |&packet: &PacketId| never_arrives(&analysis[packet]);
    let place = packets[..told].iter().position(is_lost).unwrap_or(told);
    if place < shown_from_start(view, shapes) {
        0
    } else {
        place.saturating_sub(BEFORE)
    }
}

/// How many packets a ladder from the beginning shows.
fn shown_from_start(view: &View, shapes: &[Shape]) -> usize {
    let (mut at, mut lines) = (0, 0);
    while at < shapes.len() && lines < view.ladder {
        let run = run_at(&shapes[at..]);
        lines += run.period + usize::from(run.rounds > 1);
        at += run.period * run.rounds;
    }
    at
}

fn packets(analysis: &Analysis, view: &View, connection: ConnectionId) -> Vec<PacketId> {
    let (first, last) = (analysis[connection].first, analysis[connection].last);
    let ids = (first.index()..=last.index()).map(PacketId::new);
    let wanted = ids.filter(|&id| {
        let packet = &analysis[id];
        packet.connection == connection && view.shows_time(packet.time)
    });
    wanted.collect()
}

fn shape(analysis: &Analysis, id: PacketId) -> Shape {
    let visible = Marks::RETRANSMITTED
        | Marks::LOST
        | Marks::DAMAGED
        | Marks::STRAY
        | Marks::LATE
        | Marks::FAULTED;
    let packet = &analysis[id];
    (
        packet.from,
        packet.opcode,
        packet.role,
        packet.marks & visible,
        step(analysis, id).map(|step| step.name),
    )
}

/// The message of the connection manager in a packet.
fn step(analysis: &Analysis, id: PacketId) -> Option<&Step> {
    let packet = &analysis[id];
    if packet.role != Role::Manage {
        return None;
    }
    let handshake = analysis[packet.connection].handshake.as_ref()?;
    let steps = &handshake.steps;
    let place = steps.binary_search_by_key(&id, |step| step.packet).ok()?;
    Some(&steps[place])
}

struct Drawing<'a> {
    analysis: &'a Analysis,
    /// The number of characters between the two ends.
    inside: usize,
}

impl Drawing<'_> {
    fn heading(&self, id: ConnectionId) -> String {
        let [left, right] = Side::BOTH.map(|side| end(self.analysis, id, side));
        let width = self.inside + 2;
        let room = width.saturating_sub(left.chars().count());
        let margin = " ".repeat(MARGIN);
        // Two long addresses use one line each.
        let ends = if right.chars().count() + 2 > room {
            format!("{left}\n{margin}{right:>width$}")
        } else {
            format!("{left}{right:>room$}")
        };
        let title = format!("Ladder of connection {}", id.index() + 1);
        let time = format!("{:>w$}", "time ", w = MARGIN);
        format!(
            "\n{}\n{time}{}\n",
            paint(STRONG, title),
            paint(STRONG, ends)
        )
    }

    fn arrow(&self, id: PacketId) -> String {
        let packet = &self.analysis[id];
        let label = self.label(id, packet);
        let shaft = match packet.from {
            Side::Left => self.to_the_right(&label, packet),
            Side::Right => self.to_the_left(&label, packet),
        };
        let time = format!("{:>w$} ", moment(packet.time), w = MARGIN - 1);
        let arrow = match style(packet) {
            Some(style) => paint(style, shaft),
            None => shaft,
        };
        format!("{}│{arrow}│", paint(FAINT, time))
    }

    /// The arrow of a lost packet ends before the other side.
    fn to_the_right(&self, label: &str, packet: &Packet) -> String {
        let (before, behind) = self.shafts(label);
        if never_arrives(packet) {
            let room = behind.saturating_sub(3);
            return format!("{} {label} {}✗  ", dashes(before), dashes(room));
        }
        format!("{} {label} {}→", dashes(before), dashes(behind - 1))
    }

    fn to_the_left(&self, label: &str, packet: &Packet) -> String {
        let (before, behind) = self.shafts(label);
        if never_arrives(packet) {
            let room = before.saturating_sub(3);
            return format!("  ✗{} {label} {}", dashes(room), dashes(behind));
        }
        format!("←{} {label} {}", dashes(before - 1), dashes(behind))
    }

    /// The lengths of the shaft on both sides of the label. [`label`](Self::label) leaves enough for the arrow heads.
    fn shafts(&self, label: &str) -> (usize, usize) {
        let room = self.inside - (label.chars().count() + 2);
        let before = room / 2;
        (before, room - before)
    }

    /// The beginning of the payload is shown where there is room for it.
    fn label(&self, id: PacketId, packet: &Packet) -> String {
        let what = self.what(id, packet);
        let remarks = self.remarks(id, packet);
        let data = beginning(self.analysis.payload(id));
        let room = self.inside - 8;
        let label = match packet.role {
            Role::Request | Role::Response => format!("{what}{data}{remarks}"),
            _ => format!("{what}{remarks}"),
        };
        if label.chars().count() <= room {
            return label;
        }
        cut(&format!("{what}{remarks}"), room)
    }

    fn remarks(&self, id: PacketId, packet: &Packet) -> String {
        let mut remarks = String::new();
        let fault = self.analysis.fault(id);
        for (mark, word) in [
            (Marks::RETRANSMITTED, "again"),
            (Marks::LATE, "late"),
            (Marks::LOST, "lost"),
            (Marks::DAMAGED, "bad ICRC"),
            (Marks::STRAY, "stray"),
        ] {
            if packet.marks.contains(mark) {
                let is_told = fault.is_some() && matches!(mark, Marks::LOST | Marks::DAMAGED);
                if !is_told {
                    let _ = write!(remarks, " · {word}");
                }
            }
        }
        if let Some(fault) = fault {
            let _ = write!(remarks, " · {fault}");
        }
        remarks
    }

    fn what(&self, id: PacketId, packet: &Packet) -> String {
        let heads = &self.analysis.heads;
        match packet.role {
            Role::Manage => match step(self.analysis, id) {
                Some(step) => step.in_short.clone(),
                None => "management datagram".to_owned(),
            },
            Role::Congestion => "CNP".to_owned(),
            Role::Acknowledge => format!("ACK PSN {}{}", packet.psn, heads.held(packet)),
            Role::Reject | Role::NotReady => {
                let held = heads.held(packet);
                match heads.syndrome(packet) {
                    Some(syndrome) => format!("{syndrome} PSN {}{held}", packet.psn),
                    None => format!("NAK PSN {}{held}", packet.psn),
                }
            }
            Role::Request | Role::Response => {
                let asked = match heads.dma_length(packet) {
                    Some(length) if packet.length == 0 => format!(" for {length} B"),
                    _ if packet.length > 0 => format!(" {} B", packet.length),
                    _ => String::new(),
                };
                format!("{} PSN {}{asked}", describe(packet.opcode), packet.psn)
            }
        }
    }

    fn folded(&self, period: usize, rounds: usize, packets: &[PacketId]) -> String {
        let first = &self.analysis[packets[0]];
        let last = &self.analysis[packets[packets.len() - 1]];
        let text = if period == 1 {
            let span = u64::from(last.psn.ahead_of(first.psn)) + 1;
            let psns = psn_range(first.psn, span);
            let what = match step(self.analysis, packets[0]) {
                Some(step) => format!("CM {}", step.name),
                None => packet_name(first),
            };
            format!("… {rounds} more {what}, {psns} …")
        } else {
            format!(
                "… {rounds} more rounds of these {period}, up to PSN {} …",
                last.psn
            )
        };
        let time = format!("{:>w$} ", moment(last.time), w = MARGIN - 1);
        let text = cut(&text, self.inside);
        let inside = format!("{text:^w$}", w = self.inside);
        format!("{}│{}│", paint(FAINT, time), paint(FAINT, inside))
    }
}

/// The first bytes of a payload: as text if they are text, otherwise in hexadecimal.
fn beginning(payload: &[u8]) -> String {
    const SHOWN: usize = 24;
    const SHOWN_BYTES: usize = 8;
    if payload.is_empty() {
        return String::new();
    }
    let is_text = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let text: String = payload
        .iter()
        .copied()
        .take_while(is_text)
        .map(char::from)
        .collect();
    let is_whole = text.len() == payload.len() || payload.get(text.len()) == Some(&0);
    if text.len() >= SHOWN || (is_whole && !text.is_empty()) {
        let shown = text.get(..SHOWN).map(|text| format!("{text}…"));
        return format!(" \"{}\"", shown.unwrap_or(text));
    }
    let bytes: String = payload
        .iter()
        .take(SHOWN_BYTES)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let more = if payload.len() > SHOWN_BYTES {
        "…"
    } else {
        ""
    };
    format!(" {bytes}{more}")
}

fn never_arrives(packet: &Packet) -> bool {
    packet.marks.intersects(Marks::LOST | Marks::DAMAGED)
}

fn dashes(number: usize) -> String {
    "─".repeat(number)
}

fn style(packet: &Packet) -> Option<Style> {
    match packet.role {
        _ if never_arrives(packet) => Some(BAD),
        Role::Reject => Some(BAD),
        Role::NotReady => Some(WARNING),
        _ if packet
            .marks
            .intersects(Marks::RETRANSMITTED | Marks::STRAY | Marks::LATE) =>
        {
            Some(WARNING)
        }
        Role::Manage => Some(MANAGE),
        Role::Acknowledge => Some(FAINT),
        Role::Request | Role::Response | Role::Congestion => None,
    }
}

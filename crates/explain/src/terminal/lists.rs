//! The tables of connections and messages.

use std::fmt::Write as _;

use anstyle::Style;

use super::View;
use super::colours::{BAD, FAINT, GOOD, STRONG, WARNING, paint};
use super::table::{Cell, Edge, Table, cut, paragraph};
use crate::analysis::Analysis;
use crate::connection::{Connection, Pairing};
use crate::connection_end::Side;
use crate::handshake::{Handshake, HandshakeOutcome};
use crate::message::{Message, Outcome};
use crate::packet_headers::described;
use crate::text_format::{bytes, count, duration, grouped, moment};
use crate::typed_index::{ConnectionId, MessageId};

/// The connections and their handshakes.
pub(super) fn connections(analysis: &Analysis, view: &View, ids: &[ConnectionId]) -> String {
    let mut table = Table::new([
        ("#", Edge::Right),
        ("service", Edge::Left),
        ("left", Edge::Left),
        ("right", Edge::Left),
        ("MTU", Edge::Right),
        ("packets", Edge::Right),
        ("known by", Edge::Left),
    ]);
    for &id in ids {
        let connection = &analysis[id];
        let mtu = connection
            .path_mtu
            .map_or("?".to_owned(), |mtu| mtu.to_string());
        table.push([
            Cell::new((id.index() + 1).to_string()),
            Cell::new(connection.transport.to_string()),
            Cell::new(end(analysis, id, Side::Left)),
            Cell::new(end(analysis, id, Side::Right)),
            Cell::new(mtu),
            Cell::new(grouped(connection.packets)),
            Cell::new(known_by(connection)),
        ]);
    }
    let mut text = format!("\n{}\n", paint(STRONG, "Connections"));
    text.push_str(&table.render(view.width()));
    for &id in ids {
        if let Some(handshake) = &analysis[id].handshake {
            text.push_str(&steps(analysis, view, id, handshake));
        }
    }
    text.push_str(&processes(analysis, view));
    text
}

/// Which process has which queue pairs.
fn processes(analysis: &Analysis, view: &View) -> String {
    let mut text = String::new();
    for (place, name) in analysis.capture.processes.iter().enumerate() {
        let own = analysis
            .queue_pairs
            .iter()
            .filter(|it| it.process == Some(place));
        let mut own: Vec<String> = own
            .map(|queue_pair| {
                let address = analysis[queue_pair.endpoint].address;
                format!("{address} QP {:#x}", queue_pair.number.value())
            })
            .collect();
        if own.is_empty() {
            continue;
        }
        if own.len() > SHOWN_QUEUE_PAIRS {
            let more = count((own.len() - SHOWN_QUEUE_PAIRS) as u64, "other", "others");
            own.truncate(SHOWN_QUEUE_PAIRS);
            own.push(more);
        }
        let own = own.join(", ");
        text.push_str(&paragraph(
            &own,
            &format!("  {name}: "),
            "    ",
            view.width(),
        ));
    }
    text
}

/// The most queue pairs of a process to list.
const SHOWN_QUEUE_PAIRS: usize = 8;

/// One end of a connection: `10.0.0.1 QP 0x11`.
pub(super) fn end(analysis: &Analysis, id: ConnectionId, side: Side) -> String {
    let address = analysis[analysis[id].ends[side.index()].endpoint].address;
    match analysis.number_at(id, side) {
        Some(number) => format!("{address} QP {:#x}", number.value()),
        None => format!("{address} QP ?"),
    }
}

fn known_by(connection: &Connection) -> String {
    match (&connection.handshake, connection.paired_by) {
        (Some(handshake), _) => match handshake.service.map(|service| service.to_string()) {
            Some(service) => format!("handshake for {service}"),
            None => "handshake".to_owned(),
        },
        (None, Pairing::SequenceNumbers) => "responses with the same PSNs".to_owned(),
        (None, Pairing::OnlyChoice) => "the only other end".to_owned(),
        (None, Pairing::Datagram) => "named in datagrams".to_owned(),
        (None, Pairing::Comment) => "named in comments".to_owned(),
        (None, Pairing::Handshake | Pairing::Alone) => "nothing came back".to_owned(),
    }
}

/// A handshake in one line, and its private data.
fn steps(analysis: &Analysis, view: &View, id: ConnectionId, handshake: &Handshake) -> String {
    let mut names: Vec<(String, u64)> = Vec::new();
    for step in &handshake.steps {
        let arrow = match step.from {
            Side::Left => '→',
            Side::Right => '←',
        };
        let name = format!("{arrow}{}", step.name);
        match names.last_mut() {
            Some((last, number)) if *last == name => *number += 1,
            _ => names.push((name, 1)),
        }
    }
    let names: Vec<String> = names
        .into_iter()
        .map(|(name, number)| match number {
            1 => name,
            _ => format!("{name} ×{number}"),
        })
        .collect();
    let first = format!("  handshake of {}: ", id.index() + 1);
    let (style, outcome) = outcome(handshake);
    let said = format!("{}, {outcome}", names.join(" "));
    let said = paragraph(&said, &first, "    ", view.width());
    let mut text = painted(style, &said);
    for step in &handshake.steps {
        if step.private_data.is_empty() || step.retransmitted {
            continue;
        }
        let data = described(&step.private_data);
        let who = analysis[analysis[id].ends[step.from.index()].endpoint].address;
        let said = format!("    {who} sent with its {}: {data}", step.name);
        text.push_str(&painted(FAINT, &cut(&said, view.width())));
    }
    text
}

/// Text in a style. A style must not continue over the end of a line.
fn painted(style: Style, lines: &str) -> String {
    let lines = lines.lines().map(|line| paint(style, line) + "\n");
    lines.collect()
}

fn outcome(handshake: &Handshake) -> (Style, String) {
    let plain = Style::new();
    let within = match handshake.duration {
        Some(time) => format!(" in {}", duration(time)),
        None => String::new(),
    };
    match &handshake.outcome {
        HandshakeOutcome::Unanswered => (BAD, "no response".to_owned()),
        HandshakeOutcome::Unfinished => (plain, "not finished in this capture".to_owned()),
        HandshakeOutcome::Established => (plain, format!("established{within}")),
        HandshakeOutcome::Closed => (plain, format!("established{within}, then closed")),
        HandshakeOutcome::Found => (plain, "found".to_owned()),
        HandshakeOutcome::Rejected { words, .. } => (BAD, format!("rejected: {words}")),
    }
}

/// The messages, starting with the first.
pub(super) fn messages(analysis: &Analysis, view: &View) -> String {
    let ids = (0..analysis.messages.len()).map(MessageId::new);
    let wanted = ids.filter(|&id| view.shows_message(analysis, &analysis[id]));
    let wanted: Vec<MessageId> = wanted.collect();
    if wanted.is_empty() || view.messages == 0 {
        return String::new();
    }
    let mut table = Table::new([
        ("time", Edge::Right),
        ("#", Edge::Right),
        ("", Edge::Left),
        ("message", Edge::Left),
        ("size", Edge::Right),
        ("response in", Edge::Right),
        ("packets", Edge::Left),
        ("PSN", Edge::Left),
        // Last, because the text of the last column may wrap.
        ("outcome", Edge::Left),
    ]);
    for &id in wanted.iter().take(view.messages) {
        table.push(row(&analysis[id]));
    }
    let mut text = format!("\n{}\n", paint(STRONG, "Messages"));
    text.push_str(&table.render(view.width()));
    let left = wanted.len().saturating_sub(view.messages);
    if left > 0 {
        let more = count(left as u64, "more message", "more messages");
        let hint = format!("  … {more}: --messages, --qp, --from and --to choose");
        let _ = writeln!(text, "{}", paint(FAINT, hint));
    }
    text
}

/// One message as a line of its own.
pub(super) fn line(message: &Message, width: usize) -> String {
    let (style, outcome) = outcome_of(message);
    let response = message.response_time().map_or(String::new(), |time| {
        format!(", answered after {}", duration(time))
    });
    let arrow = match message.from {
        Side::Left => "→",
        Side::Right => "←",
    };
    let said = format!(
        "{:>10}  {} {arrow} {} {}, PSN {}{response}: ",
        moment(message.begun),
        message.connection.index() + 1,
        message.name(),
        bytes(message.length),
        message.first_psn,
    );
    let length = said.chars().count() + outcome.chars().count();
    let outcome = paint(style, outcome);
    if length <= width {
        format!("{said}{outcome}\n")
    } else {
        format!("{}\n{:12}{outcome}\n", said.trim_end(), "")
    }
}

fn row(message: &Message) -> Vec<Cell> {
    let arrow = match message.from {
        Side::Left => "→",
        Side::Right => "←",
    };
    let psn = match message.span {
        1 => message.first_psn.to_string(),
        _ => format!("{}–{}", message.first_psn, message.last_psn()),
    };
    let mut packets = grouped(message.packets.into());
    if message.responses > 0 {
        let _ = write!(packets, " + {}", grouped(message.responses.into()));
    }
    let response = message.response_time().map_or(String::new(), duration);
    let (style, outcome) = outcome_of(message);
    vec![
        Cell::styled(FAINT, moment(message.begun)),
        Cell::new((message.connection.index() + 1).to_string()),
        Cell::new(arrow),
        Cell::new(message.name()),
        Cell::new(bytes(message.length)),
        Cell::new(response),
        Cell::new(packets),
        Cell::new(psn),
        Cell::styled(style, outcome),
    ]
}

/// The outcome of a message.
fn outcome_of(message: &Message) -> (Style, String) {
    let (style, mut text) = match message.outcome {
        Outcome::Done => (GOOD, "done".to_owned()),
        Outcome::Unacknowledged => (FAINT, "sent".to_owned()),
        Outcome::Unanswered => (WARNING, "no response".to_owned()),
        Outcome::Incomplete => (WARNING, "incomplete".to_owned()),
        Outcome::NotReady => (BAD, "receiver not ready".to_owned()),
        Outcome::GivenUp => (BAD, "given up".to_owned()),
        Outcome::Rejected(code) => (BAD, format!("rejected: {code}")),
    };
    let style = if message.retransmitted > 0 && style == GOOD {
        WARNING
    } else {
        style
    };
    if message.retransmitted > 0 {
        let _ = write!(text, ", {} retransmitted", message.retransmitted);
    }
    if message.not_ready > 0 {
        let _ = write!(text, ", {}× not ready", message.not_ready);
    }
    (style, text)
}

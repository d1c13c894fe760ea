//! Handshakes of connection managers: their result and their errors.

use super::Context;
use crate::anomaly::{Anomaly, AnomalyKind};
use crate::cm_exchanges::{Exchange, ExchangeMessage, Exchanges, Rejection};
use crate::connection_end::Side;
use crate::handshake::{Handshake, HandshakeOutcome, Step};
use crate::packet::Marks;
use crate::text_format::{count, duration, times};
use crate::track::Sender;
use crate::typed_index::{ConnectionId, PacketId};

/// Adds the handshake to every connection.
pub(super) fn tell(
    context: &mut Context<'_>,
    exchanges: &Exchanges,
    connections: &[Option<ConnectionId>],
) {
    for (exchange, connection) in exchanges.list.iter().zip(connections) {
        let Some(connection) = *connection else {
            continue;
        };
        for message in exchange
            .messages
            .iter()
            .filter(|message| message.retransmitted)
        {
            context.packets[message.packet].marks |= Marks::RETRANSMITTED;
        }
        let handshake = handshake(exchange, context);
        report_outcome(exchange, &handshake, connection, context);
        context.connections[connection.index()].handshake = Some(handshake);
    }
}

fn handshake(exchange: &Exchange, context: &Context<'_>) -> Handshake {
    let time = |name: &str| {
        let message = exchange
            .messages
            .iter()
            .find(|message| message.name == name)?;
        Some(context.packets[message.packet].time)
    };
    let duration = match (time("REQ"), time("RTU")) {
        (Some(begin), Some(end)) => end.checked_sub(begin),
        _ => None,
    };
    Handshake {
        service: exchange.service,
        active: Side::Left,
        steps: exchange.messages.iter().map(step).collect(),
        outcome: outcome(exchange),
        duration,
    }
}

fn step(message: &ExchangeMessage) -> Step {
    Step {
        packet: PacketId::new(message.packet),
        from: side(message.by),
        name: message.name,
        says: message.words.clone(),
        in_short: message.in_short.clone(),
        private_data: message.private_data.clone(),
        retransmitted: message.retransmitted,
    }
}

fn side(speaker: Sender) -> Side {
    match speaker {
        Sender::Active => Side::Left,
        Sender::Passive => Side::Right,
    }
}

fn outcome(exchange: &Exchange) -> HandshakeOutcome {
    let answered = exchange
        .messages
        .iter()
        .any(|message| message.by == Sender::Passive);
    // The active side may end its own attempt with a REJ "timeout".
    if !answered && (exchange.has("REQ") || exchange.has("SIDR_REQ")) {
        return HandshakeOutcome::Unanswered;
    }
    let rejection = exchange
        .messages
        .iter()
        .rev()
        .find_map(|message| message.rejection.clone());
    if let Some(rejection) = rejection {
        return HandshakeOutcome::Rejected {
            reason: rejection.reason,
            words: rejection.words,
        };
    }
    if exchange.has("SIDR_REP") {
        return HandshakeOutcome::Found;
    }
    if exchange.has("DREQ") || exchange.has("DREP") {
        return HandshakeOutcome::Closed;
    }
    if exchange.has("RTU") {
        return HandshakeOutcome::Established;
    }
    HandshakeOutcome::Unfinished
}

fn report_outcome(
    exchange: &Exchange,
    handshake: &Handshake,
    connection: ConnectionId,
    context: &mut Context<'_>,
) {
    match &handshake.outcome {
        HandshakeOutcome::Rejected { reason, words } => {
            let rejection = exchange
                .messages
                .iter()
                .rev()
                .find(|message| message.rejection.is_some());
            let what = format!("rejected {}: {words} (reason {reason})", request(exchange));
            let Some(message) = rejection else {
                return;
            };
            let kind = match message.rejection {
                Some(Rejection {
                    no_listener: true, ..
                }) => AnomalyKind::NoListener,
                _ => AnomalyKind::Rejected,
            };
            report(kind, exchange, message, &what, connection, context);
        }
        HandshakeOutcome::Unanswered => {
            let marks = |message: &&ExchangeMessage| context.packets[message.packet].marks;
            let mut arrived = exchange
                .messages
                .iter()
                .filter(|message| !marks(message).contains(Marks::DAMAGED));
            let Some(message) = arrived.next() else {
                return;
            };
            let asked = exchange
                .messages
                .iter()
                .filter(|it| it.name == message.name)
                .count() as u64;
            let what = format!(
                "asked for {} {} and got no response{}",
                request(exchange),
                times(asked),
                spread(exchange, context)
            );
            report(
                AnomalyKind::HandshakeUnanswered,
                exchange,
                message,
                &what,
                connection,
                context,
            );
        }
        _ => {
            report_retransmissions(exchange, connection, context);
            report_disconnects(exchange, connection, context);
        }
    }
}

/// Reports several disconnect requests of one side, of which at least one was answered: the connection is over, whatever became of
/// the others.
fn report_disconnects(exchange: &Exchange, connection: ConnectionId, context: &mut Context<'_>) {
    for by in [Sender::Active, Sender::Passive] {
        let of = |name: &'static str, by| {
            let messages = exchange.messages.iter();
            messages.filter(move |message| message.name == name && message.by == by)
        };
        let number = of("DREQ", by).count() as u64;
        let answer = of("DREP", by.other()).next();
        let (Some(first), Some(answer), 2..) = (of("DREQ", by).next(), answer, number) else {
            continue;
        };
        let time = |message: &ExchangeMessage| context.packets[message.packet].time;
        let what = format!(
            "sent {}; the first response came {} after the first one",
            count(number, "DREQ", "DREQs"),
            duration(time(answer).saturating_sub(time(first)))
        );
        report(
            AnomalyKind::DisconnectedAgain,
            exchange,
            first,
            &what,
            connection,
            context,
        );
    }
}

/// Reports retransmitted messages, other than those that end the connection twice.
fn report_retransmissions(
    exchange: &Exchange,
    connection: ConnectionId,
    context: &mut Context<'_>,
) {
    let mut retransmitted = exchange
        .messages
        .iter()
        .filter(|message| message.retransmitted)
        .filter(|message| !is_over(exchange, message));
    let Some(first) = retransmitted.next() else {
        return;
    };
    let number = 1 + retransmitted
        .filter(|message| message.name == first.name)
        .count() as u64;
    let end = if is_answered(exchange, first) {
        " before it got a response"
    } else {
        "; the capture has no response to it"
    };
    let what = format!("retransmitted its {} {}{end}", first.name, times(number));
    report(
        AnomalyKind::HandshakeRetransmitted,
        exchange,
        first,
        &what,
        connection,
        context,
    );
}

/// Whether a message asks for, or confirms, the end of a connection that has ended.
fn is_over(exchange: &Exchange, message: &ExchangeMessage) -> bool {
    match message.name {
        "DREQ" => is_answered(exchange, message),
        "DREP" => true,
        _ => false,
    }
}

/// Whether the other side has responded to a message. A message that needs no response counts as answered.
fn is_answered(exchange: &Exchange, message: &ExchangeMessage) -> bool {
    let responses: &[&str] = match message.name {
        "REQ" => &["MRA", "REP", "REJ"],
        "REP" => &["MRA", "RTU", "REJ"],
        "LAP" => &["MRA", "APR"],
        "DREQ" => &["DREP"],
        "SIDR_REQ" => &["SIDR_REP"],
        _ => return true,
    };
    let mut messages = exchange.messages.iter();
    messages.any(|it| it.by != message.by && responses.contains(&it.name))
}

/// The time span of the retransmissions.
fn spread(exchange: &Exchange, context: &Context<'_>) -> String {
    match exchange.messages.as_slice() {
        [first, .., last] => {
            let time = context.packets[last.packet].time - context.packets[first.packet].time;
            format!(" within {}", duration(time))
        }
        _ => String::new(),
    }
}

fn request(exchange: &Exchange) -> String {
    match exchange.service {
        Some(service) => format!("a connection to {service}"),
        None => "a connection".to_owned(),
    }
}

fn report(
    kind: AnomalyKind,
    exchange: &Exchange,
    message: &ExchangeMessage,
    what: &str,
    connection: ConnectionId,
    context: &mut Context<'_>,
) {
    let end = &context.connections[connection.index()].ends[side(message.by).index()];
    let who = context.endpoints[end.endpoint.index()].address;
    let is_open = match kind {
        AnomalyKind::HandshakeUnanswered => true,
        AnomalyKind::HandshakeRetransmitted => !is_answered(exchange, message),
        _ => false,
    };
    context.report(Anomaly {
        is_open,
        kind,
        time: context.packets[message.packet].time,
        sentence: format!("{who} {what}."),
        connection: Some(connection),
        message: None,
        packet: Some(PacketId::new(message.packet)),
    });
}

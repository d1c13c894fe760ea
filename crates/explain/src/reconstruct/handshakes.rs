//! Handshakes of connection managers: their result and their errors.

use super::Context;
use crate::anomaly::{Anomaly, AnomalyKind};
use crate::cm_exchanges::{Exchange, ExchangeMessage, Exchanges, Rejection};
use crate::connection_end::Side;
use crate::handshake::{Handshake, HandshakeOutcome, Step};
use crate::id::{ConnectionId, PacketId};
use crate::lane::Sender;
use crate::packet::Marks;
use crate::text_format::{count, duration, times};

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
        for said in exchange.said.iter().filter(|said| said.repeated) {
            context.packets[said.packet].marks |= Marks::REPEATED;
        }
        let handshake = handshake(exchange, context);
        report_outcome(exchange, &handshake, connection, context);
        context.connections[connection.index()].handshake = Some(handshake);
    }
}

fn handshake(exchange: &Exchange, context: &Context<'_>) -> Handshake {
    let time = |name: &str| {
        let said = exchange.said.iter().find(|said| said.name == name)?;
        Some(context.packets[said.packet].time)
    };
    let duration = match (time("REQ"), time("RTU")) {
        (Some(begin), Some(end)) => end.checked_sub(begin),
        _ => None,
    };
    Handshake {
        service: exchange.service,
        active: Side::Left,
        steps: exchange.said.iter().map(step).collect(),
        outcome: outcome(exchange),
        duration,
    }
}

fn step(said: &ExchangeMessage) -> Step {
    Step {
        packet: PacketId::new(said.packet),
        from: side(said.by),
        name: said.name,
        says: said.words.clone(),
        in_short: said.in_short.clone(),
        private_data: said.private_data.clone(),
        repeated: said.repeated,
    }
}

fn side(speaker: Sender) -> Side {
    match speaker {
        Sender::Active => Side::Left,
        Sender::Passive => Side::Right,
    }
}

fn outcome(exchange: &Exchange) -> HandshakeOutcome {
    let answered = exchange.said.iter().any(|said| said.by == Sender::Passive);
    // The active side may end its own attempt with a REJ "timeout".
    if !answered && (exchange.has("REQ") || exchange.has("SIDR_REQ")) {
        return HandshakeOutcome::Unanswered;
    }
    let rejection = exchange
        .said
        .iter()
        .rev()
        .find_map(|said| said.rejection.clone());
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
                .said
                .iter()
                .rev()
                .find(|said| said.rejection.is_some());
            let what = format!("rejected {}: {words} (reason {reason})", request(exchange));
            let Some(said) = rejection else {
                return;
            };
            let kind = match said.rejection {
                Some(Rejection {
                    no_listener: true, ..
                }) => AnomalyKind::NoListener,
                _ => AnomalyKind::Rejected,
            };
            report(kind, said, &what, connection, context);
        }
        HandshakeOutcome::Unanswered => {
            let marks = |said: &&ExchangeMessage| context.packets[said.packet].marks;
            let mut arrived = exchange
                .said
                .iter()
                .filter(|said| !marks(said).contains(Marks::DAMAGED));
            let Some(said) = arrived.next() else {
                return;
            };
            let asked = exchange
                .said
                .iter()
                .filter(|it| it.name == said.name)
                .count() as u64;
            let what = format!(
                "asked for {} {} and got no answer{}",
                request(exchange),
                times(asked),
                spread(exchange, context)
            );
            report(
                AnomalyKind::HandshakeUnanswered,
                said,
                &what,
                connection,
                context,
            );
        }
        _ => {
            report_repetitions(exchange, connection, context);
            report_disconnects(exchange, connection, context);
        }
    }
}

/// Reports several disconnect requests of one side that were each answered.
fn report_disconnects(exchange: &Exchange, connection: ConnectionId, context: &mut Context<'_>) {
    for by in [Sender::Active, Sender::Passive] {
        let mut requests = exchange
            .said
            .iter()
            .filter(|said| said.name == "DREQ" && said.by == by && !said.repeated);
        let first = requests.next();
        let (Some(first), number @ 1..) = (first, requests.count() as u64) else {
            continue;
        };
        let what = format!(
            "sent {}, each one after the previous one was answered",
            count(number + 1, "DREQ", "DREQs")
        );
        report(
            AnomalyKind::DisconnectedAgain,
            first,
            &what,
            connection,
            context,
        );
    }
}

/// Reports retransmitted messages.
fn report_repetitions(exchange: &Exchange, connection: ConnectionId, context: &mut Context<'_>) {
    let mut repeated = exchange.said.iter().filter(|said| said.repeated);
    let Some(first) = repeated.next() else {
        return;
    };
    let number = 1 + repeated.filter(|said| said.name == first.name).count() as u64;
    let what = format!(
        "repeated its {} {} before it got an answer",
        first.name,
        times(number)
    );
    report(
        AnomalyKind::HandshakeRepeated,
        first,
        &what,
        connection,
        context,
    );
}

/// The time span of the retransmissions.
fn spread(exchange: &Exchange, context: &Context<'_>) -> String {
    match exchange.said.as_slice() {
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
    said: &ExchangeMessage,
    what: &str,
    connection: ConnectionId,
    context: &mut Context<'_>,
) {
    let end = &context.connections[connection.index()].ends[side(said.by).index()];
    let who = context.endpoints[end.endpoint.index()].address;
    context.report(Anomaly {
        kind,
        time: context.packets[said.packet].time,
        sentence: format!("{who} {what}."),
        connection: Some(connection),
        message: None,
        packet: Some(PacketId::new(said.packet)),
    });
}

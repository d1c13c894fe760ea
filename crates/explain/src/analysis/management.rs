//! Handshakes of connection managers: their result and their errors.

use super::Scene;
use crate::anomaly::{Anomaly, Kind};
use crate::connection::Side;
use crate::dialogue::{Dialogue, Dialogues, Refusal, Said};
use crate::handshake::{Handshake, HandshakeOutcome, Step};
use crate::id::{ConnectionId, PacketId};
use crate::lane::Speaker;
use crate::packet::Marks;
use crate::words::{duration, times};

/// Adds the handshake to every connection.
pub(super) fn tell(
    scene: &mut Scene<'_>,
    dialogues: &Dialogues,
    connections: &[Option<ConnectionId>],
) {
    for (dialogue, connection) in dialogues.list.iter().zip(connections) {
        let Some(connection) = *connection else {
            continue;
        };
        for said in dialogue.said.iter().filter(|said| said.repeated) {
            scene.packets[said.packet].marks |= Marks::REPEATED;
        }
        let handshake = handshake(dialogue, scene);
        complain(dialogue, &handshake, connection, scene);
        scene.connections[connection.index()].handshake = Some(handshake);
    }
}

fn handshake(dialogue: &Dialogue, scene: &Scene<'_>) -> Handshake {
    let time = |name: &str| {
        let said = dialogue.said.iter().find(|said| said.name == name)?;
        Some(scene.packets[said.packet].time)
    };
    let duration = match (time("REQ"), time("RTU")) {
        (Some(begin), Some(end)) => end.checked_sub(begin),
        _ => None,
    };
    Handshake {
        service: dialogue.service,
        active: Side::Left,
        steps: dialogue.said.iter().map(step).collect(),
        outcome: outcome(dialogue),
        duration,
    }
}

fn step(said: &Said) -> Step {
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

fn side(speaker: Speaker) -> Side {
    match speaker {
        Speaker::Active => Side::Left,
        Speaker::Passive => Side::Right,
    }
}

fn outcome(dialogue: &Dialogue) -> HandshakeOutcome {
    let answered = dialogue.said.iter().any(|said| said.by == Speaker::Passive);
    // The active side may end its own attempt with a REJ "timeout".
    if !answered && (dialogue.has("REQ") || dialogue.has("SIDR_REQ")) {
        return HandshakeOutcome::Unanswered;
    }
    let refusal = dialogue
        .said
        .iter()
        .rev()
        .find_map(|said| said.refusal.clone());
    if let Some(refusal) = refusal {
        return HandshakeOutcome::Rejected {
            reason: refusal.reason,
            words: refusal.words,
        };
    }
    if dialogue.has("SIDR_REP") {
        return HandshakeOutcome::Found;
    }
    if dialogue.has("DREQ") || dialogue.has("DREP") {
        return HandshakeOutcome::Closed;
    }
    if dialogue.has("RTU") {
        return HandshakeOutcome::Established;
    }
    HandshakeOutcome::Unfinished
}

fn complain(
    dialogue: &Dialogue,
    handshake: &Handshake,
    connection: ConnectionId,
    scene: &mut Scene<'_>,
) {
    match &handshake.outcome {
        HandshakeOutcome::Rejected { reason, words } => {
            let refusal = dialogue
                .said
                .iter()
                .rev()
                .find(|said| said.refusal.is_some());
            let what = format!("refused {}: {words} (reason {reason})", request(dialogue));
            let Some(said) = refusal else {
                return;
            };
            let kind = match said.refusal {
                Some(Refusal {
                    nobody_listens: true,
                    ..
                }) => Kind::NobodyListens,
                _ => Kind::Rejected,
            };
            report(kind, said, &what, connection, scene);
        }
        HandshakeOutcome::Unanswered => {
            let marks = |said: &&Said| scene.packets[said.packet].marks;
            let mut arrived = dialogue
                .said
                .iter()
                .filter(|said| !marks(said).contains(Marks::DAMAGED));
            let Some(said) = arrived.next() else {
                return;
            };
            let asked = dialogue
                .said
                .iter()
                .filter(|it| it.name == said.name)
                .count() as u64;
            let what = format!(
                "asked for {} {} and nobody answered{}",
                request(dialogue),
                times(asked),
                spread(dialogue, scene)
            );
            report(Kind::HandshakeUnanswered, said, &what, connection, scene);
        }
        _ => complain_of_repetitions(dialogue, connection, scene),
    }
}

/// Reports retransmitted messages.
fn complain_of_repetitions(dialogue: &Dialogue, connection: ConnectionId, scene: &mut Scene<'_>) {
    let mut repeated = dialogue.said.iter().filter(|said| said.repeated);
    let Some(first) = repeated.next() else {
        return;
    };
    let number = 1 + repeated.filter(|said| said.name == first.name).count() as u64;
    let what = format!(
        "repeated its {} {} before it got an answer",
        first.name,
        times(number)
    );
    report(Kind::HandshakeRepeated, first, &what, connection, scene);
}

/// The time span of the retransmissions.
fn spread(dialogue: &Dialogue, scene: &Scene<'_>) -> String {
    match dialogue.said.as_slice() {
        [first, .., last] => {
            let time = scene.packets[last.packet].time - scene.packets[first.packet].time;
            format!(" within {}", duration(time))
        }
        _ => String::new(),
    }
}

fn request(dialogue: &Dialogue) -> String {
    match dialogue.service {
        Some(service) => format!("a connection to {service}"),
        None => "a connection".to_owned(),
    }
}

fn report(kind: Kind, said: &Said, what: &str, connection: ConnectionId, scene: &mut Scene<'_>) {
    let end = &scene.connections[connection.index()].ends[side(said.by).index()];
    let who = scene.endpoints[end.endpoint.index()].address;
    scene.report(Anomaly {
        kind,
        time: scene.packets[said.packet].time,
        sentence: format!("{who} {what}."),
        connection: Some(connection),
        message: None,
        packet: Some(PacketId::new(said.packet)),
    });
}

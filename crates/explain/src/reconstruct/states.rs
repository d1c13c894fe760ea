//! Derives the states of queue pairs from packets.

use crate::anomaly::{Anomaly, AnomalyKind, Severity};
use crate::connection::{State, StateChange};
use crate::connection_end::Side;
use crate::handshake::HandshakeOutcome;
use crate::message::Message;
use crate::packet::{Packet, Role};
use crate::pairing::Paired;
use crate::typed_index::{ConnectionId, PacketId};

/// Sets the states of all queue pairs.
pub(super) fn tell(
    packets: &[Packet],
    messages: &[Message],
    anomalies: &[Anomaly],
    paired: &mut Paired,
) {
    let mut changes = Vec::new();
    for index in 0..paired.connections.len() {
        let connection = ConnectionId::new(index);
        changes.extend(of_handshake(connection, packets, paired));
    }
    changes.extend(of_traffic(packets, messages, paired));
    changes.extend(of_failures(anomalies));
    changes.sort_by_key(|change| change.packet);
    for change in changes {
        apply(&change, packets, paired);
    }
}

/// A change of one end of a connection.
struct Change {
    connection: ConnectionId,
    side: Side,
    state: State,
    packet: PacketId,
}

fn apply(change: &Change, packets: &[Packet], paired: &mut Paired) {
    let end = &paired.connections[change.connection.index()].ends[change.side.index()];
    let Some(queue_pair) = end.queue_pair else {
        return;
    };
    let states = &mut paired.queue_pairs[queue_pair.index()].states;
    if states.last().is_none_or(|last| last.state != change.state) {
        states.push(StateChange {
            time: packets[change.packet.index()].time,
            state: change.state,
            packet: change.packet,
        });
    }
}

fn of_handshake(connection: ConnectionId, packets: &[Packet], paired: &Paired) -> Vec<Change> {
    let Some(handshake) = &paired.connections[connection.index()].handshake else {
        return Vec::new();
    };
    let mut changes = Vec::new();
    let rejected = matches!(handshake.outcome, HandshakeOutcome::Rejected { .. });
    for step in &handshake.steps {
        let both = Side::BOTH.to_vec();
        let (sides, state) = match step.name {
            "REQ" | "REP" => (vec![step.from], State::Connecting),
            "RTU" => (both, State::Established),
            "REJ" if rejected => (both, State::Closed),
            "DREQ" | "DREP" => (vec![step.from], State::Closed),
            _ => continue,
        };
        debug_assert!(step.packet.index() < packets.len(), "steps are packets");
        changes.extend(sides.into_iter().map(|side| Change {
            connection,
            side,
            state,
            packet: step.packet,
        }));
    }
    changes
}

/// The first packet of data shows that both ends are ready for it, the sender at least.
fn of_traffic(packets: &[Packet], messages: &[Message], paired: &Paired) -> Vec<Change> {
    let mut seen = vec![[false; 2]; paired.connections.len()];
    let mut changes = Vec::new();
    for message in messages {
        let response = message
            .response
            .map(|response| (message.from.other(), response));
        for (side, packet) in [Some((message.from, message.first)), response]
            .into_iter()
            .flatten()
        {
            let seen = &mut seen[message.connection.index()][side.index()];
            let is_data = packets[packet.index()].role != Role::Manage;
            if !*seen && is_data {
                *seen = true;
                changes.push(Change {
                    connection: message.connection,
                    side,
                    state: State::Established,
                    packet,
                });
            }
        }
    }
    changes
}

/// A fatal NAK moves both ends to ERROR. An end that gives up moves alone.
fn of_failures(anomalies: &[Anomaly]) -> Vec<Change> {
    let mut changes = Vec::new();
    for anomaly in anomalies {
        let (Some(connection), Some(packet)) = (anomaly.connection, anomaly.packet) else {
            continue;
        };
        let breaks = match anomaly.kind {
            AnomalyKind::RemoteAccess
            | AnomalyKind::InvalidRequest
            | AnomalyKind::InvalidWrite
            | AnomalyKind::InvalidRead
            | AnomalyKind::InvalidAtomic
            | AnomalyKind::RemoteOperational
            | AnomalyKind::NotReadyForEver
            | AnomalyKind::RetriesExhausted => anomaly.kind.severity() == Severity::Error,
            _ => false,
        };
        if breaks {
            changes.extend(Side::BOTH.map(|side| Change {
                connection,
                side,
                state: State::Error,
                packet,
            }));
        }
    }
    changes
}

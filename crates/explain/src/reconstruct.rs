//! Finds the messages, their outcome and the anomalies.

mod handshakes;
mod position;
mod recovery;
mod report;
mod requests;
mod responses;
mod states;
mod stream;

use std::collections::HashMap;

use wire::{Qpn, Transport};

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::capture_summary::CaptureSummary;
use crate::collect::{Collection, Malformed, fault};
use crate::connection::{Connection, Endpoint, QueuePair};
use crate::connection_end::Side;
use crate::journal::{Event, EventKind};
use crate::message::Message;
use crate::packet::{Marks, Packet, Role};
use crate::packet_headers::Heads;
use crate::pairing::Paired;
use crate::text_format::{Names, count};
use crate::typed_index::{ConnectionId, PacketId, QueuePairId};

use stream::Stream;

/// The result.
pub(crate) struct Findings {
    pub(crate) messages: Vec<Message>,
    pub(crate) anomalies: Vec<Anomaly>,
}

/// The data that the analysis of all streams reads and writes.
struct Context<'a> {
    packets: &'a mut [Packet],
    heads: &'a Heads,
    endpoints: &'a [Endpoint],
    connections: &'a mut [Connection],
    queue_pairs: &'a [QueuePair],
    messages: Vec<Message>,
    anomalies: Vec<Anomaly>,
    /// When a send request of a queue pair last failed, as the program was told.
    failures: HashMap<QueuePairId, i128>,
    /// When the capture ends.
    end: u64,
    /// Whether the file ends within a record, so that responses after it may be missing.
    cut_off: bool,
}

impl Context<'_> {
    fn names(&self) -> Names<'_> {
        Names {
            endpoints: self.endpoints,
            queue_pairs: self.queue_pairs,
            connections: self.connections,
        }
    }

    /// The name of one end of a connection.
    fn name(&self, connection: ConnectionId, side: Side) -> String {
        self.names().name(connection, side).to_string()
    }

    fn report(&mut self, anomaly: Anomaly) {
        self.anomalies.push(anomaly);
    }
}

/// Finds messages and anomalies, and marks packets.
pub(crate) fn find(collection: &mut Collection, paired: &mut Paired) -> Findings {
    let end = collection.summary.duration;
    let mut context = Context {
        packets: &mut collection.packets,
        heads: &collection.heads,
        endpoints: &collection.endpoints,
        connections: &mut paired.connections,
        queue_pairs: &paired.queue_pairs,
        messages: Vec::new(),
        anomalies: Vec::new(),
        failures: failures(&collection.events, &paired.queue_pairs),
        end,
        cut_off: collection.summary.cut_off,
    };
    handshakes::tell(&mut context, &collection.exchanges, &paired.of_exchange);
    let mut streams = follow(&mut context);
    for stream in streams.iter_mut().flatten() {
        stream.report_overcome(&mut context);
    }
    let told = context.anomalies.len();
    for stream in streams.into_iter().flatten() {
        stream.finish(&mut context);
    }
    for anomaly in &mut context.anomalies[told..] {
        anomaly.is_open = true;
    }
    report_damage(&mut context);
    report_congestion(&mut context);
    report_faults(&mut context, &collection.summary);
    let (messages, mut anomalies) = (context.messages, context.anomalies);
    states::tell(&collection.packets, &messages, &anomalies, paired);
    anomalies.extend(collection.malformed.iter().map(malformed));
    anomalies.extend(copies(collection));
    anomalies.sort_by_key(|anomaly| anomaly.time);
    Findings {
        messages,
        anomalies,
    }
}

/// When send requests of each queue pair last failed, by the completions in the capture.
fn failures(events: &[Event], queue_pairs: &[QueuePair]) -> HashMap<QueuePairId, i128> {
    let mut last: HashMap<(usize, Qpn), i128> = HashMap::new();
    for event in events {
        // A flushed request was ended with its queue pair. It has not failed by itself.
        let failed = event.kind == EventKind::Completed
            && !matches!(
                event.status.as_str(),
                "IBV_WC_SUCCESS" | "IBV_WC_WR_FLUSH_ERR"
            );
        if let (true, Some(process), Some(number)) = (failed, event.process, event.queue_pair) {
            last.insert((process, number), event.time);
        }
    }
    let ids = (0..queue_pairs.len()).map(QueuePairId::new);
    ids.filter_map(|id| {
        let queue_pair = &queue_pairs[id.index()];
        let time = last.get(&(queue_pair.process?, queue_pair.number))?;
        Some((id, *time))
    })
    .collect()
}

/// Goes through all packets once.
fn follow(context: &mut Context<'_>) -> Vec<[Stream; 2]> {
    let ids = (0..context.connections.len()).map(ConnectionId::new);
    let mut streams: Vec<[Stream; 2]> = ids
        .map(|id| {
            let connection = &context.connections[id.index()];
            Side::BOTH.map(|side| Stream::new(id, side, connection))
        })
        .collect();
    for index in 0..context.packets.len() {
        let packet = &context.packets[index];
        // RoCEv2 annex: a receiver drops a damaged packet, so it is ignored here.
        if packet.marks.contains(Marks::DAMAGED) {
            continue;
        }
        let (connection, from) = (packet.connection, packet.from);
        let pair = &mut streams[connection.index()];
        let id = PacketId::new(index);
        match packet.role {
            Role::Manage | Role::Congestion => {}
            Role::Request if packet.opcode.transport() == Transport::Ud => {
                pair[from.index()].datagram(id, context);
            }
            Role::Request => pair[from.index()].request(id, context),
            Role::Response | Role::Acknowledge | Role::Reject | Role::NotReady => {
                pair[from.other().index()].take_response(id, context);
            }
        }
    }
    streams
}

/// One report for each connection that has damaged packets.
fn report_damage(context: &mut Context<'_>) {
    let damaged = of_each_connection(context, |packet| packet.marks.contains(Marks::DAMAGED));
    for (first, number) in damaged {
        let packet = context.packets[first.index()];
        let sender = context.name(packet.connection, packet.from);
        let packets = count(number, "packet", "packets");
        let verb = if number == 1 { "has" } else { "have" };
        context.report(Anomaly {
            is_open: false,
            kind: AnomalyKind::BadIcrc,
            time: packet.time,
            sentence: format!(
                "{packets} from {sender} {verb} an ICRC that does not fit; the first is PSN {} in frame {}. The receiver drops such packets without a word.",
                packet.psn, packet.frame
            ),
            connection: Some(packet.connection),
            message: packet.message,
            packet: Some(first),
        });
    }
}

/// One report for each packet with an injected fault, up to a limit for each capture.
fn report_faults(context: &mut Context<'_>, summary: &CaptureSummary) {
    const MAX_FAULTS: usize = 100;
    let faults = summary.comments.iter().filter_map(|(packet, comment)| {
        let fault = fault(comment)?;
        Some((*packet, fault))
    });
    for (id, fault) in faults.take(MAX_FAULTS) {
        let packet = context.packets[id.index()];
        let sender = context.name(packet.connection, packet.from);
        let what = match packet.role {
            Role::Manage => "CM message".to_owned(),
            _ => format!("{} PSN {}", packet.opcode, packet.psn),
        };
        context.report(Anomaly {
            is_open: false,
            kind: AnomalyKind::FaultInjected,
            time: packet.time,
            sentence: format!("{what} from {sender} in frame {}: {fault}.", packet.frame),
            connection: Some(packet.connection),
            message: packet.message,
            packet: Some(id),
        });
    }
}

fn report_congestion(context: &mut Context<'_>) {
    let marked = of_each_connection(context, |packet| {
        packet.marks.contains(Marks::CONGESTED) || packet.role == Role::Congestion
    });
    for (first, number) in marked {
        let packet = context.packets[first.index()];
        let sender = context.name(packet.connection, packet.from);
        let packets = count(number, "packet tells", "packets tell");
        context.report(Anomaly {
            is_open: false,
            kind: AnomalyKind::Congestion,
            time: packet.time,
            sentence: format!("{packets} of congestion on the way between {sender} and its peer."),
            connection: Some(packet.connection),
            message: None,
            packet: Some(first),
        });
    }
}

/// For each direction of each connection: the first such packet, and how many there are.
fn of_each_connection(
    context: &Context<'_>,
    is_one: impl Fn(&Packet) -> bool,
) -> Vec<(PacketId, u64)> {
    let mut found: Vec<[Option<(PacketId, u64)>; 2]> = vec![[None; 2]; context.connections.len()];
    for (index, packet) in context.packets.iter().enumerate() {
        if is_one(packet) {
            let slot = &mut found[packet.connection.index()][packet.from.index()];
            slot.get_or_insert((PacketId::new(index), 0)).1 += 1;
        }
    }
    found.into_iter().flatten().flatten().collect()
}

fn malformed(malformed: &Malformed) -> Anomaly {
    Anomaly {
        is_open: false,
        kind: AnomalyKind::Malformed,
        time: malformed.time,
        sentence: format!("Frame {} is no packet: {}.", malformed.frame, malformed.why),
        connection: None,
        message: None,
        packet: None,
    }
}

/// A sentence about packets that the network delivered more than once.
fn copies(collection: &Collection) -> Option<Anomaly> {
    let copies: u64 = collection
        .tracks
        .list
        .iter()
        .map(|track| track.copies)
        .sum();
    (copies > 0).then(|| Anomaly {
        is_open: false,
        kind: AnomalyKind::DeliveredTwice,
        time: 0,
        sentence: format!(
            "{} again although sent once; they are left out here.",
            count(copies, "packet arrived", "packets arrived")
        ),
        connection: None,
        message: None,
        packet: None,
    })
}

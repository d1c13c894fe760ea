//! The result of analysing a capture.

use std::io::Read;

use wire::Qpn;

use crate::anomaly::Anomaly;
use crate::capture::ReadError;
use crate::capture_summary::CaptureSummary;
use crate::collect;
use crate::connection::{Connection, End, Endpoint, QueuePair};
use crate::connection_end::Side;
use crate::lost_packets;
use crate::message::{Message, Outcome};
use crate::packet::Packet;
use crate::packet_headers::{Heads, Layer};
use crate::pairing;
use crate::reconstruct;
use crate::statistics::Statistics;
use crate::typed_index::{ConnectionId, EndpointId, MessageId, PacketId, QueuePairId};
use crate::work_request::{self, WorkRequest};

/// The result of analysing a capture. Its lists refer to each other by index.
#[derive(Debug)]
pub struct Analysis {
    /// The capture file.
    pub capture: CaptureSummary,
    /// Every address.
    pub endpoints: Vec<Endpoint>,
    /// Every queue pair.
    pub queue_pairs: Vec<QueuePair>,
    /// Every connection.
    pub connections: Vec<Connection>,
    /// Every message, in the order of their start.
    pub messages: Vec<Message>,
    /// Every work request that the capture tells of, sorted by time.
    pub work_requests: Vec<WorkRequest>,
    /// Every packet of RoCEv2, sorted by time, each one once.
    pub packets: Vec<Packet>,
    /// All anomalies, sorted by time.
    pub anomalies: Vec<Anomaly>,
    /// The statistics.
    pub statistics: Statistics,
    pub(crate) heads: Heads,
}

impl Analysis {
    /// Reads and analyses a capture.
    pub fn read(source: impl Read) -> Result<Analysis, ReadError> {
        Analysis::read_all(vec![source]).map_err(|(_, error)| error)
    }

    /// Reads and analyses captures of several processes or at both ends, merged by time: a packet that several of
    /// them contain is one packet. Frames are numbered as after `mergecap`. An error has the index of the capture
    /// that can't be read.
    pub fn read_all(sources: Vec<impl Read>) -> Result<Analysis, (usize, ReadError)> {
        let mut collection = collect::collect(sources)?;
        let mut paired = pairing::pair(&mut collection);
        lost_packets::mark_lost(&mut collection.packets, paired.connections.len());
        let findings = reconstruct::find(&mut collection, &mut paired);
        let statistics = Statistics::of(&collection.packets, &findings.messages);
        let work_requests = work_request::list(&collection, &paired, &findings.messages);
        Ok(Analysis {
            capture: collection.summary,
            endpoints: collection.endpoints,
            queue_pairs: paired.queue_pairs,
            connections: paired.connections,
            messages: findings.messages,
            work_requests,
            packets: collection.packets,
            anomalies: findings.anomalies,
            statistics,
            heads: collection.heads,
        })
    }

    /// The bytes of a packet's headers, from the BTH to the payload.
    pub fn head(&self, packet: PacketId) -> &[u8] {
        &self.heads.bytes(&self[packet])[..self[packet].opcode.header_length()]
    }

    /// The first bytes of a packet's payload.
    pub fn payload(&self, packet: PacketId) -> &[u8] {
        self.heads.payload(&self[packet])
    }

    /// A packet's headers, field by field.
    pub fn layers(&self, packet: PacketId) -> Vec<Layer> {
        self.heads.layers(&self[packet])
    }

    /// The faults that were injected into a packet, such as `dropped by fault injection`.
    pub fn fault(&self, packet: PacketId) -> Option<&str> {
        self.comment(packet).and_then(collect::fault)
    }

    /// The comment of a packet.
    pub fn comment(&self, packet: PacketId) -> Option<&str> {
        let comments = &self.capture.comments;
        let place = comments.binary_search_by_key(&packet, |(at, _)| *at).ok()?;
        Some(&comments[place].1)
    }

    /// The numbers of all packets.
    pub fn packet_ids(&self) -> impl DoubleEndedIterator<Item = PacketId> + use<> {
        (0..self.packets.len()).map(PacketId::new)
    }

    /// Whether packets after the end of the capture can't change the outcome of a message.
    pub fn is_settled(&self, message: &Message) -> bool {
        match message.outcome {
            Outcome::Done | Outcome::Rejected(_) => true,
            Outcome::Unacknowledged => self[message.last].opcode.position().ends(),
            Outcome::Unanswered | Outcome::NotReady | Outcome::GivenUp | Outcome::Incomplete => {
                false
            }
        }
    }

    /// The packets of a message and of its responses, sorted by time.
    pub fn packets_of(&self, message: MessageId) -> impl Iterator<Item = PacketId> + '_ {
        let (first, last) = (self[message].first.index(), self[message].last.index());
        let ids = (first..=last).map(PacketId::new);
        ids.filter(move |&id| self[id].message == Some(message))
    }

    /// The end that sent a packet.
    pub fn sender(&self, packet: &Packet) -> &End {
        &self[packet.connection].ends[packet.from.index()]
    }

    /// The end that a packet goes to.
    pub fn receiver(&self, packet: &Packet) -> &End {
        &self[packet.connection].ends[packet.from.other().index()]
    }

    /// The queue pair number at one end of a connection, if it is known.
    pub fn number_at(&self, connection: ConnectionId, side: Side) -> Option<Qpn> {
        let end = &self[connection].ends[side.index()];
        end.queue_pair.map(|id| self[id].number)
    }
}

macro_rules! lists {
    ($($id:ty => $list:ident: $thing:ty;)+) => { $(
        impl std::ops::Index<$id> for Analysis {
            type Output = $thing;

            #[inline]
            fn index(&self, id: $id) -> &$thing {
                &self.$list[id.index()]
            }
        }
    )+ };
}

lists! {
    EndpointId => endpoints: Endpoint;
    QueuePairId => queue_pairs: QueuePair;
    ConnectionId => connections: Connection;
    MessageId => messages: Message;
    PacketId => packets: Packet;
    crate::typed_index::AnomalyId => anomalies: Anomaly;
}

//! One conversation with a peer: what both sides have said, and how to say the next thing.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use wire::cm::{
    AnsweredMessage, CommunicationId, ConnectReply, DisconnectReply, DisconnectRequest, Path,
    PrivateData, ReadyToUse, ReceiptAcknowledge, RefusedMessage, Reject, RejectReason, ServiceId,
};
use wire::{PartitionKey, PathMtu, Psn, Qpn, mad};

use crate::attributes::PathAttributes;
use crate::id::{Kind, Phase};
use crate::memory::{RemoteDevice, RemoteName};
use crate::parameters::Parameters;
use crate::timing;

/// A message that waits for its answer.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) datagram: Box<[u8; mad::LENGTH]>,
    pub(crate) attribute: u16,
    pub(crate) interval: Duration,
    pub(crate) retries_left: u8,
    /// When not to wait any longer, however many retries are left.
    pub(crate) until: Option<Instant>,
}

impl InFlight {
    /// When to try again, or to give up.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        let next = now + self.interval;
        self.until.map_or(next, |until| next.min(until))
    }
}

/// Where messages go, and from where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
}

/// One conversation.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) phase: Phase,
    pub(crate) peer: Peer,
    /// What we call it, and what the peer does (0 until it has told us).
    pub(crate) local_id: CommunicationId,
    pub(crate) remote_id: CommunicationId,
    pub(crate) remote_guid: u64,
    pub(crate) service: ServiceId,
    /// Repeated in answers, so that the peer can match them.
    pub(crate) transaction: u64,
    /// The path as we see it: local is here.
    pub(crate) path: Path,
    pub(crate) mtu: PathMtu,
    pub(crate) partition: PartitionKey,
    pub(crate) local_qpn: Qpn,
    pub(crate) remote_qpn: Qpn,
    pub(crate) receive_psn: Psn,
    pub(crate) send_psn: Psn,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    /// The code of the queue pair's acknowledge timeout, which is also how long stray packets live.
    pub(crate) ack_timeout: u8,
    /// How long to wait for an answer, and how often to ask again.
    pub(crate) response_interval: Duration,
    pub(crate) max_retries: u8,
    pub(crate) in_flight: Option<InFlight>,
    /// The peer called our request stale, and it was sent again.
    pub(crate) was_stale: bool,
}

impl Link {
    /// A conversation of which nothing is known but where and under which names.
    pub(crate) fn new(phase: Phase, peer: Peer, local_id: CommunicationId) -> Self {
        Link {
            phase,
            peer,
            local_id,
            remote_id: CommunicationId::default(),
            remote_guid: 0,
            service: ServiceId::default(),
            transaction: own_transaction(local_id),
            path: Path::default(),
            mtu: PathMtu::Mtu256,
            partition: PartitionKey::default(),
            local_qpn: Qpn::default(),
            remote_qpn: Qpn::default(),
            receive_psn: Psn::ZERO,
            send_psn: Psn::ZERO,
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            ack_timeout: timing::PACKET_LIFE_TIME + 1,
            response_interval: timing::interval(timing::RESPONSE.code()),
            max_retries: timing::MAX_RETRIES,
            in_flight: None,
            was_stale: false,
        }
    }

    pub(crate) fn remote_device(&self) -> RemoteDevice {
        RemoteDevice {
            address: self.peer.destination,
            guid: self.remote_guid,
        }
    }

    pub(crate) fn remote_name(&self) -> RemoteName {
        RemoteName {
            device: self.remote_device(),
            id: self.remote_id,
        }
    }

    /// How long stray packets of the connection may live.
    pub(crate) fn timewait(&self) -> Duration {
        timing::bounded_interval(self.ack_timeout, timing::LONGEST_RESPONSE)
    }

    pub(crate) fn reply(&self, kind: Kind, parameters: &Parameters<'_>, guid: u64) -> ConnectReply {
        let reply = ConnectReply {
            local_id: self.local_id,
            remote_id: self.remote_id,
            local_qpn: parameters.qpn,
            starting_psn: self.receive_psn,
            responder_resources: parameters.responder_resources,
            initiator_depth: parameters.initiator_depth,
            flow_control: parameters.flow_control,
            rnr_retry_count: parameters.rnr_retry_count.min(7),
            shared_receive_queue: parameters.shared_receive_queue,
            local_guid: guid,
            ..ConnectReply::default()
        };
        match kind {
            // An XRC target sends nothing, receives into a shared queue, and is named elsewhere.
            Kind::ExtendedConnection => ConnectReply {
                local_qpn: Qpn::default(),
                local_eecn: parameters.qpn,
                initiator_depth: 0,
                flow_control: false,
                shared_receive_queue: true,
                ..reply
            },
            _ => reply,
        }
    }

    pub(crate) fn ready(&self) -> ReadyToUse {
        ReadyToUse {
            local_id: self.local_id,
            remote_id: self.remote_id,
            ..ReadyToUse::default()
        }
    }

    /// "It is the application's turn, which may take a while."
    pub(crate) fn delay(&self, message: AnsweredMessage) -> ReceiptAcknowledge {
        ReceiptAcknowledge {
            local_id: self.local_id,
            remote_id: self.remote_id,
            message,
            service_timeout: timing::APPLICATION,
            ..ReceiptAcknowledge::default()
        }
    }

    /// The message of the peer that a REJ would refuse.
    pub(crate) const fn refused_message(&self) -> RefusedMessage {
        match self.phase {
            Phase::RequestReceived => RefusedMessage::Request,
            Phase::ReplyReceived => RefusedMessage::Reply,
            _ => RefusedMessage::None,
        }
    }

    pub(crate) fn refusal(&self, reason: RejectReason, private_data: PrivateData<148>) -> Reject {
        Reject {
            local_id: self.local_id,
            remote_id: self.remote_id,
            message: self.refused_message(),
            reason,
            private_data,
            ..Reject::default()
        }
    }

    /// "I no longer wait for your answer." The peer may know us by nothing but our device.
    pub(crate) fn give_up(&self, guid: u64) -> Reject {
        let mut refusal = self.refusal(RejectReason::Timeout, PrivateData::default());
        let guid = guid.to_be_bytes();
        refusal.information_length = guid.len() as u8;
        refusal.information = PrivateData::new(&guid).expect("a GUID fits");
        refusal
    }

    pub(crate) fn part(&self) -> DisconnectRequest {
        DisconnectRequest {
            local_id: self.local_id,
            remote_id: self.remote_id,
            remote_qpn: self.remote_qpn,
            ..DisconnectRequest::default()
        }
    }

    pub(crate) fn parted(&self) -> DisconnectReply {
        DisconnectReply {
            local_id: self.local_id,
            remote_id: self.remote_id,
            ..DisconnectReply::default()
        }
    }

    pub(crate) fn path_attributes(&self) -> PathAttributes {
        path_attributes(&self.path)
    }
}

pub(crate) fn path_attributes(path: &Path) -> PathAttributes {
    PathAttributes {
        local_gid: path.local_gid,
        remote_gid: path.remote_gid,
        flow_label: path.flow_label,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        service_level: path.service_level,
        packet_rate: path.packet_rate,
    }
}

/// The same path, seen from the other end.
pub(crate) fn reversed(path: &Path) -> Path {
    Path {
        local_lid: path.remote_lid,
        remote_lid: path.local_lid,
        local_gid: path.remote_gid,
        remote_gid: path.local_gid,
        ..*path
    }
}

/// What a conversation that we begin is called on the wire. The high half is the number that Linux
/// gives to the agent; ours is always the first.
pub(crate) fn own_transaction(local_id: CommunicationId) -> u64 {
    1 << 32 | u64::from(local_id.value())
}

/// The flow label that Linux computes from the two ports.
pub(crate) fn flow_label(source_port: u16, destination_port: u16) -> u32 {
    (u32::from(source_port) * 31 + u32::from(destination_port)) & 0xf_ffff
}

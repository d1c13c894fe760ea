//! The message exchange with a peer about one connection or service: its state, and its messages.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use wire::cm::{
    AcknowledgedMessage, CommunicationId, ConnectReply, DisconnectReply, DisconnectRequest, Path,
    PrivateData, ReadyToUse, ReceiptAcknowledge, Reject, RejectReason, RejectedMessage, ServiceId,
};
use wire::{PartitionKey, PathMtu, Psn, Qpn, mad};

use crate::exchange_state::ExchangeState;
use crate::parameters::Parameters;
use crate::qp_attributes::PathAttributes;
use crate::retained_state::{RemoteConnection, RemoteDevice};
use crate::service_type::ServiceType;
use crate::timing;

/// A message that waits for its response.
#[derive(Debug)]
pub(crate) struct OutstandingMessage {
    pub(crate) datagram: Box<[u8; mad::LENGTH]>,
    pub(crate) attribute: u16,
    pub(crate) interval: Duration,
    /// The retransmissions that come before the end of the interval.
    pub(crate) early: &'static [Duration],
    /// When the interval began.
    pub(crate) since: Instant,
    pub(crate) retries_left: u8,
    /// How often it was retransmitted.
    pub(crate) retransmissions: u8,
    /// When to stop waiting, even if retries are left.
    pub(crate) until: Option<Instant>,
}

impl OutstandingMessage {
    /// When to retransmit, or to stop waiting.
    pub(crate) fn next(&self) -> Instant {
        let early = self.early.first().filter(|early| **early < self.interval);
        let next = self.since + *early.unwrap_or(&self.interval);
        self.until.map_or(next, |until| next.min(until))
    }

    /// Counts a retransmission at this time. Returns false if the message is not retransmitted any more.
    pub(crate) fn count_retransmission(&mut self, now: Instant) -> bool {
        if self.until.is_some_and(|until| until <= now) {
            return false;
        }
        self.retransmissions = self.retransmissions.saturating_add(1);
        let is_early = now < self.since + self.interval;
        if let ([_, later @ ..], true) = (self.early, is_early) {
            self.early = later;
            return true;
        }
        let Some(left) = self.retries_left.checked_sub(1) else {
            return false;
        };
        self.retries_left = left;
        self.early = &[];
        self.since = now;
        true
    }
}

/// The addresses and IP header fields of messages to a peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
}

/// The message exchange with a peer.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) phase: ExchangeState,
    pub(crate) peer: Peer,
    /// Our communication id and the peer's (0 until we know it).
    pub(crate) local_id: CommunicationId,
    pub(crate) remote_id: CommunicationId,
    pub(crate) remote_guid: u64,
    pub(crate) service: ServiceId,
    /// Copied to responses, so that the peer can match them.
    pub(crate) transaction: u64,
    /// The path from our point of view: local is our side.
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
    /// The code of the queue pair's acknowledge timeout. It also bounds time-wait.
    pub(crate) ack_timeout: u8,
    /// How long to wait for a response, and how many times to retransmit.
    pub(crate) response_interval: Duration,
    pub(crate) max_retries: u8,
    pub(crate) outstanding: Option<OutstandingMessage>,
    /// The peer rejected our request as stale, and it was sent again.
    pub(crate) was_stale: bool,
}

impl Exchange {
    /// An exchange of which only the addresses and our communication id are known.
    pub(crate) fn new(phase: ExchangeState, peer: Peer, local_id: CommunicationId) -> Self {
        Exchange {
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
            ack_timeout: timing::PACKET_LIFETIME + 1,
            response_interval: timing::interval(timing::RESPONSE.code()),
            max_retries: timing::MAX_RETRIES,
            outstanding: None,
            was_stale: false,
        }
    }

    pub(crate) fn remote_device(&self) -> RemoteDevice {
        RemoteDevice {
            address: self.peer.destination,
            guid: self.remote_guid,
        }
    }

    pub(crate) fn remote_connection(&self) -> RemoteConnection {
        RemoteConnection {
            device: self.remote_device(),
            id: self.remote_id,
        }
    }

    /// How long packets of the connection may arrive after its end.
    pub(crate) fn timewait(&self) -> Duration {
        timing::bounded_interval(self.ack_timeout, timing::MAX_RESPONSE_CODE)
    }

    pub(crate) fn reply(
        &self,
        kind: ServiceType,
        parameters: &Parameters<'_>,
        guid: u64,
    ) -> ConnectReply {
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
            // An XRC target sends nothing and receives into a shared queue. Its number is in the EECN
            // field.
            ServiceType::ExtendedConnection => ConnectReply {
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

    /// MRA: the application needs more time to answer.
    pub(crate) fn mra(&self, message: AcknowledgedMessage) -> ReceiptAcknowledge {
        ReceiptAcknowledge {
            local_id: self.local_id,
            remote_id: self.remote_id,
            message,
            service_timeout: timing::APPLICATION,
            ..ReceiptAcknowledge::default()
        }
    }

    /// The message of the peer that a REJ in this phase rejects.
    pub(crate) const fn rejected_message(&self) -> RejectedMessage {
        match self.phase {
            ExchangeState::RequestReceived => RejectedMessage::Request,
            ExchangeState::ReplyReceived => RejectedMessage::Reply,
            _ => RejectedMessage::None,
        }
    }

    pub(crate) fn reject(&self, reason: RejectReason, private_data: PrivateData<148>) -> Reject {
        Reject {
            local_id: self.local_id,
            remote_id: self.remote_id,
            message: self.rejected_message(),
            reason,
            private_data,
            ..Reject::default()
        }
    }

    /// REJ "timeout": we no longer wait for a response. It carries our GUID, because the peer may not
    /// know our communication id.
    pub(crate) fn reject_timeout(&self, guid: u64) -> Reject {
        let mut reject = self.reject(RejectReason::Timeout, PrivateData::default());
        let guid = guid.to_be_bytes();
        reject.information_length = guid.len() as u8;
        reject.information = PrivateData::new(&guid).expect("a GUID fits");
        reject
    }

    pub(crate) fn dreq(&self) -> DisconnectRequest {
        DisconnectRequest {
            local_id: self.local_id,
            remote_id: self.remote_id,
            remote_qpn: self.remote_qpn,
            ..DisconnectRequest::default()
        }
    }

    pub(crate) fn drep(&self) -> DisconnectReply {
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

/// The transaction ID of an exchange that we start. Linux puts the number of its MAD agent into the
/// high half; ours is always 1.
pub(crate) fn own_transaction(local_id: CommunicationId) -> u64 {
    1 << 32 | u64::from(local_id.value())
}

/// The flow label that Linux computes from the two ports.
pub(crate) fn flow_label(source_port: u16, destination_port: u16) -> u32 {
    (u32::from(source_port) * 31 + u32::from(destination_port)) & 0xf_ffff
}

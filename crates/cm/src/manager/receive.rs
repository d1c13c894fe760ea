//! What comes from the network.

use std::time::Instant;

use wire::cm::{
    AlternatePathResponse, AlternatePathStatus, AnsweredMessage, CmParseError, CommunicationId,
    LoadAlternatePath, Message, ReceiptAcknowledge, RefusedMessage, Reject, RejectReason,
};
use wire::mad;

use crate::event::EventKind;
use crate::id::{Id, Phase, State};
use crate::link::Peer;
use crate::manager::{Arrival, Manager};
use crate::timing;

impl Manager {
    /// Takes a datagram that came to queue pair 1. What is not a message is counted and dropped.
    pub fn handle_datagram(&mut self, now: Instant, arrival: Arrival, datagram: &[u8]) {
        let Ok(datagram) = <&[u8; mad::LENGTH]>::try_from(datagram) else {
            self.counters.malformed += 1;
            return;
        };
        match Message::parse(datagram) {
            Ok((header, message)) => {
                self.handle_message(now, arrival, header.transaction(), &message);
            }
            Err(CmParseError::UnknownAttribute(_)) => self.counters.unknown_attribute += 1,
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// Takes a message that is already parsed, together with the transaction of its header.
    pub fn handle_message(
        &mut self,
        now: Instant,
        arrival: Arrival,
        transaction: u64,
        message: &Message,
    ) {
        self.counters.received.count(message);
        match message {
            Message::ConnectRequest(m) => self.handle_request(now, arrival, transaction, m),
            Message::ReceiptAcknowledge(m) => self.handle_receipt(now, arrival, m),
            Message::Reject(m) => self.handle_reject(now, arrival, m),
            Message::ConnectReply(m) => self.handle_reply(now, arrival, transaction, m),
            Message::ReadyToUse(m) => self.handle_ready(arrival, m),
            Message::DisconnectRequest(m) => self.handle_part(now, arrival, transaction, m),
            Message::DisconnectReply(m) => self.handle_parted(now, arrival, m),
            Message::ServiceRequest(m) => self.handle_service_request(arrival, transaction, m),
            Message::ServiceReply(m) => self.handle_service_reply(arrival, m),
            Message::LoadAlternatePath(m) => self.handle_alternate(arrival, transaction, m),
            Message::AlternatePathResponse(_) => self.counters.unmatched += 1,
        }
    }

    /// The conversation that we call `local`, if the sender is our peer in it.
    pub(super) fn conversation(&mut self, arrival: Arrival, local: CommunicationId) -> Option<Id> {
        let Some(&id) = self.conversations.get(&local) else {
            self.counters.unmatched += 1;
            return None;
        };
        self.is_from_peer(arrival, id).then_some(id)
    }

    /// The conversation that we call `local` and the peer calls `remote`.
    pub(super) fn joint_conversation(
        &mut self,
        arrival: Arrival,
        local: CommunicationId,
        remote: CommunicationId,
    ) -> Option<Id> {
        let id = self.conversation(arrival, local)?;
        if self.link(id).remote_id != remote {
            self.counters.unmatched += 1;
            return None;
        }
        Some(id)
    }

    /// Where to answer somebody with whom there is no conversation.
    pub(super) fn answer_to(&self, arrival: Arrival) -> Peer {
        Peer {
            source: arrival.destination,
            destination: arrival.source,
            traffic_class: 0,
            hop_limit: self.config.hop_limit,
        }
    }

    fn is_from_peer(&mut self, arrival: Arrival, id: Id) -> bool {
        let is_peer = self.link(id).peer.destination == arrival.source;
        self.counters.wrong_source += u64::from(!is_peer);
        is_peer
    }

    /// The peer has our message and asks for time.
    fn handle_receipt(&mut self, now: Instant, arrival: Arrival, receipt: &ReceiptAcknowledge) {
        let Some(id) = self.conversation(arrival, receipt.remote_id) else {
            return;
        };
        let link = self.link(id);
        let delayed = match (link.phase, receipt.message) {
            (Phase::RequestSent, AnsweredMessage::Request) => Phase::RequestDelayed,
            (Phase::ReplySent, AnsweredMessage::Reply) if link.remote_id == receipt.local_id => {
                Phase::ReplyDelayed
            }
            (Phase::RequestDelayed | Phase::ReplyDelayed, _) => {
                self.counters.duplicates.count(&(*receipt).into());
                return;
            }
            _ => {
                self.counters.unmatched += 1;
                return;
            }
        };
        link.phase = delayed;
        let code = receipt.service_timeout.code();
        let delay = timing::bounded_interval(code, timing::LONGEST_DELAY) + link.timewait();
        let Some(in_flight) = &mut link.in_flight else {
            return;
        };
        let next = match in_flight.until {
            // Only once: then the time that is left is used to find out whether the RTU is lost.
            Some(until) => until.min(now + delay),
            None => {
                in_flight.interval = delay;
                now + delay
            }
        };
        self.set_timer(id, next);
    }

    /// The peer refuses, or gives up.
    fn handle_reject(&mut self, now: Instant, arrival: Arrival, reject: &Reject) {
        let Some(id) = self.rejected(arrival, reject) else {
            return;
        };
        let stale = reject.reason == RejectReason::StaleConnection;
        if stale && self.retry_stale(now, id) {
            return;
        }
        match self.link(id).phase {
            Phase::RequestSent | Phase::RequestDelayed if !stale => {
                self.forget_link(id);
            }
            Phase::RequestReceived | Phase::ReplySent | Phase::ReplyDelayed if !stale => {
                self.forget_request(now, id);
            }
            Phase::RequestSent
            | Phase::RequestDelayed
            | Phase::RequestReceived
            | Phase::ReplySent
            | Phase::ReplyDelayed
            | Phase::ReplyReceived
            | Phase::Established
            | Phase::DisconnectSent => self.enter_timewait(now, id),
            Phase::DisconnectReceived
            | Phase::TimeWait
            | Phase::ServiceRequestSent
            | Phase::ServiceRequestReceived => {
                self.counters.unmatched += 1;
                return;
            }
        }
        self.tell_rejected(id, reject);
    }

    pub(super) fn tell_rejected(&mut self, id: Id, reject: &Reject) {
        if self.known(id).state != State::Connect {
            return;
        }
        self.break_queue_pair(id);
        let kind = EventKind::Rejected {
            reason: reject.reason,
            private_data: reject.private_data.bytes().to_vec(),
        };
        self.emit(id, kind);
    }

    /// Which conversation a refusal is about. Who refuses a request may have no name for it; who
    /// gives up a request may not know ours, and names its device instead.
    fn rejected(&mut self, arrival: Arrival, reject: &Reject) -> Option<Id> {
        if reject.reason == RejectReason::Timeout {
            let guid = reject.information.bytes().first_chunk()?;
            let name = arrival.name(u64::from_be_bytes(*guid), reject.local_id);
            let Some(&id) = self.by_remote_name.get(&name) else {
                self.counters.unmatched += 1;
                return None;
            };
            return Some(id);
        }
        if reject.message != RefusedMessage::Request {
            return self.joint_conversation(arrival, reject.remote_id, reject.local_id);
        }
        let unknown = CommunicationId::default();
        self.joint_conversation(arrival, reject.remote_id, unknown)
    }

    /// RoCE has no alternate paths. Linux says nothing to a LAP; the specification asks for an
    /// answer, and the peer need not wait for its timeout then.
    fn handle_alternate(&mut self, arrival: Arrival, transaction: u64, load: &LoadAlternatePath) {
        let id = self.joint_conversation(arrival, load.remote_id, load.local_id);
        let status = match id {
            Some(_) => AlternatePathStatus::NotSupported,
            None => AlternatePathStatus::InvalidCommunicationId,
        };
        let response = AlternatePathResponse {
            local_id: load.remote_id,
            remote_id: load.local_id,
            status,
            ..AlternatePathResponse::default()
        };
        let peer = self.answer_to(arrival);
        self.send(peer, transaction, response);
    }
}

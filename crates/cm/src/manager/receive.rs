//! Received messages.

use std::time::Instant;

use wire::cm::{
    AcknowledgedMessage, AlternatePathResponse, AlternatePathStatus, CmParseError, CommunicationId,
    LoadAlternatePath, Message, ReceiptAcknowledge, Reject, RejectReason, RejectedMessage,
};
use wire::mad;

use crate::event::EventKind;
use crate::exchange::Peer;
use crate::exchange_state::ExchangeState;
use crate::id::{Id, State};
use crate::manager::{Addresses, Manager};
use crate::timing;

impl Manager {
    /// Handles a datagram that queue pair 1 received. A datagram that is no message is counted and
    /// dropped.
    pub fn handle_datagram(&mut self, now: Instant, addresses: Addresses, datagram: &[u8]) {
        let Ok(datagram) = <&[u8; mad::LENGTH]>::try_from(datagram) else {
            self.counters.malformed += 1;
            return;
        };
        match Message::parse(datagram) {
            Ok((header, message)) => {
                self.handle_message(now, addresses, header.transaction(), &message);
            }
            Err(CmParseError::UnknownAttribute(_)) => self.counters.unknown_attribute += 1,
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// Handles a parsed message with the transaction ID of its header.
    pub fn handle_message(
        &mut self,
        now: Instant,
        addresses: Addresses,
        transaction: u64,
        message: &Message,
    ) {
        self.counters.received.count(message);
        match message {
            Message::ConnectRequest(m) => self.handle_req(now, addresses, transaction, m),
            Message::ReceiptAcknowledge(m) => self.handle_mra(now, addresses, m),
            Message::Reject(m) => self.handle_rej(now, addresses, m),
            Message::ConnectReply(m) => self.handle_rep(now, addresses, transaction, m),
            Message::ReadyToUse(m) => self.handle_rtu(addresses, m),
            Message::DisconnectRequest(m) => self.handle_dreq(now, addresses, transaction, m),
            Message::DisconnectReply(m) => self.handle_drep(now, addresses, m),
            Message::ServiceRequest(m) => self.handle_sidr_req(addresses, transaction, m),
            Message::ServiceReply(m) => self.handle_sidr_rep(addresses, m),
            Message::LoadAlternatePath(m) => self.handle_lap(addresses, transaction, m),
            Message::AlternatePathResponse(_) => self.counters.unmatched += 1,
        }
    }

    /// The id with this communication id of ours, if the message comes from its peer.
    pub(super) fn find_by_local_id(
        &mut self,
        addresses: Addresses,
        local: CommunicationId,
    ) -> Option<Id> {
        let Some(&id) = self.by_local_id.get(&local) else {
            self.counters.unmatched += 1;
            return None;
        };
        self.is_from_peer(addresses, id).then_some(id)
    }

    /// The id with both communication ids, if the message comes from its peer.
    pub(super) fn find_by_both_ids(
        &mut self,
        addresses: Addresses,
        local: CommunicationId,
        remote: CommunicationId,
    ) -> Option<Id> {
        let id = self.find_by_local_id(addresses, local)?;
        if self.exchange(id).remote_id != remote {
            self.counters.unmatched += 1;
            return None;
        }
        Some(id)
    }

    /// The reverse path of a received message, for a response outside an exchange.
    pub(super) fn reverse_path(&self, addresses: Addresses) -> Peer {
        Peer {
            source: addresses.destination,
            destination: addresses.source,
            traffic_class: 0,
            hop_limit: self.config.hop_limit,
        }
    }

    fn is_from_peer(&mut self, addresses: Addresses, id: Id) -> bool {
        let is_peer = self.exchange(id).peer.destination == addresses.source;
        self.counters.wrong_source += u64::from(!is_peer);
        is_peer
    }

    /// MRA: the peer has our message and asks for more time.
    fn handle_mra(&mut self, now: Instant, addresses: Addresses, receipt: &ReceiptAcknowledge) {
        let Some(id) = self.find_by_local_id(addresses, receipt.remote_id) else {
            return;
        };
        let exchange = self.exchange(id);
        let delayed = match (exchange.phase, receipt.message) {
            (ExchangeState::RequestSent, AcknowledgedMessage::Request) => {
                ExchangeState::RequestDelayed
            }
            (ExchangeState::ReplySent, AcknowledgedMessage::Reply)
                if exchange.remote_id == receipt.local_id =>
            {
                ExchangeState::ReplyDelayed
            }
            (ExchangeState::RequestDelayed | ExchangeState::ReplyDelayed, _) => {
                self.counters.duplicates.count(&(*receipt).into());
                return;
            }
            _ => {
                self.counters.unmatched += 1;
                return;
            }
        };
        exchange.phase = delayed;
        let code = receipt.service_timeout.code();
        let delay = timing::bounded_interval(code, timing::MAX_MRA_CODE) + exchange.timewait();
        let Some(outstanding) = &mut exchange.outstanding else {
            return;
        };
        outstanding.early = &[];
        let next = match outstanding.until {
            // Only the first delay counts. The remaining time is for retransmissions, in case the
            // RTU is lost.
            Some(until) => until.min(now + delay),
            None => {
                outstanding.interval = delay;
                outstanding.since = now;
                now + delay
            }
        };
        self.set_timer(id, next);
    }

    /// REJ: the peer rejects, or timed out.
    pub(super) fn handle_rej(&mut self, now: Instant, addresses: Addresses, reject: &Reject) {
        let Some(id) = self.find_rejected(addresses, reject) else {
            return;
        };
        let stale = reject.reason == RejectReason::StaleConnection;
        if stale && self.retry_stale(now, id) || self.retry_smaller_mtu(now, id, reject) {
            return;
        }
        match self.exchange(id).phase {
            ExchangeState::RequestSent | ExchangeState::RequestDelayed if !stale => {
                self.remove_exchange(id);
            }
            ExchangeState::RequestReceived
            | ExchangeState::ReplySent
            | ExchangeState::ReplyDelayed
                if !stale =>
            {
                self.drop_request(now, id);
            }
            ExchangeState::RequestSent
            | ExchangeState::RequestDelayed
            | ExchangeState::RequestReceived
            | ExchangeState::ReplySent
            | ExchangeState::ReplyDelayed
            | ExchangeState::ReplyReceived
            | ExchangeState::Established
            | ExchangeState::DisconnectSent => self.enter_timewait(now, id),
            ExchangeState::DisconnectReceived
            | ExchangeState::TimeWait
            | ExchangeState::ServiceRequestSent
            | ExchangeState::ServiceRequestReceived => {
                self.counters.unmatched += 1;
                return;
            }
        }
        self.report_rejected(id, reject);
    }

    pub(super) fn report_rejected(&mut self, id: Id, reject: &Reject) {
        if self.known(id).destroyed {
            self.forget_destroyed(id);
            return;
        }
        if self.known(id).state != State::Connect {
            return;
        }
        self.move_to_error(id);
        let kind = EventKind::Rejected {
            reason: reject.reason,
            private_data: reject.private_data.bytes().to_vec(),
        };
        self.emit(id, kind);
    }

    /// The id that a REJ is for. A peer that rejects a request may have no communication id of its own.
    /// A peer that timed out may not know ours, and names its device instead.
    fn find_rejected(&mut self, addresses: Addresses, reject: &Reject) -> Option<Id> {
        if reject.reason == RejectReason::Timeout {
            let guid = reject.information.bytes().first_chunk()?;
            let remote = addresses.remote_connection(u64::from_be_bytes(*guid), reject.local_id);
            let Some(&id) = self.by_remote_connection.get(&remote) else {
                self.counters.unmatched += 1;
                return None;
            };
            return Some(id);
        }
        if reject.message != RejectedMessage::Request {
            return self.find_by_both_ids(addresses, reject.remote_id, reject.local_id);
        }
        let unknown = CommunicationId::default();
        self.find_by_both_ids(addresses, reject.remote_id, unknown)
    }

    /// RoCE has no alternate paths. A LAP is answered with an APR that says so (IBA "APR Message Contents"), which saves
    /// the peer a timeout. Linux does not answer.
    fn handle_lap(&mut self, addresses: Addresses, transaction: u64, load: &LoadAlternatePath) {
        let id = self.find_by_both_ids(addresses, load.remote_id, load.local_id);
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
        let peer = self.reverse_path(addresses);
        self.send_to(peer, transaction, response);
    }
}

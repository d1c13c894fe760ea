//! The active side: sends REQ, receives REP, REJ or MRA, sends RTU.

use std::time::Instant;

use wire::cm::{
    AcknowledgedMessage, AddressHeader, CommunicationId, ConnectReply, ConnectRequest, Message,
    Path, PrivateData, Reject, RejectReason, RejectedMessage, ServiceId,
};
use wire::{AckTimeout, Gid, PathMtu, Qpn};

use crate::config::Config;
use crate::error::CallError;
use crate::event::{EventKind, Failure, Instruction, MtuLimit, PeerParameters};
use crate::exchange::{self, Exchange, Peer};
use crate::exchange_state::ExchangeState;
use crate::id::{Id, IdEntry, ResolvedRoute, State};
use crate::manager::{Addresses, Manager, note};
use crate::parameters::{Parameters, private_data};
use crate::planted_bug::Bug;
use crate::service_type::ServiceType;
use crate::timing;

impl Manager {
    /// Requests a connection or a datagram service, like `rdma_connect`. Results in
    /// [`ConnectResponse`](EventKind::ConnectResponse) or
    /// [`ServiceFound`](EventKind::ServiceFound), in [`Rejected`](EventKind::Rejected) or in
    /// [`Unreachable`](EventKind::Unreachable).
    pub fn connect(
        &mut self,
        now: Instant,
        id: Id,
        parameters: &Parameters<'_>,
    ) -> Result<(), CallError> {
        let entry = self.entry(id)?;
        let Some(target) = Target::of(entry) else {
            return Err(CallError::WrongState(entry.state));
        };
        if entry.kind == ServiceType::Datagram {
            return self.request_service(now, id, &target, parameters);
        }
        let data = target.private_data::<92>(parameters.private_data, private_data::REQUEST)?;
        let (kind, first_psn) = (entry.kind, entry.first_psn);
        let communication_id = self.new_communication_id(id);
        let mut exchange =
            target.exchange(ExchangeState::RequestSent, communication_id, &self.config);
        exchange.receive_psn = first_psn;
        exchange.set_parameters(parameters);
        let mut request = request(&exchange, kind, parameters, data);
        request.local_guid = self.config.guid;
        let transaction = exchange.transaction;
        let entry = self.known(id);
        entry.state = State::Connect;
        entry.qpn = parameters.qpn;
        entry.exchange = Some(Box::new(exchange));
        self.send_until_response(now, id, transaction, request);
        Ok(())
    }

    /// The queue pair is in RTS: sends the RTU, like `rdma_establish`. The call follows
    /// [`ConnectResponse`](EventKind::ConnectResponse).
    pub fn establish(&mut self, id: Id) -> Result<(), CallError> {
        let entry = self.entry_mut(id)?;
        let Some(exchange) = entry.exchange.as_mut() else {
            return Err(CallError::WrongState(entry.state));
        };
        if exchange.phase != ExchangeState::ReplyReceived {
            return Err(CallError::WrongPhase);
        }
        exchange.phase = ExchangeState::Established;
        let ready = exchange.ready();
        self.send(id, ready);
        Ok(())
    }

    /// The peer accepted, but the queue pair could not be moved to RTS: sends a REJ, and reports
    /// [`ConnectError`](EventKind::ConnectError).
    pub fn connect_failed(&mut self, id: Id, failure: Failure) -> Result<(), CallError> {
        let entry = self.entry(id)?;
        if entry.phase() != Some(ExchangeState::ReplyReceived) {
            return Err(CallError::WrongPhase);
        }
        let exchange = self.exchange(id);
        let reject = exchange.reject(RejectReason::Consumer, PrivateData::default());
        self.send(id, reject);
        self.remove_exchange(id);
        self.emit(id, EventKind::ConnectError(failure));
        Ok(())
    }

    pub(super) fn handle_rep(
        &mut self,
        now: Instant,
        addresses: Addresses,
        transaction: u64,
        reply: &ConnectReply,
    ) {
        let Some(id) = self.find_by_local_id(addresses, reply.remote_id) else {
            return;
        };
        let exchange = self.exchange(id);
        if !matches!(
            exchange.phase,
            ExchangeState::RequestSent | ExchangeState::RequestDelayed
        ) {
            self.handle_duplicate_rep(id, reply);
            return;
        }
        let remote = addresses.remote_connection(reply.local_guid, reply.local_id);
        if self.by_remote_connection.contains_key(&remote) {
            self.counters.unmatched += 1;
            return;
        }
        let kind = self.known(id).kind;
        let remote_qpn = (
            addresses.device(reply.local_guid),
            replying_qpn(kind, reply),
        );
        if let Some(&stale) = self.by_remote_qpn.get(&remote_qpn) {
            let reject = Reject {
                local_id: reply.remote_id,
                remote_id: reply.local_id,
                message: RejectedMessage::Reply,
                reason: RejectReason::StaleConnection,
                ..Reject::default()
            };
            self.reject_stale(now, addresses, transaction, stale, reject);
            // The peer gives this connection up, so a second copy of its REP must not be accepted.
            if !self.retry_stale(now, id) {
                self.enter_timewait(now, id);
                self.report_rejected(id, &reject);
            }
            return;
        }
        self.by_remote_connection.insert(remote, id);
        self.by_remote_qpn.insert(remote_qpn, id);
        self.stop_retransmitting(id);
        self.exchange(id).set_reply(kind, reply);
        self.emit(
            id,
            EventKind::ConnectResponse(parameters_in_reply(kind, reply)),
        );
    }

    /// Our response to the peer's REP is lost or late: send it again.
    fn handle_duplicate_rep(&mut self, id: Id, reply: &ConnectReply) {
        let omit_ready = self.planted.is(Bug::ReadyNotSentAgain);
        let exchange = self.exchange(id);
        let response: Message = match exchange.phase {
            _ if exchange.remote_id != reply.local_id => {
                self.counters.unmatched += 1;
                return;
            }
            ExchangeState::Established if omit_ready => return,
            ExchangeState::Established => exchange.ready().into(),
            ExchangeState::ReplyReceived => exchange.mra(AcknowledgedMessage::Reply).into(),
            _ => {
                self.counters.duplicates.count(&(*reply).into());
                return;
            }
        };
        self.counters.duplicates.count(&(*reply).into());
        self.send(id, response);
    }

    /// The peer has an old connection of our queue pair's number, perhaps of a process that died. It
    /// ends that connection ([`reject_stale`](Self::reject_stale)), so we send the request once more with another
    /// communication id. Returns whether we do. Linux leaves this to the application.
    pub(super) fn retry_stale(&mut self, now: Instant, id: Id) -> bool {
        if self.exchange(id).was_stale {
            return false;
        }
        let mtu = self.exchange(id).mtu;
        let repeats = self.repeat_request(id, now + timing::STALE_RETRY_DELAY, mtu);
        self.exchange(id).was_stale = repeats;
        repeats
    }

    /// The peer's port has a smaller MTU: sends the request again with that one. Returns whether we do. Linux leaves this to
    /// the application.
    pub(super) fn retry_smaller_mtu(&mut self, now: Instant, id: Id, reject: &Reject) -> bool {
        let requested = self.exchange(id).mtu;
        let Some(allowed) = reject.acceptable_mtu().filter(|it| *it < requested) else {
            return false;
        };
        let repeats = self.repeat_request(id, now, allowed);
        if repeats {
            let limit = MtuLimit {
                local: self.local_address(id),
                peer: self.peer_address(id),
                is_ours: true,
                requested,
                allowed,
            };
            note(&mut self.mtu_limits, limit);
        }
        repeats
    }

    /// The next request that was rejected because of its path MTU, and told a smaller one.
    pub fn poll_mtu_limit(&mut self) -> Option<MtuLimit> {
        self.mtu_limits.pop_front()
    }

    /// Sends a request that was rejected once more, with another communication id. Returns false if none is pending.
    fn repeat_request(&mut self, id: Id, at: Instant, mtu: PathMtu) -> bool {
        let exchange = self.exchange(id);
        let is_pending = matches!(
            exchange.phase,
            ExchangeState::RequestSent | ExchangeState::RequestDelayed
        );
        let Some(outstanding) = exchange.outstanding.as_ref().filter(|_| is_pending) else {
            return false;
        };
        let Ok((_, Message::ConnectRequest(mut request))) = Message::parse(&outstanding.datagram)
        else {
            return false;
        };
        self.release_communication_id(request.local_id);
        request.local_id = self.new_communication_id(id);
        request.path_mtu = Some(mtu);
        let exchange = self.exchange(id);
        exchange.phase = ExchangeState::RequestSent;
        exchange.mtu = mtu;
        exchange.local_id = request.local_id;
        exchange.transaction = exchange::own_transaction(request.local_id);
        let datagram = Message::from(request).emit(exchange.transaction);
        let interval = exchange.response_interval;
        if let Some(outstanding) = &mut exchange.outstanding {
            *outstanding.datagram = datagram;
            outstanding.interval = interval;
            outstanding.early = &[];
        }
        self.set_timer(id, at);
        true
    }

    /// IBA 12.9.8.3.1: a request of a queue pair that is connected already shows that the known connection is stale;
    /// the request is rejected and the connection ended. Then the peer tries again. A half-open request is ended in
    /// the same way; Linux does not do that.
    pub(super) fn reject_stale(
        &mut self,
        now: Instant,
        addresses: Addresses,
        transaction: u64,
        stale: Id,
        reject: Reject,
    ) {
        self.counters.stale += 1;
        let peer = self.reverse_path(addresses);
        self.send_to(peer, transaction, reject);
        match self.exchange(stale).phase {
            ExchangeState::Established => {
                self.send_dreq(now, stale);
                // The peer's second request does not wait for the DREP, because there may be none.
                let exchange = self.exchange(stale);
                let remote = (exchange.remote_device(), exchange.remote_qpn);
                self.by_remote_qpn.remove(&remote);
            }
            ExchangeState::RequestReceived
            | ExchangeState::ReplySent
            | ExchangeState::ReplyDelayed => {
                self.drop_request(now, stale);
                self.report_rejected(stale, &reject);
            }
            _ => {}
        }
    }

    pub(super) fn move_to_error(&mut self, id: Id) {
        let entry = self.known(id);
        let qpn = entry.qpn;
        if entry.kind != ServiceType::Datagram && qpn.value() != 0 {
            self.instructions
                .push_back(Instruction::MoveToError { id, qpn });
        }
    }
}

impl Exchange {
    fn set_parameters(&mut self, parameters: &Parameters<'_>) {
        self.local_qpn = parameters.qpn;
        self.responder_resources = parameters.responder_resources;
        self.initiator_depth = parameters.initiator_depth;
        self.retry_count = parameters.retry_count.min(7);
    }

    fn set_reply(&mut self, kind: ServiceType, reply: &ConnectReply) {
        self.phase = ExchangeState::ReplyReceived;
        self.remote_id = reply.local_id;
        self.remote_guid = reply.local_guid;
        self.remote_qpn = replying_qpn(kind, reply);
        self.send_psn = reply.starting_psn;
        self.initiator_depth = reply.responder_resources;
        self.responder_resources = reply.initiator_depth;
        self.rnr_retry_count = reply.rnr_retry_count;
        let lifetime = self.ack_timeout - 1;
        self.ack_timeout = timing::ack_timeout(reply.target_ack_delay.code(), lifetime);
    }
}

/// The peer that an id is about to connect to: its service, addresses and route.
pub(super) struct Target {
    pub(super) service: ServiceId,
    pub(super) peer: Peer,
    route: ResolvedRoute,
    header: AddressHeader,
    flow_label: u32,
    /// The code of the packet lifetime.
    lifetime: u8,
}

impl Target {
    /// None before the route is resolved.
    fn of(entry: &IdEntry) -> Option<Target> {
        let (State::RouteResolved, Some(source), Some(destination), Some(route)) =
            (entry.state, entry.source, entry.destination, entry.route)
        else {
            return None;
        };
        let timeout = entry.options.ack_timeout.map_or(0, AckTimeout::code);
        Some(Target {
            service: ServiceId::of_port(entry.space, destination.port()),
            peer: Peer {
                source: source.ip(),
                destination: destination.ip(),
                traffic_class: entry.options.traffic_class,
                hop_limit: route.hop_limit,
            },
            route,
            header: AddressHeader {
                source_port: source.port(),
                source: source.ip(),
                destination: destination.ip(),
            },
            flow_label: exchange::flow_label(source.port(), destination.port()),
            lifetime: timeout.checked_sub(1).unwrap_or(timing::PACKET_LIFETIME),
        })
    }

    /// A new exchange with this peer. The response interval is the round trip plus the peer's response
    /// timeout.
    fn exchange(
        &self,
        phase: ExchangeState,
        communication_id: CommunicationId,
        config: &Config,
    ) -> Exchange {
        let mut exchange = Exchange::new(phase, self.peer, communication_id);
        exchange.service = self.service;
        exchange.path = self.path(config);
        exchange.mtu = self.route.mtu;
        exchange.ack_timeout = self.lifetime + 1;
        exchange.response_interval =
            2 * timing::interval(self.lifetime) + timing::interval(timing::RESPONSE.code());
        exchange
    }

    /// The path for the REQ and for address handles. RoCE has no LIDs; Linux writes the permissive LID
    /// when a packet may be routed.
    pub(super) fn path(&self, config: &Config) -> Path {
        let routed = self.route.hop_limit > 1;
        let lid = if routed { 0xffff } else { 0 };
        let timeout = timing::ack_timeout(config.ack_delay.code(), self.lifetime);
        Path {
            local_lid: lid,
            remote_lid: lid,
            local_gid: Gid::from(self.peer.source),
            remote_gid: Gid::from(self.peer.destination),
            flow_label: self.flow_label,
            packet_rate: self.route.packet_rate & 0x3f,
            traffic_class: self.peer.traffic_class,
            hop_limit: self.route.hop_limit,
            service_level: self.route.service_level & 0xf,
            subnet_local: !routed,
            local_ack_timeout: AckTimeout::new(timeout).expect("at most the largest code"),
        }
    }

    /// The address header, followed by the application's private data.
    pub(super) fn private_data<const N: usize>(
        &self,
        data: &[u8],
        max: usize,
    ) -> Result<PrivateData<N>, CallError> {
        let length = data.len();
        if length > max {
            return Err(wire::cm::PrivateDataTooLong { length, max }.into());
        }
        let all = [&self.header.emit(), data].concat();
        Ok(PrivateData::new(&all)?)
    }
}

fn request(
    exchange: &Exchange,
    kind: ServiceType,
    parameters: &Parameters<'_>,
    private_data: PrivateData<92>,
) -> ConnectRequest {
    let request = ConnectRequest {
        local_id: exchange.local_id,
        service_id: exchange.service,
        local_qpn: exchange.local_qpn,
        responder_resources: exchange.responder_resources,
        initiator_depth: exchange.initiator_depth,
        remote_response_timeout: timing::RESPONSE,
        service: kind.service(),
        extended_transport: kind.extended_transport(),
        flow_control: parameters.flow_control,
        starting_psn: exchange.receive_psn,
        local_response_timeout: timing::RESPONSE,
        retry_count: exchange.retry_count,
        partition: exchange.partition,
        path_mtu: Some(exchange.mtu),
        rnr_retry_count: parameters.rnr_retry_count.min(7),
        max_cm_retries: timing::MAX_RETRIES,
        shared_receive_queue: parameters.shared_receive_queue,
        primary: exchange.path,
        private_data,
        ..ConnectRequest::default()
    };
    match kind {
        // An XRC initiator receives nothing, so the values for the peer's sending are zero.
        ServiceType::ExtendedConnection => ConnectRequest {
            responder_resources: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            shared_receive_queue: false,
            ..request
        },
        _ => request,
    }
}

/// The queue pair number in a REP. The number of an XRC target is in the EECN field.
fn replying_qpn(kind: ServiceType, reply: &ConnectReply) -> Qpn {
    match kind {
        ServiceType::ExtendedConnection => reply.local_eecn,
        _ => reply.local_qpn,
    }
}

/// The peer's parameters from our point of view: its initiator depth is our responder resources.
fn parameters_in_reply(kind: ServiceType, reply: &ConnectReply) -> PeerParameters {
    PeerParameters {
        remote_qpn: replying_qpn(kind, reply),
        shared_receive_queue: reply.shared_receive_queue,
        responder_resources: reply.initiator_depth,
        initiator_depth: reply.responder_resources,
        flow_control: reply.flow_control,
        retry_count: 0,
        rnr_retry_count: reply.rnr_retry_count,
        private_data: reply.private_data.bytes().to_vec(),
    }
}

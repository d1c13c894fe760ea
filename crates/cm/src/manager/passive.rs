//! The passive side: receives REQ, sends REP or REJ, receives RTU.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use wire::cm::{
    AcknowledgedMessage, AddressHeader, CommunicationId, ConnectReply, ConnectRequest, Message,
    PrivateData, ReadyToUse, Reject, RejectReason, RejectedMessage, ServiceId,
};
use wire::{Gid, PathMtu, Qpn};

use crate::error::CallError;
use crate::event::{EventKind, MtuLimit, PeerParameters, Request};
use crate::exchange::{self, Exchange};
use crate::exchange_state::ExchangeState;
use crate::id::{Id, State};
use crate::manager::{Addresses, Manager, note};
use crate::parameters::{Parameters, private_data};
use crate::planted_bug::Bug;
use crate::retained_state::{PeerRequest, Source};
use crate::service_type::ServiceType;
use crate::timing;

/// A request that passed all checks.
struct Admitted {
    listener: Id,
    header: AddressHeader,
    mtu: PathMtu,
}

/// Why a request is not delivered to the application.
enum NotAdmitted {
    /// It is a duplicate of this id's request.
    Duplicate(Id),
    /// It has a final response.
    HasResponse(Box<[u8; wire::mad::LENGTH]>),
    /// Its queue pair is already connected by this id.
    Stale(Id),
    /// Reject it.
    Reject(RejectReason),
    /// Drop it without a response.
    Drop,
}

impl Manager {
    /// Accepts a connection or answers a request for a datagram service, like `rdma_accept`. The queue
    /// pair of a connection must be in RTR before, and [`Established`](EventKind::Established)
    /// follows. For a service no event follows.
    pub fn accept(
        &mut self,
        now: Instant,
        id: Id,
        parameters: &Parameters<'_>,
    ) -> Result<(), CallError> {
        let entry = self.entry(id)?;
        match entry.phase() {
            Some(ExchangeState::RequestReceived) => {}
            Some(ExchangeState::ServiceRequestReceived) => {
                return self.accept_service(now, id, parameters);
            }
            Some(_) => return Err(CallError::WrongPhase),
            None => return Err(CallError::WrongState(entry.state)),
        }
        let data = PrivateData::<{ private_data::REPLY }>::new(parameters.private_data)?;
        let (guid, ack_delay) = (self.config.guid, self.config.ack_delay);
        let kind = entry.kind;
        self.leave_backlog(id);
        self.known(id).qpn = parameters.qpn;
        let exchange = self.exchange(id);
        exchange.phase = ExchangeState::ReplySent;
        exchange.local_qpn = parameters.qpn;
        exchange.responder_resources = parameters.responder_resources;
        exchange.initiator_depth = parameters.initiator_depth;
        let transaction = exchange.transaction;
        let reply = ConnectReply {
            target_ack_delay: ack_delay,
            private_data: data,
            ..exchange.reply(kind, parameters, guid)
        };
        self.by_local_qpn.insert(parameters.qpn, id);
        self.send_until_response(now, id, transaction, reply);
        let longest = self.longest_half_open_time(id);
        if let Some(outstanding) = &mut self.exchange(id).outstanding {
            outstanding.until = Some(now + longest);
        }
        Ok(())
    }

    /// How long a request may stay unconfirmed that is accepted now.
    fn longest_half_open_time(&mut self, id: Id) -> Duration {
        let source = self.known(id).half_open;
        if source.is_some_and(|source| self.half_open.is_crowded(source)) {
            timing::CROWDED_HALF_OPEN_TIME
        } else {
            timing::MAX_HALF_OPEN_TIME
        }
    }

    /// Rejects a connection or a datagram service, like `rdma_reject`. Applications use
    /// [`RejectReason::Consumer`]. The reason is not sent for services.
    pub fn reject(
        &mut self,
        now: Instant,
        id: Id,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), CallError> {
        let entry = self.entry(id)?;
        match entry.phase() {
            Some(ExchangeState::RequestReceived) => {}
            Some(ExchangeState::ReplyReceived) => {
                let data = PrivateData::new(private_data)?;
                let reject = self.exchange(id).reject(reason, data);
                self.send(id, reject);
                self.remove_exchange(id);
                return Ok(());
            }
            // As on Linux, an application can change its mind until the peer is ready.
            Some(ExchangeState::ReplySent | ExchangeState::ReplyDelayed) => {
                let data = PrivateData::new(private_data)?;
                let reject = self.exchange(id).reject(reason, data);
                self.send(id, reject);
                self.enter_timewait(now, id);
                return Ok(());
            }
            Some(ExchangeState::ServiceRequestReceived) => {
                return self.reject_service(now, id, private_data);
            }
            Some(_) => return Err(CallError::WrongPhase),
            None => return Err(CallError::WrongState(entry.state)),
        }
        let data = PrivateData::new(private_data)?;
        self.reject_request(now, id, reason, data);
        Ok(())
    }

    /// A queue pair received a packet before the RTU arrived. The peer must be ready, so the connection
    /// is established. Returns whether it was not established before.
    pub fn notify_established(&mut self, qpn: Qpn) -> bool {
        let Some(&id) = self.by_local_qpn.get(&qpn) else {
            return false;
        };
        self.establish_passive(id)
    }

    /// The program says the same of an id, like `rdma_notify`. It may have the queue pair elsewhere.
    pub fn notify(&mut self, id: Id) -> Result<bool, CallError> {
        let entry = self.entry(id)?;
        match entry.phase() {
            Some(ExchangeState::ReplySent | ExchangeState::ReplyDelayed) => {
                Ok(self.establish_passive(id))
            }
            Some(ExchangeState::Established) => Ok(false),
            Some(_) => Err(CallError::WrongPhase),
            None => Err(CallError::WrongState(entry.state)),
        }
    }

    pub(super) fn handle_rtu(&mut self, addresses: Addresses, ready: &ReadyToUse) {
        let Some(id) = self.find_by_both_ids(addresses, ready.remote_id, ready.local_id) else {
            return;
        };
        if !self.establish_passive(id) {
            self.counters.duplicates.count(&(*ready).into());
        }
    }

    pub(super) fn handle_req(
        &mut self,
        now: Instant,
        addresses: Addresses,
        transaction: u64,
        request: &ConnectRequest,
    ) {
        match self.admit_request(addresses, request) {
            Ok(admitted) => self.deliver_request(addresses, transaction, request, &admitted),
            Err(rejected) => {
                self.respond_to_not_admitted(now, addresses, transaction, request, rejected);
            }
        }
    }

    /// Sends the final REJ, and remembers it in case it is lost.
    pub(super) fn reject_request(
        &mut self,
        now: Instant,
        id: Id,
        reason: RejectReason,
        data: PrivateData<148>,
    ) {
        let exchange = self.exchange(id);
        let remote = exchange.remote_connection();
        let (peer, transaction) = (exchange.peer, exchange.transaction);
        let reject = Message::from(exchange.reject(reason, data));
        let datagram = reject.emit(transaction);
        if !self.planted.is(Bug::RejectForgotten) {
            self.responses
                .remember(now, PeerRequest::Connection(remote), datagram);
        }
        self.leave_backlog(id);
        self.remove_exchange(id);
        self.send_to(peer, transaction, reject);
    }

    /// The peer gave its request up, or died. A late copy of the request is answered with a REJ
    /// "stale", and not delivered to the application.
    pub(super) fn drop_request(&mut self, now: Instant, id: Id) {
        let exchange = self.exchange(id);
        let stale = Reject {
            local_id: CommunicationId::default(),
            message: RejectedMessage::Request,
            ..exchange.reject(RejectReason::StaleConnection, PrivateData::default())
        };
        let datagram = Message::from(stale).emit(exchange.transaction);
        let request_key = PeerRequest::Connection(exchange.remote_connection());
        self.responses.remember(now, request_key, datagram);
        self.remove_exchange(id);
    }

    fn establish_passive(&mut self, id: Id) -> bool {
        if !matches!(
            self.exchange(id).phase,
            ExchangeState::ReplySent | ExchangeState::ReplyDelayed
        ) {
            return false;
        }
        self.stop_retransmitting(id);
        self.exchange(id).phase = ExchangeState::Established;
        self.emit(id, EventKind::Established);
        true
    }

    /// The checks in the order of Linux, except for the last. No check changes state.
    fn admit_request(
        &self,
        addresses: Addresses,
        request: &ConnectRequest,
    ) -> Result<Admitted, NotAdmitted> {
        self.check_is_new(addresses, request)?;
        let listener = self
            .listener(request.service_id, addresses.destination)
            .ok_or(NotAdmitted::Reject(RejectReason::InvalidServiceId))?;
        let header = address_header(request.private_data.bytes()).ok_or(NotAdmitted::Drop)?;
        if !matches_packet(request, &header, addresses) {
            return Err(NotAdmitted::Reject(RejectReason::PrimaryGidRejected));
        }
        let asked_for = ServiceType::asked_for(request.service, request.extended_transport);
        if asked_for != self.id_table.get(listener).map(|listener| listener.kind) {
            // Linux leaves this check to the consumer.
            return Err(NotAdmitted::Reject(RejectReason::Consumer));
        }
        // Linux accepts any MTU, and loses the packets that are too long for its interface.
        let mtu = (request.path_mtu)
            .filter(|mtu| *mtu <= self.config.max_mtu)
            .ok_or(NotAdmitted::Reject(RejectReason::InvalidPathMtu))?;
        // Last, because it ends a connection: a sender that guesses queue pair numbers must not end
        // one with a request that would be rejected anyway.
        let remote_qpn = (addresses.device(request.local_guid), request.local_qpn);
        if let Some(&stale) = self.by_remote_qpn.get(&remote_qpn) {
            return Err(NotAdmitted::Stale(stale));
        }
        Ok(Admitted {
            listener,
            header,
            mtu,
        })
    }

    fn check_is_new(
        &self,
        addresses: Addresses,
        request: &ConnectRequest,
    ) -> Result<(), NotAdmitted> {
        let remote = addresses.remote_connection(request.local_guid, request.local_id);
        if let Some(&id) = self.by_remote_connection.get(&remote) {
            return Err(NotAdmitted::Duplicate(id));
        }
        if let Some(response) = self.responses.to(&PeerRequest::Connection(remote)) {
            return Err(NotAdmitted::HasResponse(Box::new(*response)));
        }
        match self.time_wait.of_remote(&remote) {
            Some(_) => Err(NotAdmitted::Reject(RejectReason::StaleConnection)),
            None => Ok(()),
        }
    }

    fn respond_to_not_admitted(
        &mut self,
        now: Instant,
        addresses: Addresses,
        transaction: u64,
        request: &ConnectRequest,
        reason: NotAdmitted,
    ) {
        let max_mtu = self.config.max_mtu;
        let reject = |reason| reject_of(request, reason);
        let peer = self.reverse_path(addresses);
        match reason {
            NotAdmitted::Duplicate(id) => self.handle_duplicate_req(id, request),
            NotAdmitted::HasResponse(response) => {
                self.counters.duplicates.count(&(*request).into());
                self.counters.sent.count_attribute(Reject::ATTRIBUTE);
                self.enqueue(peer, &response);
            }
            NotAdmitted::Stale(stale) => {
                let reject = reject(RejectReason::StaleConnection);
                // The peer sends a new request with another communication id. A late copy of this
                // request must not be delivered to the application as well.
                let remote = addresses.remote_connection(request.local_guid, request.local_id);
                let datagram = Message::from(reject).emit(transaction);
                self.responses
                    .remember(now, PeerRequest::Connection(remote), datagram);
                self.reject_stale(now, addresses, transaction, stale, reject);
            }
            NotAdmitted::Reject(reason @ RejectReason::InvalidPathMtu) => {
                if let Some(requested) = request.path_mtu {
                    let limit = MtuLimit {
                        local: Some((peer.source, request.service_id.value() as u16).into()),
                        peer: Some((peer.destination, 0).into()),
                        is_ours: false,
                        requested,
                        allowed: max_mtu,
                    };
                    note(&mut self.mtu_limits, limit);
                }
                self.send_to(
                    peer,
                    transaction,
                    reject(reason).with_acceptable_mtu(max_mtu),
                );
            }
            NotAdmitted::Reject(reason) => {
                let unserved = reason == RejectReason::InvalidServiceId;
                self.counters.no_listener += u64::from(unserved);
                self.send_to(peer, transaction, reject(reason));
            }
            NotAdmitted::Drop => self.counters.malformed += 1,
        }
    }

    /// Our response to the peer's REQ is lost or late: send it again.
    fn handle_duplicate_req(&mut self, id: Id, request: &ConnectRequest) {
        self.counters.duplicates.count(&(*request).into());
        let exchange = self.exchange(id);
        let peer = exchange.peer;
        let response: Message = match exchange.phase {
            ExchangeState::RequestReceived => exchange.mra(AcknowledgedMessage::Request).into(),
            ExchangeState::TimeWait => reject_of(request, RejectReason::StaleConnection).into(),
            ExchangeState::ReplySent => {
                let Some(reply) = &exchange.outstanding else {
                    return;
                };
                let datagram = *reply.datagram;
                self.counters.sent.count_attribute(ConnectReply::ATTRIBUTE);
                self.enqueue(peer, &datagram);
                return;
            }
            _ => return,
        };
        self.send(id, response);
    }

    /// Creates a child id and delivers the request to the application. If a limit is reached, the
    /// request is dropped without a response, as on Linux: the peer retransmits it.
    fn deliver_request(
        &mut self,
        addresses: Addresses,
        transaction: u64,
        request: &ConnectRequest,
        admitted: &Admitted,
    ) {
        let service = request.service_id;
        let Some(id) = self.new_child(admitted.listener, service, &admitted.header) else {
            return;
        };
        let communication_id = self.new_communication_id(id);
        let peer = self.reverse_path(addresses);
        let mut exchange = Exchange::new(ExchangeState::RequestReceived, peer, communication_id);
        exchange.peer.traffic_class = request.primary.traffic_class;
        exchange.transaction = transaction;
        exchange.receive_psn = self.known(id).first_psn;
        exchange.mtu = admitted.mtu;
        exchange.set_request(request);
        exchange.path.hop_limit = peer.hop_limit;
        self.by_remote_connection
            .insert(exchange.remote_connection(), id);
        let remote_qpn = (exchange.remote_device(), exchange.remote_qpn);
        self.by_remote_qpn.insert(remote_qpn, id);
        self.known(id).exchange = Some(Box::new(exchange));
        let request = Request::Connection(parameters_in_request(request));
        let listener = admitted.listener;
        self.emit(id, EventKind::ConnectRequest { listener, request });
    }

    /// Creates a child id for a listener's request, unless a limit is reached.
    pub(super) fn new_child(
        &mut self,
        listener: Id,
        service: ServiceId,
        header: &AddressHeader,
    ) -> Option<Id> {
        if self.id_count() >= self.config.max_ids {
            self.counters.too_many_ids += 1;
            return None;
        }
        let source = Source::of(header.source);
        if !self.half_open.has_room(source) {
            self.counters.half_open_full += 1;
            return None;
        }
        let parent = self.known(listener);
        let (space, kind) = (parent.space, parent.kind);
        let backlog = parent.backlog.as_mut().expect("a listener has a backlog");
        if backlog.waiting >= backlog.limit {
            self.counters.backlog_full += 1;
            return None;
        }
        backlog.waiting += 1;
        let id = self.create_unchecked(space, kind);
        let port = service.value() as u16;
        let child = self.known(id);
        child.state = State::Connect;
        child.source = Some(SocketAddr::new(header.destination, port));
        child.destination = Some(SocketAddr::new(header.source, header.source_port));
        child.backlog_of = Some(listener);
        child.half_open = Some(source);
        self.half_open.add(source);
        Some(id)
    }
}

impl Exchange {
    fn set_request(&mut self, request: &ConnectRequest) {
        self.service = request.service_id;
        self.remote_id = request.local_id;
        self.remote_guid = request.local_guid;
        self.remote_qpn = request.local_qpn;
        self.path = exchange::reversed(&request.primary);
        self.partition = request.partition;
        self.send_psn = request.starting_psn;
        self.responder_resources = request.initiator_depth;
        self.initiator_depth = request.responder_resources;
        self.retry_count = request.retry_count;
        self.rnr_retry_count = request.rnr_retry_count;
        self.ack_timeout = request.primary.local_ack_timeout.code().max(1);
        let code = request.local_response_timeout.code();
        self.response_interval = timing::bounded_interval(code, timing::MAX_RESPONSE_CODE);
        self.max_retries = request.max_cm_retries;
    }
}

/// Whether the path and the address header of a request match its packet. Otherwise we would send
/// responses and data to a host that did not request them.
fn matches_packet(request: &ConnectRequest, header: &AddressHeader, addresses: Addresses) -> bool {
    let path = &request.primary;
    path.local_gid == Gid::from(addresses.source)
        && path.remote_gid == Gid::from(addresses.destination)
        && are_addresses_of(header, addresses)
}

/// Whether the address header of a request matches its packet.
pub(super) fn are_addresses_of(header: &AddressHeader, addresses: Addresses) -> bool {
    header.source == addresses.source && header.destination == addresses.destination
}

/// The address header in front of the application's private data.
pub(super) fn address_header(data: &[u8]) -> Option<AddressHeader> {
    AddressHeader::parse(data.first_chunk()?).ok()
}

/// A REJ without a communication id of ours.
fn reject_of(request: &ConnectRequest, reason: RejectReason) -> Reject {
    Reject {
        remote_id: request.local_id,
        message: RejectedMessage::Request,
        reason,
        ..Reject::default()
    }
}

/// The peer's parameters from our point of view: its initiator depth is our responder resources.
fn parameters_in_request(request: &ConnectRequest) -> PeerParameters {
    PeerParameters {
        remote_qpn: request.local_qpn,
        shared_receive_queue: request.shared_receive_queue,
        responder_resources: request.initiator_depth,
        initiator_depth: request.responder_resources,
        flow_control: request.flow_control,
        retry_count: request.retry_count,
        rnr_retry_count: request.rnr_retry_count,
        private_data: request.private_data.bytes()[AddressHeader::LENGTH..].to_vec(),
    }
}

//! The side that is connected to: REQ comes, REP or REJ goes, RTU comes.

use std::net::SocketAddr;
use std::time::Instant;

use wire::cm::{
    AddressHeader, AnsweredMessage, CommunicationId, ConnectReply, ConnectRequest, Message,
    PrivateData, ReadyToUse, RefusedMessage, Reject, RejectReason, ServiceId,
};
use wire::{Gid, PathMtu, Qpn};

use crate::error::CallError;
use crate::event::{EventKind, Offer, Request};
use crate::id::{Id, Kind, Phase, State};
use crate::link::{self, Link};
use crate::manager::{Arrival, Manager};
use crate::memory::{Asked, Source};
use crate::parameters::{Parameters, private_data};
use crate::sabotage::Bug;
use crate::timing;

/// A request that nothing speaks against.
struct Admitted {
    listener: Id,
    header: AddressHeader,
    mtu: PathMtu,
}

/// What is to be done with a request that is not for the application.
enum Refused {
    /// It was answered before.
    Repeated(Id),
    /// It was answered for good, or the connection has already ended.
    Over(Box<[u8; wire::mad::LENGTH]>),
    /// Its queue pair is connected.
    Stale(Id),
    /// Say why.
    Because(RejectReason),
    /// Say nothing.
    Silently,
}

impl Manager {
    /// Agrees to a connection or serves a datagram service, like `rdma_accept`. For a connection
    /// the queue pair must be ready to receive before, and [`Established`](EventKind::Established)
    /// follows; for a service nothing follows.
    pub fn accept(
        &mut self,
        now: Instant,
        id: Id,
        parameters: &Parameters<'_>,
    ) -> Result<(), CallError> {
        let endpoint = self.endpoint(id)?;
        match endpoint.phase() {
            Some(Phase::RequestReceived) => {}
            Some(Phase::ServiceRequestReceived) => return self.serve(now, id, parameters),
            Some(_) => return Err(CallError::WrongPhase),
            None => return Err(CallError::WrongState(endpoint.state)),
        }
        let data = PrivateData::<{ private_data::REPLY }>::new(parameters.private_data)?;
        let (guid, ack_delay) = (self.config.guid, self.config.ack_delay);
        let kind = endpoint.kind;
        self.leave_waiting_room(id);
        self.known(id).qpn = parameters.qpn;
        let link = self.link(id);
        link.phase = Phase::ReplySent;
        link.local_qpn = parameters.qpn;
        link.responder_resources = parameters.responder_resources;
        link.initiator_depth = parameters.initiator_depth;
        let transaction = link.transaction;
        let reply = ConnectReply {
            target_ack_delay: ack_delay,
            private_data: data,
            ..link.reply(kind, parameters, guid)
        };
        self.by_local_qpn.insert(parameters.qpn, id);
        self.ask(now, id, transaction, reply);
        if let Some(in_flight) = &mut self.link(id).in_flight {
            in_flight.until = Some(now + timing::LONGEST_HALF_OPEN);
        }
        Ok(())
    }

    /// Refuses a connection or a datagram service, like `rdma_reject`. Applications say
    /// [`RejectReason::Consumer`]; for services the reason is not told.
    pub fn reject(
        &mut self,
        now: Instant,
        id: Id,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), CallError> {
        let endpoint = self.endpoint(id)?;
        match endpoint.phase() {
            Some(Phase::RequestReceived) => {}
            Some(Phase::ReplyReceived) => {
                let data = PrivateData::new(private_data)?;
                let refusal = self.link(id).refusal(reason, data);
                self.say(id, refusal);
                self.forget_link(id);
                return Ok(());
            }
            Some(Phase::ServiceRequestReceived) => {
                return self.refuse_service(now, id, private_data);
            }
            Some(_) => return Err(CallError::WrongPhase),
            None => return Err(CallError::WrongState(endpoint.state)),
        }
        let data = PrivateData::new(private_data)?;
        self.refuse_request(now, id, reason, data);
        Ok(())
    }

    /// A queue pair got a packet before the RTU did: the peer must be ready, so the connection is
    /// established. Returns whether that was news.
    pub fn notify_established(&mut self, qpn: Qpn) -> bool {
        let Some(&id) = self.by_local_qpn.get(&qpn) else {
            return false;
        };
        self.peer_is_ready(id)
    }

    pub(super) fn handle_ready(&mut self, arrival: Arrival, ready: &ReadyToUse) {
        let Some(id) = self.joint_conversation(arrival, ready.remote_id, ready.local_id) else {
            return;
        };
        if !self.peer_is_ready(id) {
            self.counters.duplicates.count(&(*ready).into());
        }
    }

    pub(super) fn handle_request(
        &mut self,
        now: Instant,
        arrival: Arrival,
        transaction: u64,
        request: &ConnectRequest,
    ) {
        match self.admit_request(arrival, request) {
            Ok(admitted) => self.welcome(arrival, transaction, request, &admitted),
            Err(refused) => self.turn_away(now, arrival, transaction, request, refused),
        }
    }

    /// Refuses for good, and remembers it for the case that the peer does not hear it.
    pub(super) fn refuse_request(
        &mut self,
        now: Instant,
        id: Id,
        reason: RejectReason,
        data: PrivateData<148>,
    ) {
        let link = self.link(id);
        let name = link.remote_name();
        let (peer, transaction) = (link.peer, link.transaction);
        let refusal = Message::from(link.refusal(reason, data));
        let datagram = refusal.emit(transaction);
        if !self.sabotage.has(Bug::RefusalForgotten) {
            self.answers
                .remember(now, Asked::Connection(name), datagram);
        }
        self.leave_waiting_room(id);
        self.forget_link(id);
        self.send(peer, transaction, refusal);
    }

    /// The peer gave its request up, or died. Copies of the request may still be under way, and
    /// must not come to the application as new ones.
    pub(super) fn forget_request(&mut self, now: Instant, id: Id) {
        let link = self.link(id);
        let stale = Reject {
            local_id: CommunicationId::default(),
            message: RefusedMessage::Request,
            ..link.refusal(RejectReason::StaleConnection, PrivateData::default())
        };
        let datagram = Message::from(stale).emit(link.transaction);
        let asked = Asked::Connection(link.remote_name());
        self.answers.remember(now, asked, datagram);
        self.forget_link(id);
    }

    fn peer_is_ready(&mut self, id: Id) -> bool {
        if !matches!(self.link(id).phase, Phase::ReplySent | Phase::ReplyDelayed) {
            return false;
        }
        self.stop_asking(id);
        self.link(id).phase = Phase::Established;
        self.emit(id, EventKind::Established);
        true
    }

    /// The checks in the order of Linux, except for the last; none of them changes anything.
    fn admit_request(
        &self,
        arrival: Arrival,
        request: &ConnectRequest,
    ) -> Result<Admitted, Refused> {
        self.check_news(arrival, request)?;
        let listener = self
            .listener(request.service_id, arrival.destination)
            .ok_or(Refused::Because(RejectReason::InvalidServiceId))?;
        let header = addresses(request.private_data.bytes()).ok_or(Refused::Silently)?;
        if !names_addresses(request, &header, arrival) {
            return Err(Refused::Because(RejectReason::PrimaryGidRejected));
        }
        let asked_for = Kind::asked_for(request.service, request.extended_transport);
        if asked_for != self.endpoints.get(listener).map(|listener| listener.kind) {
            // Linux leaves it to the consumer to find a connection of the wrong kind.
            return Err(Refused::Because(RejectReason::Consumer));
        }
        let mtu = request
            .path_mtu
            .ok_or(Refused::Because(RejectReason::InvalidPathMtu))?;
        // Last: it ends a connection. A stranger that guesses queue pair numbers must not do so by
        // requests that nobody would have accepted.
        let remote_qpn = (arrival.device(request.local_guid), request.local_qpn);
        if let Some(&stale) = self.by_remote_qpn.get(&remote_qpn) {
            return Err(Refused::Stale(stale));
        }
        Ok(Admitted {
            listener,
            header,
            mtu,
        })
    }

    fn check_news(&self, arrival: Arrival, request: &ConnectRequest) -> Result<(), Refused> {
        let name = arrival.name(request.local_guid, request.local_id);
        if let Some(&id) = self.by_remote_name.get(&name) {
            return Err(Refused::Repeated(id));
        }
        if let Some(answer) = self.answers.to(&Asked::Connection(name)) {
            return Err(Refused::Over(Box::new(*answer)));
        }
        match self.ghosts.of_remote(&name) {
            Some(_) => Err(Refused::Because(RejectReason::StaleConnection)),
            None => Ok(()),
        }
    }

    fn turn_away(
        &mut self,
        now: Instant,
        arrival: Arrival,
        transaction: u64,
        request: &ConnectRequest,
        refused: Refused,
    ) {
        let refusal = |reason| refusal_of(request, reason);
        let peer = self.answer_to(arrival);
        match refused {
            Refused::Repeated(id) => self.handle_repeated_request(id, request),
            Refused::Over(answer) => {
                self.counters.duplicates.count(&(*request).into());
                self.counters.sent.count_attribute(Reject::ATTRIBUTE);
                self.post(peer, &answer);
            }
            Refused::Stale(stale) => {
                let refusal = refusal(RejectReason::StaleConnection);
                // The peer asks again under another identifier. A late copy of this request must
                // not come to the application as well.
                let name = arrival.name(request.local_guid, request.local_id);
                let datagram = Message::from(refusal).emit(transaction);
                self.answers
                    .remember(now, Asked::Connection(name), datagram);
                self.refuse_stale(now, arrival, transaction, stale, refusal);
            }
            Refused::Because(reason) => {
                let nobody = reason == RejectReason::InvalidServiceId;
                self.counters.no_listener += u64::from(nobody);
                self.send(peer, transaction, refusal(reason));
            }
            Refused::Silently => self.counters.malformed += 1,
        }
    }

    /// The peer has not heard our answer to its REQ: say it again.
    fn handle_repeated_request(&mut self, id: Id, request: &ConnectRequest) {
        self.counters.duplicates.count(&(*request).into());
        let link = self.link(id);
        let peer = link.peer;
        let answer: Message = match link.phase {
            Phase::RequestReceived => link.delay(AnsweredMessage::Request).into(),
            Phase::TimeWait => refusal_of(request, RejectReason::StaleConnection).into(),
            Phase::ReplySent => {
                let Some(reply) = &link.in_flight else { return };
                let datagram = *reply.datagram;
                self.counters.sent.count_attribute(ConnectReply::ATTRIBUTE);
                self.post(peer, &datagram);
                return;
            }
            _ => return,
        };
        self.say(id, answer);
    }

    /// Makes an id of a request and tells the application. When nobody can wait any more the
    /// request is dropped without a word, as Linux does: the peer will repeat it.
    fn welcome(
        &mut self,
        arrival: Arrival,
        transaction: u64,
        request: &ConnectRequest,
        admitted: &Admitted,
    ) {
        let service = request.service_id;
        let Some(id) = self.new_guest(admitted.listener, service, &admitted.header) else {
            return;
        };
        let identifier = self.new_identifier(id);
        let peer = self.answer_to(arrival);
        let mut link = Link::new(Phase::RequestReceived, peer, identifier);
        link.peer.traffic_class = request.primary.traffic_class;
        link.transaction = transaction;
        link.receive_psn = self.known(id).first_psn;
        link.mtu = admitted.mtu;
        link.take_request(request);
        link.path.hop_limit = peer.hop_limit;
        self.by_remote_name.insert(link.remote_name(), id);
        let remote_qpn = (link.remote_device(), link.remote_qpn);
        self.by_remote_qpn.insert(remote_qpn, id);
        self.known(id).link = Some(Box::new(link));
        let request = Request::Connection(offer_of_request(request));
        let listener = admitted.listener;
        self.emit(id, EventKind::ConnectRequest { listener, request });
    }

    /// An id for somebody who comes to a listener, if there is room.
    pub(super) fn new_guest(
        &mut self,
        listener: Id,
        service: ServiceId,
        header: &AddressHeader,
    ) -> Option<Id> {
        if self.endpoints.len() >= self.config.max_ids {
            self.counters.too_many_ids += 1;
            return None;
        }
        let (most, most_of_one) = (
            self.config.max_half_open,
            self.config.max_half_open_per_source,
        );
        let source = Source::of(header.source);
        if !self.half_open.has_room(source, most, most_of_one) {
            self.counters.half_open_full += 1;
            return None;
        }
        let host = self.known(listener);
        let (space, kind) = (host.space, host.kind);
        let backlog = host.backlog.as_mut().expect("a listener has a backlog");
        if backlog.waiting >= backlog.limit {
            self.counters.backlog_full += 1;
            return None;
        }
        backlog.waiting += 1;
        let id = self.create_unchecked(space, kind);
        let port = service.value() as u16;
        let guest = self.known(id);
        guest.state = State::Connect;
        guest.source = Some(SocketAddr::new(header.destination, port));
        guest.destination = Some(SocketAddr::new(header.source, header.source_port));
        guest.waits_at = Some(listener);
        guest.half_open = Some(source);
        self.half_open.add(source);
        Some(id)
    }
}

impl Link {
    fn take_request(&mut self, request: &ConnectRequest) {
        self.service = request.service_id;
        self.remote_id = request.local_id;
        self.remote_guid = request.local_guid;
        self.remote_qpn = request.local_qpn;
        self.path = link::reversed(&request.primary);
        self.partition = request.partition;
        self.send_psn = request.starting_psn;
        self.responder_resources = request.initiator_depth;
        self.initiator_depth = request.responder_resources;
        self.retry_count = request.retry_count;
        self.rnr_retry_count = request.rnr_retry_count;
        self.ack_timeout = request.primary.local_ack_timeout.code().max(1);
        let code = request.local_response_timeout.code();
        self.response_interval = timing::bounded_interval(code, timing::LONGEST_RESPONSE);
        self.max_retries = request.max_cm_retries;
    }
}

/// Whether path and addresses are those that the packet took. Otherwise we would answer, or even
/// send data, to somebody who has not asked.
fn names_addresses(request: &ConnectRequest, header: &AddressHeader, arrival: Arrival) -> bool {
    let path = &request.primary;
    path.local_gid == Gid::from(arrival.source)
        && path.remote_gid == Gid::from(arrival.destination)
        && are_addresses_of(header, arrival)
}

/// Whether the addresses that a request names are those of its packet.
pub(super) fn are_addresses_of(header: &AddressHeader, arrival: Arrival) -> bool {
    header.source == arrival.source && header.destination == arrival.destination
}

/// The addresses in front of the application's bytes.
pub(super) fn addresses(data: &[u8]) -> Option<AddressHeader> {
    AddressHeader::parse(data.first_chunk()?).ok()
}

/// A refusal by somebody who has no name for the connection.
fn refusal_of(request: &ConnectRequest, reason: RejectReason) -> Reject {
    Reject {
        remote_id: request.local_id,
        message: RefusedMessage::Request,
        reason,
        ..Reject::default()
    }
}

/// The peer's words from our side: what it wants outstanding, we must serve.
fn offer_of_request(request: &ConnectRequest) -> Offer {
    Offer {
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

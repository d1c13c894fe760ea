//! Datagram services: SIDR_REQ asks for a queue pair and its Q_Key, SIDR_REP tells.

use std::time::Instant;

use wire::QueueKey;
use wire::cm::{
    AddressHeader, CommunicationId, Message, PrivateData, ServiceReply, ServiceRequest,
    ServiceStatus,
};

use crate::error::CallError;
use crate::event::{EventKind, Failure, Request, ServiceFound, Unreachable};
use crate::id::{Endpoint, Id, Kind, Phase, State};
use crate::link::Link;
use crate::manager::active::Way;
use crate::manager::passive::{addresses, are_addresses_of};
use crate::manager::{Arrival, Manager};
use crate::memory::Asked;
use crate::parameters::{DEFAULT_QUEUE_KEY, Parameters, private_data};

impl Manager {
    pub(super) fn find_service(
        &mut self,
        now: Instant,
        id: Id,
        way: &Way,
        parameters: &Parameters<'_>,
    ) -> Result<(), CallError> {
        let room = private_data::SERVICE_REQUEST;
        let private_data = way.private_data(parameters.private_data, room)?;
        let identifier = self.new_identifier(id);
        let mut link = Link::new(Phase::ServiceRequestSent, way.peer, identifier);
        link.path = way.path(&self.config);
        let (transaction, partition) = (link.transaction, link.partition);
        let endpoint = self.known(id);
        endpoint.state = State::Connect;
        endpoint.qpn = parameters.qpn;
        endpoint.link = Some(Box::new(link));
        let request = ServiceRequest {
            request_id: identifier,
            partition,
            service_id: way.service,
            private_data,
        };
        self.ask(now, id, transaction, request);
        Ok(())
    }

    pub(super) fn serve(
        &mut self,
        now: Instant,
        id: Id,
        parameters: &Parameters<'_>,
    ) -> Result<(), CallError> {
        let private_data = PrivateData::new(parameters.private_data)?;
        let endpoint = self.known(id);
        let queue_key = settle_queue_key(endpoint, parameters.queue_key)?;
        endpoint.qpn = parameters.qpn;
        let reply = ServiceReply {
            status: ServiceStatus::Valid,
            qpn: parameters.qpn,
            queue_key,
            private_data,
            ..ServiceReply::default()
        };
        self.answer_service(now, id, reply);
        Ok(())
    }

    pub(super) fn refuse_service(
        &mut self,
        now: Instant,
        id: Id,
        private_data: &[u8],
    ) -> Result<(), CallError> {
        let reply = ServiceReply {
            status: ServiceStatus::Rejected,
            private_data: PrivateData::new(private_data)?,
            ..ServiceReply::default()
        };
        self.answer_service(now, id, reply);
        Ok(())
    }

    pub(super) fn handle_service_request(
        &mut self,
        arrival: Arrival,
        transaction: u64,
        request: &ServiceRequest,
    ) {
        let waiting = (arrival.source, request.request_id);
        let peer = self.answer_to(arrival);
        if self.services.contains_key(&waiting) {
            self.counters.duplicates.count(&(*request).into());
            return;
        }
        let asked = Asked::Service(waiting.0, waiting.1);
        if let Some(&answer) = self.answers.to(&asked) {
            self.counters.duplicates.count(&(*request).into());
            self.counters.sent.count_attribute(ServiceReply::ATTRIBUTE);
            self.post(peer, &answer);
            return;
        }
        let Some(listener) = self.service_listener(arrival, request) else {
            self.counters.no_listener += 1;
            let reply = ServiceReply {
                request_id: request.request_id,
                status: ServiceStatus::NotSupported,
                service_id: request.service_id,
                ..ServiceReply::default()
            };
            self.send(peer, transaction, reply);
            return;
        };
        match addresses(request.private_data.bytes()) {
            Some(header) if are_addresses_of(&header, arrival) => {
                self.welcome_service(arrival, transaction, request, listener, &header);
            }
            _ => self.counters.malformed += 1,
        }
    }

    pub(super) fn handle_service_reply(&mut self, arrival: Arrival, reply: &ServiceReply) {
        let Some(id) = self.conversation(arrival, reply.request_id) else {
            return;
        };
        if self.link(id).phase != Phase::ServiceRequestSent {
            self.counters.unmatched += 1;
            return;
        }
        let link = self.forget_link(id).expect("it has a conversation");
        let endpoint = self.known(id);
        if endpoint.state != State::Connect {
            return;
        }
        let kind = if reply.status != ServiceStatus::Valid {
            EventKind::Unreachable(Unreachable::Refused(reply.status))
        } else if settle_queue_key(endpoint, Some(reply.queue_key)).is_err() {
            EventKind::AddressError(Failure::QueueKeyMismatch)
        } else {
            EventKind::ServiceFound(ServiceFound {
                remote_qpn: reply.qpn,
                queue_key: reply.queue_key,
                path: link.path_attributes(),
                private_data: reply.private_data.bytes().to_vec(),
            })
        };
        self.emit(id, kind);
    }

    fn service_listener(&self, arrival: Arrival, request: &ServiceRequest) -> Option<Id> {
        let listener = self.listener(request.service_id, arrival.destination)?;
        let kind = self.endpoints.get(listener)?.kind;
        (kind == Kind::Datagram).then_some(listener)
    }

    fn welcome_service(
        &mut self,
        arrival: Arrival,
        transaction: u64,
        request: &ServiceRequest,
        listener: Id,
        header: &AddressHeader,
    ) {
        let Some(id) = self.new_guest(listener, request.service_id, header) else {
            return;
        };
        let peer = self.answer_to(arrival);
        // Nobody ever answers a SIDR_REP, so the conversation needs no name of ours.
        let nameless = CommunicationId::default();
        let mut link = Link::new(Phase::ServiceRequestReceived, peer, nameless);
        link.remote_id = request.request_id;
        link.service = request.service_id;
        link.transaction = transaction;
        self.known(id).link = Some(Box::new(link));
        self.services
            .insert((arrival.source, request.request_id), id);
        let private_data = request.private_data.bytes()[AddressHeader::LENGTH..].to_vec();
        let request = Request::Service { private_data };
        self.emit(id, EventKind::ConnectRequest { listener, request });
    }

    /// The one answer, remembered for the case that the peer does not hear it.
    fn answer_service(&mut self, now: Instant, id: Id, reply: ServiceReply) {
        self.leave_waiting_room(id);
        let link = self.forget_link(id).expect("it has a conversation");
        let reply = Message::from(ServiceReply {
            request_id: link.remote_id,
            service_id: link.service,
            ..reply
        });
        let asked = Asked::Service(link.peer.destination, link.remote_id);
        let datagram = reply.emit(link.transaction);
        self.answers.remember(now, asked, datagram);
        self.send(link.peer, link.transaction, reply);
    }
}

/// An id has one Q_Key: the first that anybody names, or the usual one.
pub(super) fn settle_queue_key(
    endpoint: &mut Endpoint,
    wanted: Option<QueueKey>,
) -> Result<QueueKey, CallError> {
    let wanted = wanted.filter(|key| key.value() != 0);
    let settled = endpoint.queue_key.or(wanted).unwrap_or(DEFAULT_QUEUE_KEY);
    if wanted.is_some_and(|wanted| wanted != settled) {
        return Err(CallError::QueueKeyMismatch);
    }
    endpoint.queue_key = Some(settled);
    Ok(settled)
}

//! Datagram services: SIDR_REQ asks for a queue pair number and its Q_Key, SIDR_REP answers.

use std::time::Instant;

use wire::QueueKey;
use wire::cm::{
    AddressHeader, CommunicationId, Message, PrivateData, ServiceReply, ServiceRequest,
    ServiceStatus,
};

use crate::error::CallError;
use crate::event::{EventKind, Failure, Request, ServiceFound, Unreachable};
use crate::exchange::Exchange;
use crate::exchange_state::ExchangeState;
use crate::id::{Id, IdEntry, State};
use crate::manager::active::Target;
use crate::manager::passive::{address_header, are_addresses_of};
use crate::manager::{Addresses, Manager};
use crate::parameters::{DEFAULT_QUEUE_KEY, Parameters, private_data};
use crate::retained_state::PeerRequest;
use crate::service_type::ServiceType;

impl Manager {
    pub(super) fn request_service(
        &mut self,
        now: Instant,
        id: Id,
        target: &Target,
        parameters: &Parameters<'_>,
    ) -> Result<(), CallError> {
        let max = private_data::SERVICE_REQUEST;
        let private_data = target.private_data(parameters.private_data, max)?;
        let communication_id = self.new_communication_id(id);
        let mut exchange = Exchange::new(
            ExchangeState::ServiceRequestSent,
            target.peer,
            communication_id,
        );
        exchange.path = target.path(&self.config);
        let (transaction, partition) = (exchange.transaction, exchange.partition);
        let entry = self.known(id);
        entry.state = State::Connect;
        entry.qpn = parameters.qpn;
        entry.exchange = Some(Box::new(exchange));
        let request = ServiceRequest {
            request_id: communication_id,
            partition,
            service_id: target.service,
            private_data,
        };
        self.send_until_response(now, id, transaction, request);
        Ok(())
    }

    pub(super) fn accept_service(
        &mut self,
        now: Instant,
        id: Id,
        parameters: &Parameters<'_>,
    ) -> Result<(), CallError> {
        let private_data = PrivateData::new(parameters.private_data)?;
        let entry = self.known(id);
        let queue_key = settle_queue_key(entry, parameters.queue_key)?;
        entry.qpn = parameters.qpn;
        let reply = ServiceReply {
            status: ServiceStatus::Valid,
            qpn: parameters.qpn,
            queue_key,
            private_data,
            ..ServiceReply::default()
        };
        self.respond_to_service_request(now, id, reply);
        Ok(())
    }

    pub(super) fn reject_service(
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
        self.respond_to_service_request(now, id, reply);
        Ok(())
    }

    pub(super) fn handle_sidr_req(
        &mut self,
        addresses: Addresses,
        transaction: u64,
        request: &ServiceRequest,
    ) {
        let waiting = (addresses.source, request.request_id);
        let peer = self.reverse_path(addresses);
        if self.services.contains_key(&waiting) {
            self.counters.duplicates.count(&(*request).into());
            return;
        }
        let request_key = PeerRequest::Service(waiting.0, waiting.1);
        if let Some(&response) = self.responses.to(&request_key) {
            self.counters.duplicates.count(&(*request).into());
            self.counters.sent.count_attribute(ServiceReply::ATTRIBUTE);
            self.enqueue(peer, &response);
            return;
        }
        let Some(listener) = self.service_listener(addresses, request) else {
            self.counters.no_listener += 1;
            let reply = ServiceReply {
                request_id: request.request_id,
                status: ServiceStatus::NotSupported,
                service_id: request.service_id,
                ..ServiceReply::default()
            };
            self.send_to(peer, transaction, reply);
            return;
        };
        match address_header(request.private_data.bytes()) {
            Some(header) if are_addresses_of(&header, addresses) => {
                self.deliver_service_request(addresses, transaction, request, listener, &header);
            }
            _ => self.counters.malformed += 1,
        }
    }

    pub(super) fn handle_sidr_rep(&mut self, addresses: Addresses, reply: &ServiceReply) {
        let Some(id) = self.find_by_local_id(addresses, reply.request_id) else {
            return;
        };
        if self.exchange(id).phase != ExchangeState::ServiceRequestSent {
            self.counters.unmatched += 1;
            return;
        }
        let exchange = self.remove_exchange(id).expect("the id has an exchange");
        let entry = self.known(id);
        if entry.state != State::Connect {
            return;
        }
        let private_data = reply.private_data.bytes().to_vec();
        let kind = if reply.status != ServiceStatus::Valid {
            EventKind::Unreachable(Unreachable::Rejected {
                status: reply.status,
                private_data,
            })
        } else if settle_queue_key(entry, Some(reply.queue_key)).is_err() {
            EventKind::AddressError(Failure::QueueKeyMismatch)
        } else {
            EventKind::ServiceFound(ServiceFound {
                remote_qpn: reply.qpn,
                queue_key: reply.queue_key,
                path: exchange.path_attributes(),
                private_data,
            })
        };
        self.emit(id, kind);
    }

    fn service_listener(&self, addresses: Addresses, request: &ServiceRequest) -> Option<Id> {
        let listener = self.listener(request.service_id, addresses.destination)?;
        let kind = self.id_table.get(listener)?.kind;
        (kind == ServiceType::Datagram).then_some(listener)
    }

    fn deliver_service_request(
        &mut self,
        addresses: Addresses,
        transaction: u64,
        request: &ServiceRequest,
        listener: Id,
        header: &AddressHeader,
    ) {
        let Some(id) = self.new_child(listener, request.service_id, header) else {
            return;
        };
        let peer = self.reverse_path(addresses);
        // A SIDR_REP is never answered, so the exchange needs no communication id of ours.
        let no_id = CommunicationId::default();
        let mut exchange = Exchange::new(ExchangeState::ServiceRequestReceived, peer, no_id);
        exchange.remote_id = request.request_id;
        exchange.service = request.service_id;
        exchange.transaction = transaction;
        self.known(id).exchange = Some(Box::new(exchange));
        self.services
            .insert((addresses.source, request.request_id), id);
        let private_data = request.private_data.bytes()[AddressHeader::LENGTH..].to_vec();
        let request = Request::Service { private_data };
        self.emit(id, EventKind::ConnectRequest { listener, request });
    }

    /// Sends the only response, and remembers it in case it is lost.
    fn respond_to_service_request(&mut self, now: Instant, id: Id, reply: ServiceReply) {
        self.leave_backlog(id);
        let exchange = self.remove_exchange(id).expect("the id has an exchange");
        let reply = Message::from(ServiceReply {
            request_id: exchange.remote_id,
            service_id: exchange.service,
            ..reply
        });
        let request_key = PeerRequest::Service(exchange.peer.destination, exchange.remote_id);
        let datagram = reply.emit(exchange.transaction);
        self.responses.remember(now, request_key, datagram);
        self.send_to(exchange.peer, exchange.transaction, reply);
    }
}

/// An id has one Q_Key: the first that is set, or the default.
pub(super) fn settle_queue_key(
    entry: &mut IdEntry,
    wanted: Option<QueueKey>,
) -> Result<QueueKey, CallError> {
    let wanted = wanted.filter(|key| key.value() != 0);
    let settled = entry.queue_key.or(wanted).unwrap_or(DEFAULT_QUEUE_KEY);
    if wanted.is_some_and(|wanted| wanted != settled) {
        return Err(CallError::QueueKeyMismatch);
    }
    entry.queue_key = Some(settled);
    Ok(settled)
}

//! The side that connects: REQ, what may answer it, RTU.

use std::time::Instant;

use wire::cm::{
    AddressHeader, AnsweredMessage, CommunicationId, ConnectReply, ConnectRequest, Message, Path,
    PrivateData, RefusedMessage, Reject, RejectReason, ServiceId,
};
use wire::{AckTimeout, Gid, Qpn};

use crate::config::Config;
use crate::error::CallError;
use crate::event::{EventKind, Failure, Instruction, Offer};
use crate::id::{Endpoint, Id, Kind, Phase, Route, State};
use crate::link::{self, Link, Peer};
use crate::manager::{Arrival, Manager};
use crate::parameters::{Parameters, private_data};
use crate::sabotage::Bug;
use crate::timing;

impl Manager {
    /// Asks the peer for a connection, or for its datagram service, like `rdma_connect`. Ends with
    /// [`ConnectResponse`](EventKind::ConnectResponse) or
    /// [`ServiceFound`](EventKind::ServiceFound), with [`Rejected`](EventKind::Rejected) or with
    /// [`Unreachable`](EventKind::Unreachable).
    pub fn connect(
        &mut self,
        now: Instant,
        id: Id,
        parameters: &Parameters<'_>,
    ) -> Result<(), CallError> {
        let endpoint = self.endpoint(id)?;
        let Some(way) = Way::of(endpoint) else {
            return Err(CallError::WrongState(endpoint.state));
        };
        if endpoint.kind == Kind::Datagram {
            return self.find_service(now, id, &way, parameters);
        }
        let data = way.private_data::<92>(parameters.private_data, private_data::REQUEST)?;
        let (kind, first_psn) = (endpoint.kind, endpoint.first_psn);
        let identifier = self.new_identifier(id);
        let mut link = way.link(Phase::RequestSent, identifier, &self.config);
        link.receive_psn = first_psn;
        link.take_parameters(parameters);
        let mut request = request(&link, kind, parameters, data);
        request.local_guid = self.config.guid;
        let transaction = link.transaction;
        let endpoint = self.known(id);
        endpoint.state = State::Connect;
        endpoint.qpn = parameters.qpn;
        endpoint.link = Some(Box::new(link));
        self.ask(now, id, transaction, request);
        Ok(())
    }

    /// The queue pair is ready to send: tells the peer so, like `rdma_establish`. Follows
    /// [`ConnectResponse`](EventKind::ConnectResponse).
    pub fn establish(&mut self, id: Id) -> Result<(), CallError> {
        let endpoint = self.endpoint_mut(id)?;
        let Some(link) = endpoint.link.as_mut() else {
            return Err(CallError::WrongState(endpoint.state));
        };
        if link.phase != Phase::ReplyReceived {
            return Err(CallError::WrongPhase);
        }
        link.phase = Phase::Established;
        let ready = link.ready();
        self.say(id, ready);
        Ok(())
    }

    /// The peer accepted, but the queue pair could not be made ready: refuses, and tells the
    /// application with [`ConnectError`](EventKind::ConnectError).
    pub fn connect_failed(&mut self, id: Id, failure: Failure) -> Result<(), CallError> {
        let endpoint = self.endpoint(id)?;
        if endpoint.phase() != Some(Phase::ReplyReceived) {
            return Err(CallError::WrongPhase);
        }
        let link = self.link(id);
        let refusal = link.refusal(RejectReason::Consumer, PrivateData::default());
        self.say(id, refusal);
        self.forget_link(id);
        self.emit(id, EventKind::ConnectError(failure));
        Ok(())
    }

    pub(super) fn handle_reply(
        &mut self,
        now: Instant,
        arrival: Arrival,
        transaction: u64,
        reply: &ConnectReply,
    ) {
        let Some(id) = self.conversation(arrival, reply.remote_id) else {
            return;
        };
        let link = self.link(id);
        if !matches!(link.phase, Phase::RequestSent | Phase::RequestDelayed) {
            self.handle_repeated_reply(id, reply);
            return;
        }
        let name = arrival.name(reply.local_guid, reply.local_id);
        if self.by_remote_name.contains_key(&name) {
            self.counters.unmatched += 1;
            return;
        }
        let kind = self.known(id).kind;
        let remote_qpn = (arrival.device(reply.local_guid), replying_qpn(kind, reply));
        if let Some(&stale) = self.by_remote_qpn.get(&remote_qpn) {
            let refusal = Reject {
                local_id: reply.remote_id,
                remote_id: reply.local_id,
                message: RefusedMessage::Reply,
                reason: RejectReason::StaleConnection,
                ..Reject::default()
            };
            self.refuse_stale(now, arrival, transaction, stale, refusal);
            // The peer gives this connection up: a second copy of its reply must not be accepted.
            if !self.retry_stale(now, id) {
                self.enter_timewait(now, id);
                self.tell_rejected(id, &refusal);
            }
            return;
        }
        self.by_remote_name.insert(name, id);
        self.by_remote_qpn.insert(remote_qpn, id);
        self.stop_asking(id);
        self.link(id).take_reply(kind, reply);
        self.emit(id, EventKind::ConnectResponse(offer_of_reply(kind, reply)));
    }

    /// The peer has not heard our answer to its REP: say it again.
    fn handle_repeated_reply(&mut self, id: Id, reply: &ConnectReply) {
        let is_mute = self.sabotage.has(Bug::ReadyNotRepeated);
        let link = self.link(id);
        let answer: Message = match link.phase {
            _ if link.remote_id != reply.local_id => {
                self.counters.unmatched += 1;
                return;
            }
            Phase::Established if is_mute => return,
            Phase::Established => link.ready().into(),
            Phase::ReplyReceived => link.delay(AnsweredMessage::Reply).into(),
            _ => {
                self.counters.duplicates.count(&(*reply).into());
                return;
            }
        };
        self.counters.duplicates.count(&(*reply).into());
        self.say(id, answer);
    }

    /// The peer knows a connection of our queue pair's number, perhaps that of a process that died.
    /// It ends that connection (IBA 12.9.8.3.1), so the request gets a second chance under another
    /// identifier. Returns whether it does. Linux leaves this to the application.
    pub(super) fn retry_stale(&mut self, now: Instant, id: Id) -> bool {
        let link = self.link(id);
        let asks = matches!(link.phase, Phase::RequestSent | Phase::RequestDelayed);
        let Some(in_flight) = link.in_flight.as_ref().filter(|_| asks && !link.was_stale) else {
            return false;
        };
        let Ok((_, Message::ConnectRequest(mut request))) = Message::parse(&in_flight.datagram)
        else {
            return false;
        };
        self.release_identifier(request.local_id);
        request.local_id = self.new_identifier(id);
        let link = self.link(id);
        link.phase = Phase::RequestSent;
        link.was_stale = true;
        link.local_id = request.local_id;
        link.transaction = link::own_transaction(request.local_id);
        let datagram = Message::from(request).emit(link.transaction);
        let interval = link.response_interval;
        if let Some(in_flight) = &mut link.in_flight {
            *in_flight.datagram = datagram;
            in_flight.interval = interval;
        }
        self.set_timer(id, now + timing::STALE_RETRY);
        true
    }

    /// A queue pair can't be connected twice: the connection that we know is dead. The new one is
    /// refused and the old one ended (IBA 12.9.8.3.1, and so does Linux); the peer tries again. A
    /// request that is not confirmed yet is given up in the same way, which Linux does not do.
    pub(super) fn refuse_stale(
        &mut self,
        now: Instant,
        arrival: Arrival,
        transaction: u64,
        stale: Id,
        refusal: Reject,
    ) {
        self.counters.stale += 1;
        let peer = self.answer_to(arrival);
        self.send(peer, transaction, refusal);
        match self.link(stale).phase {
            Phase::Established => {
                self.part(now, stale);
                // The peer's second request need not wait for the answer: perhaps there is none.
                let link = self.link(stale);
                let remote = (link.remote_device(), link.remote_qpn);
                self.by_remote_qpn.remove(&remote);
            }
            Phase::RequestReceived | Phase::ReplySent | Phase::ReplyDelayed => {
                self.forget_request(now, stale);
                self.tell_rejected(stale, &refusal);
            }
            _ => {}
        }
    }

    pub(super) fn break_queue_pair(&mut self, id: Id) {
        let endpoint = self.known(id);
        let qpn = endpoint.qpn;
        if endpoint.kind != Kind::Datagram && qpn.value() != 0 {
            self.instructions
                .push_back(Instruction::BreakQueuePair { id, qpn });
        }
    }
}

impl Link {
    fn take_parameters(&mut self, parameters: &Parameters<'_>) {
        self.local_qpn = parameters.qpn;
        self.responder_resources = parameters.responder_resources;
        self.initiator_depth = parameters.initiator_depth;
        self.retry_count = parameters.retry_count.min(7);
    }

    fn take_reply(&mut self, kind: Kind, reply: &ConnectReply) {
        self.phase = Phase::ReplyReceived;
        self.remote_id = reply.local_id;
        self.remote_guid = reply.local_guid;
        self.remote_qpn = replying_qpn(kind, reply);
        self.send_psn = reply.starting_psn;
        self.initiator_depth = reply.responder_resources;
        self.responder_resources = reply.initiator_depth;
        self.rnr_retry_count = reply.rnr_retry_count;
        let life_time = self.ack_timeout - 1;
        self.ack_timeout = timing::ack_timeout(reply.target_ack_delay.code(), life_time);
    }
}

/// Everything that is known about the way to a peer before anything is said.
pub(super) struct Way {
    pub(super) service: ServiceId,
    pub(super) peer: Peer,
    route: Route,
    header: AddressHeader,
    flow_label: u32,
    /// The code of the time that a packet lives.
    life_time: u8,
}

impl Way {
    /// None before the route is resolved.
    fn of(endpoint: &Endpoint) -> Option<Way> {
        let (State::RouteResolved, Some(source), Some(destination), Some(route)) = (
            endpoint.state,
            endpoint.source,
            endpoint.destination,
            endpoint.route,
        ) else {
            return None;
        };
        let timeout = endpoint.options.ack_timeout.map_or(0, AckTimeout::code);
        Some(Way {
            service: ServiceId::of_port(endpoint.space, destination.port()),
            peer: Peer {
                source: source.ip(),
                destination: destination.ip(),
                traffic_class: endpoint.options.traffic_class,
                hop_limit: route.hop_limit,
            },
            route,
            header: AddressHeader {
                source_port: source.port(),
                source: source.ip(),
                destination: destination.ip(),
            },
            flow_label: link::flow_label(source.port(), destination.port()),
            life_time: timeout.checked_sub(1).unwrap_or(timing::PACKET_LIFE_TIME),
        })
    }

    /// A conversation over this way. An answer takes what the peer may take, there and back.
    fn link(&self, phase: Phase, identifier: CommunicationId, config: &Config) -> Link {
        let mut link = Link::new(phase, self.peer, identifier);
        link.service = self.service;
        link.path = self.path(config);
        link.mtu = self.route.mtu;
        link.ack_timeout = self.life_time + 1;
        link.response_interval =
            2 * timing::interval(self.life_time) + timing::interval(timing::RESPONSE.code());
        link
    }

    /// The path as REQ and address handles have it. RoCE has no LIDs; Linux writes the permissive
    /// ones when a packet may be routed.
    pub(super) fn path(&self, config: &Config) -> Path {
        let routed = self.route.hop_limit > 1;
        let lid = if routed { 0xffff } else { 0 };
        let timeout = timing::ack_timeout(config.ack_delay.code(), self.life_time);
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

    /// The addresses, and the application's bytes behind them.
    pub(super) fn private_data<const N: usize>(
        &self,
        data: &[u8],
        room: usize,
    ) -> Result<PrivateData<N>, CallError> {
        let length = data.len();
        if length > room {
            return Err(wire::cm::PrivateDataTooLong { length, room }.into());
        }
        let all = [&self.header.emit(), data].concat();
        Ok(PrivateData::new(&all)?)
    }
}

fn request(
    link: &Link,
    kind: Kind,
    parameters: &Parameters<'_>,
    private_data: PrivateData<92>,
) -> ConnectRequest {
    let request = ConnectRequest {
        local_id: link.local_id,
        service_id: link.service,
        local_qpn: link.local_qpn,
        responder_resources: link.responder_resources,
        initiator_depth: link.initiator_depth,
        remote_response_timeout: timing::RESPONSE,
        service: kind.service(),
        extended_transport: kind.extended_transport(),
        flow_control: parameters.flow_control,
        starting_psn: link.receive_psn,
        local_response_timeout: timing::RESPONSE,
        retry_count: link.retry_count,
        partition: link.partition,
        path_mtu: Some(link.mtu),
        rnr_retry_count: parameters.rnr_retry_count.min(7),
        max_cm_retries: timing::MAX_RETRIES,
        shared_receive_queue: parameters.shared_receive_queue,
        primary: link.path,
        private_data,
        ..ConnectRequest::default()
    };
    match kind {
        // An XRC initiator receives nothing: what the peer would need for sending is left out.
        Kind::ExtendedConnection => ConnectRequest {
            responder_resources: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            shared_receive_queue: false,
            ..request
        },
        _ => request,
    }
}

/// The queue pair of who agrees to a connection. An XRC target stands in a field of its own.
fn replying_qpn(kind: Kind, reply: &ConnectReply) -> Qpn {
    match kind {
        Kind::ExtendedConnection => reply.local_eecn,
        _ => reply.local_qpn,
    }
}

/// The peer's words from our side: what it wants outstanding, we must serve.
fn offer_of_reply(kind: Kind, reply: &ConnectReply) -> Offer {
    Offer {
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

//! Connections of Linux from captures, with one side replaced by our manager.
//!
//! The captures are those of `wire`. Each connection is replayed twice: once our manager listens and
//! receives the messages of Linux's active side; once it connects with the same inputs and receives
//! those of Linux's passive side. Every message of ours must equal the one that Linux sent, except
//! for the values that each side chooses:
//! - communication ids and starting PSNs, which are random;
//! - the transaction ID of messages that start an exchange (Linux: the agent's number and the
//!   communication id in host byte order; we: 1 and the communication id). Responses copy it, so those
//!   are equal.

mod capture;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use capture::{
    CONNECTIONS, CapturedMessage, Conversation, conversations, datagrams, each_conversation,
    header_of, messages, other,
};
use cm::{Config, EventKind, Id, Manager, Parameters, ResolvedRoute, ServiceType};
use wire::cm::{
    AddressHeader, CommunicationId, ConnectReply, ConnectRequest, DisconnectReply,
    DisconnectRequest, Message, PortSpace, ReadyToUse, Reject, RejectReason, ServiceReply,
    ServiceRequest,
};
use wire::{Packet, Psn, Qpn};

/// A time after the start of the capture.
fn at(after: Duration) -> Instant {
    start() + after
}

#[expect(
    clippy::disallowed_methods,
    reason = "an `Instant` has no constant; any value will do"
)]
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

fn receive(manager: &mut Manager, captured: &CapturedMessage, message: impl Into<Message>) {
    let datagram = message.into().emit(captured.transaction);
    manager.handle_datagram(at(captured.after), captured.addresses, &datagram);
}

fn sent(manager: &mut Manager) -> (u64, Message) {
    let sent = manager.poll_transmit().expect("a message to send");
    let (header, message) = Message::parse(&sent.datagram).expect("a message");
    assert_eq!(manager.poll_transmit(), None, "only one message");
    (header.transaction(), message)
}

fn event(manager: &mut Manager) -> cm::Event {
    manager.poll_event().expect("an event")
}

fn manager(guid: u64, address: IpAddr) -> Manager {
    let mut manager = Manager::new(Config::new(guid, [0x5e; 32]));
    manager.add_address(address);
    manager
}

fn listening(guid: u64, address: IpAddr, space: PortSpace, port: u16) -> Manager {
    let mut manager = manager(guid, address);
    let id = manager
        .create_id(space, ServiceType::of(space))
        .expect("an id");
    manager.bind(id, (address, port).into()).expect("free");
    manager.listen(id, 0).expect("bound");
    manager
}

#[test]
fn starting_psn_is_the_first_psn_of_the_peer() {
    let (_, capture) = CONNECTIONS[0];
    let conversation = &conversations(&messages(capture))[0];
    let client = conversation.request.addresses.source;
    let packets = datagrams(capture, |_, datagram| {
        let packet = Packet::parse(datagram.payload).expect("a packet");
        // Acknowledgements carry the PSN of their request, so only requests count.
        let is_request = packet.aeth().is_none() && packet.destination != Qpn::GSI;
        is_request.then_some((datagram.flow.source == client, packet.psn))
    });
    let first = |from_client| -> Option<Psn> {
        let found = packets.iter().find(|(from, _)| *from == from_client);
        found.map(|&(_, psn)| psn)
    };
    // The server starts with the PSN of the REQ, the client with the PSN of the REP.
    assert_eq!(first(false), Some(conversation.asked.starting_psn));
    assert_eq!(first(true), Some(conversation.agreed.starting_psn));
}

#[test]
fn listener_answers_like_linux() {
    each_conversation(|name, conversation| {
        let (asked, agreed) = (&conversation.asked, &conversation.agreed);
        let us = conversation.request.addresses.destination;
        let (space, port) = asked.service_id.port().expect("a port");
        let mut manager = listening(agreed.local_guid, us, space, port);
        receive(&mut manager, &conversation.request, *asked);
        let id = event(&mut manager).id;
        let agreed_data = agreed.private_data.bytes();
        let parameters = accepting_like(agreed, agreed_data);
        let now = at(conversation.reply.after);
        manager.accept(now, id, &parameters).expect("a request");
        let (transaction, ours) = sent(&mut manager);
        assert_eq!(transaction, conversation.reply.transaction);
        let Message::ConnectReply(ours) = ours else {
            panic!("{name}: {ours}");
        };
        let same = ConnectReply {
            local_id: agreed.local_id,
            starting_psn: agreed.starting_psn,
            ..ours
        };
        assert_eq!(same, *agreed, "{name}");
        let ready = ReadyToUse {
            local_id: asked.local_id,
            remote_id: ours.local_id,
            ..ReadyToUse::default()
        };
        receive(&mut manager, &conversation.ready, ready);
        assert_eq!(event(&mut manager).kind, EventKind::Established);
        let names = (ours.local_id, asked.local_id);
        disconnect_like_linux(name, &mut manager, id, conversation, names);
    });
}

#[test]
fn requester_sends_the_same_request_as_linux() {
    each_conversation(|name, conversation| {
        let (asked, agreed) = (&conversation.asked, &conversation.agreed);
        let (mut manager, id) = connecting_like(asked);
        let (_, ours) = sent(&mut manager);
        let Message::ConnectRequest(ours) = ours else {
            panic!("{name}: {ours}");
        };
        let same = ConnectRequest {
            local_id: asked.local_id,
            starting_psn: asked.starting_psn,
            ..ours
        };
        assert_eq!(same, *asked, "{name}");
        let reply = ConnectReply {
            remote_id: ours.local_id,
            ..*agreed
        };
        receive(&mut manager, &conversation.reply, reply);
        let response = event(&mut manager).kind;
        assert!(matches!(response, EventKind::ConnectResponse(_)), "{name}");
        manager.establish(id).expect("a response");
        let (_, ready) = sent(&mut manager);
        let linux = match conversation.ready.message {
            Message::ReadyToUse(ready) => ready,
            other => panic!("{name}: {other}"),
        };
        let expected = ReadyToUse {
            local_id: ours.local_id,
            ..linux
        };
        assert_eq!(ready, expected.into(), "{name}");
        let names = (ours.local_id, agreed.local_id);
        disconnect_like_linux(name, &mut manager, id, conversation, names);
    });
}

/// Ends a connection as in the capture. Our communication id replaces the one of the side that we
/// replace.
fn disconnect_like_linux(
    name: &str,
    manager: &mut Manager,
    id: Id,
    conversation: &Conversation,
    (ours, theirs): (CommunicationId, CommunicationId),
) {
    let (Some((captured, dreq)), Some((response, drep))) = (&conversation.dreq, &conversation.drep)
    else {
        return;
    };
    let now = at(captured.after);
    if dreq.local_id == theirs {
        let remote_id = ours;
        receive(manager, captured, DisconnectRequest { remote_id, ..*dreq });
        let ended = EventKind::Disconnected { timed_out: false };
        assert_eq!(event(manager).kind, ended, "{name}");
        manager.disconnect(now, id).expect("was connected");
        let (transaction, response) = sent(manager);
        assert_eq!(transaction, captured.transaction, "{name}");
        let local_id = ours;
        let expected = DisconnectReply { local_id, ..*drep };
        assert_eq!(response, expected.into(), "{name}");
    } else {
        manager.disconnect(now, id).expect("connected");
        let (_, ours_sent) = sent(manager);
        let local_id = ours;
        let expected = DisconnectRequest { local_id, ..*dreq };
        assert_eq!(ours_sent, expected.into(), "{name}");
        let remote_id = ours;
        receive(manager, response, DisconnectReply { remote_id, ..*drep });
        let ended = EventKind::Disconnected { timed_out: false };
        assert_eq!(event(manager).kind, ended, "{name}");
    }
}

fn accepting_like<'a>(agreed: &ConnectReply, private_data: &'a [u8]) -> Parameters<'a> {
    Parameters {
        qpn: agreed.local_qpn,
        shared_receive_queue: agreed.shared_receive_queue,
        private_data,
        responder_resources: agreed.responder_resources,
        initiator_depth: agreed.initiator_depth,
        flow_control: agreed.flow_control,
        retry_count: 0,
        rnr_retry_count: agreed.rnr_retry_count,
        queue_key: None,
    }
}

/// A manager with the same inputs as Linux's active side.
fn connecting_like(asked: &ConnectRequest) -> (Manager, Id) {
    let data = asked.private_data.bytes();
    let header = header_of(data);
    let (space, port) = asked.service_id.port().expect("a port");
    let mut manager = resolved(asked.local_guid, space, &header, port, &route_of(asked));
    let id = event(&mut manager).id;
    assert_eq!(event(&mut manager).kind, EventKind::RouteResolved);
    let parameters = Parameters {
        qpn: asked.local_qpn,
        shared_receive_queue: asked.shared_receive_queue,
        private_data: &data[AddressHeader::LENGTH..],
        responder_resources: asked.responder_resources,
        initiator_depth: asked.initiator_depth,
        flow_control: asked.flow_control,
        retry_count: asked.retry_count,
        rnr_retry_count: asked.rnr_retry_count,
        queue_key: None,
    };
    let now = at(Duration::ZERO);
    manager.connect(now, id, &parameters).expect("resolved");
    (manager, id)
}

fn route_of(asked: &ConnectRequest) -> ResolvedRoute {
    ResolvedRoute {
        mtu: asked.path_mtu.expect("an MTU"),
        hop_limit: asked.primary.hop_limit,
        packet_rate: asked.primary.packet_rate,
        service_level: asked.primary.service_level,
    }
}

fn resolved(
    guid: u64,
    space: PortSpace,
    header: &AddressHeader,
    port: u16,
    route: &ResolvedRoute,
) -> Manager {
    let mut manager = manager(guid, header.source);
    let id = manager
        .create_id(space, ServiceType::of(space))
        .expect("an id");
    let source = Some((header.source, header.source_port).into());
    let peer = (header.destination, port).into();
    let (now, second) = (at(Duration::ZERO), Duration::from_secs(1));
    let asked = manager.resolve_address(now, id, source, peer, second);
    asked.expect("idle");
    manager.address_resolved(id, Ok(header.source));
    manager.resolve_route(now, id, second).expect("resolved");
    manager.route_resolved(id, Ok(*route));
    manager
}

#[test]
fn application_rejects_like_linux() {
    let all = other("gold-reject");
    let (Message::ConnectRequest(asked), Message::Reject(expected)) =
        (all[0].message, all[1].message)
    else {
        panic!("a REQ and a REJ");
    };
    let (space, port) = asked.service_id.port().expect("a port");
    let mut manager = listening(1, all[0].addresses.destination, space, port);
    receive(&mut manager, &all[0], asked);
    let id = event(&mut manager).id;
    let reason = RejectReason::Consumer;
    let rejected = manager.reject(at(all[1].after), id, reason, b"no thanks");
    rejected.expect("a request");
    let (transaction, ours) = sent(&mut manager);
    assert_eq!(transaction, all[1].transaction);
    let Message::Reject(ours) = ours else {
        panic!("{ours}");
    };
    let local_id = expected.local_id;
    assert_eq!(Reject { local_id, ..ours }, expected);
}

#[test]
fn request_without_a_listener_is_rejected_like_linux() {
    let all = other("nolistener");
    let mut manager = manager(1, all[0].addresses.destination);
    receive(&mut manager, &all[0], all[0].message);
    let (transaction, ours) = sent(&mut manager);
    // The REJ has no random values, so the datagrams are equal.
    let linux = all[1].message.emit(all[1].transaction);
    assert_eq!(ours.emit(transaction), linux);
}

#[test]
fn service_answers_like_linux() {
    let all = other("udaddy");
    let (Message::ServiceRequest(asked), Message::ServiceReply(reply)) =
        (all[0].message, all[1].message)
    else {
        panic!("a SIDR_REQ and a SIDR_REP");
    };
    let (space, port) = asked.service_id.port().expect("a port");
    let mut manager = listening(1, all[0].addresses.destination, space, port);
    receive(&mut manager, &all[0], asked);
    let id = event(&mut manager).id;
    let parameters = Parameters::new(reply.qpn);
    let now = at(all[1].after);
    manager.accept(now, id, &parameters).expect("a SIDR_REQ");
    let (transaction, ours) = sent(&mut manager);
    assert_eq!(ours.emit(transaction), all[1].message.emit(transaction));
}

#[test]
fn service_request_equals_that_of_linux() {
    let all = other("udaddy");
    let (Message::ServiceRequest(asked), Message::ServiceReply(reply)) =
        (all[0].message, all[1].message)
    else {
        panic!("a SIDR_REQ and a SIDR_REP");
    };
    let header = header_of(asked.private_data.bytes());
    let (space, port) = asked.service_id.port().expect("a port");
    let route = ResolvedRoute::new(wire::PathMtu::Mtu1024);
    let mut manager = resolved(1, space, &header, port, &route);
    let id = event(&mut manager).id;
    event(&mut manager);
    let parameters = Parameters::new(Qpn::new(0x2f));
    let now = at(Duration::ZERO);
    manager.connect(now, id, &parameters).expect("resolved");
    let (_, Message::ServiceRequest(ours)) = sent(&mut manager) else {
        panic!("a SIDR_REQ");
    };
    let request_id = asked.request_id;
    assert_eq!(ServiceRequest { request_id, ..ours }, asked);
    let request_id = ours.request_id;
    receive(
        &mut manager,
        &all[1],
        ServiceReply {
            request_id,
            ..reply
        },
    );
    let EventKind::ServiceFound(found) = event(&mut manager).kind else {
        panic!("the service was found");
    };
    assert_eq!(found.remote_qpn, reply.qpn);
    assert_eq!(found.queue_key, cm::DEFAULT_QUEUE_KEY);
}

/// Linux retransmits after 6.144 s. Its timer wheel rounds that to 6.27 to 6.40 s in the capture. We
/// send the message again two times before that.
#[test]
fn request_is_retransmitted_and_given_up_like_linux() {
    let all = other("vm-to-host-req-noanswer");
    let (Message::ConnectRequest(asked), Message::Reject(given_up)) =
        (all[0].message, all[all.len() - 1].message)
    else {
        panic!("requests and a REJ");
    };
    let (mut manager, id) = connecting_like(&asked);
    let (_, ours) = sent(&mut manager);
    for _ in 0..2 {
        let early = manager.poll_timeout().expect("no response came");
        assert!(early < at(Duration::from_secs(6)));
        manager.handle_timeout(early);
        assert_eq!(sent(&mut manager).1, ours);
    }
    let mut last = Duration::ZERO;
    for again in &all[1..all.len() - 1] {
        let due = manager.poll_timeout().expect("no response came");
        let after = due - at(Duration::ZERO);
        let (we, linux) = (after - last, again.after - all[0].after - last);
        assert!(we.abs_diff(linux) < Duration::from_millis(700), "{we:?}");
        manager.handle_timeout(due);
        assert_eq!(sent(&mut manager).1, ours);
        last = after;
    }
    manager.destroy(at(last), id).expect("an id");
    let (_, Message::Reject(ours)) = sent(&mut manager) else {
        panic!("a REJ");
    };
    let local_id = given_up.local_id;
    assert_eq!(Reject { local_id, ..ours }, given_up);
}

#[test]
fn listener_reports_the_timeout_reject_of_linux() {
    let all = other("vm-to-host-req-noanswer");
    let Message::ConnectRequest(asked) = all[0].message else {
        panic!("a request");
    };
    let (space, port) = asked.service_id.port().expect("a port");
    let mut manager = listening(1, all[0].addresses.destination, space, port);
    let mut responses = Vec::new();
    for captured in &all {
        receive(&mut manager, captured, captured.message);
        let sent = std::iter::from_fn(|| manager.poll_transmit());
        responses.extend(sent.map(|t| Message::parse(&t.datagram).expect("ours").1.name()));
    }
    assert_eq!(
        responses,
        ["MRA", "MRA", "MRA"],
        "the application has not answered"
    );
    let request = event(&mut manager).kind;
    assert!(matches!(request, EventKind::ConnectRequest { .. }));
    let EventKind::Rejected { reason, .. } = event(&mut manager).kind else {
        panic!("a rejection");
    };
    assert_eq!(reason, RejectReason::Timeout);
    assert_eq!(manager.poll_event(), None);
}

#[test]
fn captures_contain_different_connections() {
    let ids: BTreeSet<_> = CONNECTIONS
        .iter()
        .flat_map(|(_, capture)| conversations(&messages(capture)))
        .map(|conversation| {
            (
                conversation.asked.local_id,
                conversation.asked.starting_psn.value(),
            )
        })
        .collect();
    assert_eq!(ids.len(), 14);
}

//! The connection manager's messages travel through queue pair 1, and what a connection does to its queue pair.

use cm::{EventKind, Instruction};
use engine::{Event, State};
use wire::Qpn;
use wire::cm::{Message, RejectReason};

use crate::station::{CLIENT, HOP_LIMIT, SERVER, Station, at, carry};

const CLIENT_QPN: Qpn = Qpn::new(0x11);
const SERVER_QPN: Qpn = Qpn::new(0x22);

#[test]
fn connection_is_established_and_ended_by_messages_through_queue_pair_1() {
    let (mut client, mut server) = (Station::new(CLIENT), Station::new(SERVER));
    server.listen();
    let active = client.connect(0, CLIENT_QPN);
    let messages = carry(0, &mut client, &mut server);
    assert!(matches!(messages[..], [Message::ConnectRequest(_)]));
    let passive = server.accept(1, SERVER_QPN);
    let messages = carry(1, &mut client, &mut server);
    assert!(matches!(messages[..], [Message::ConnectReply(_)]));
    let [(id, EventKind::ConnectResponse(peer))] = &client.events()[..] else {
        panic!("a response");
    };
    assert_eq!((*id, peer.remote_qpn), (active, SERVER_QPN));
    client.host.manager().establish(active).expect("a response");
    let messages = carry(2, &mut client, &mut server);
    assert!(matches!(messages[..], [Message::ReadyToUse(_)]));
    assert_eq!(server.events(), [(passive, EventKind::Established)]);
    assert_eq!(client.host.connection_id_count(), 1);
    assert_eq!(server.host.connection_id_count(), 2, "listener and child");
    let received = server.host.connection_counters().received.total();
    assert_eq!(received, 2, "REQ and RTU");

    let ended = client.host.manager().disconnect(at(3), active);
    ended.expect("a connection");
    carry(3, &mut client, &mut server);
    let timed_out = EventKind::Disconnected { timed_out: false };
    assert_eq!(server.events(), [(passive, timed_out)]);
}

#[test]
fn request_that_is_lost_is_sent_again_when_its_timer_is_due() {
    let (mut client, mut server) = (Station::new(CLIENT), Station::new(SERVER));
    server.listen();
    client.connect(0, CLIENT_QPN);
    let lost = client.messages(0);
    assert!(matches!(lost[..], [Message::ConnectRequest(_)]));
    let due = client.host.poll_timeout().expect("a timer");
    assert_eq!(due, at(1500));
    assert_eq!(client.messages(1499), []);
    let again = client.messages(1500);
    assert_eq!(again, lost);
}

#[test]
fn first_packet_of_the_peer_establishes_a_connection_whose_rtu_is_lost() {
    let (mut client, mut server) = (Station::new(CLIENT), Station::new(SERVER));
    server.listen();
    let (left, right) = (client.queue_pair(), server.queue_pair());
    let active = client.connect(0, left.number);
    carry(0, &mut client, &mut server);
    let passive = server.accept(1, right.number);
    carry(1, &mut client, &mut server);
    right.connect(&mut server, CLIENT, left.number);
    left.connect(&mut client, SERVER, right.number);
    client.host.manager().establish(active).expect("a response");
    let lost = client.messages(2);
    assert!(matches!(lost[..], [Message::ReadyToUse(_)]));
    assert_eq!(server.events(), []);

    left.send(&mut client, 64);
    carry(3, &mut client, &mut server);
    assert_eq!(
        server.host.poll_event(),
        Some(Event::FirstPacket(right.number))
    );
    assert_eq!(server.events(), [(passive, EventKind::Established)]);
}

#[test]
fn end_of_a_connection_moves_its_queue_pair_to_error() {
    let (mut client, mut server) = (Station::new(CLIENT), Station::new(SERVER));
    server.listen();
    let (left, right) = (client.queue_pair(), server.queue_pair());
    let active = client.connect(0, left.number);
    carry(0, &mut client, &mut server);
    let passive = server.accept(1, right.number);
    carry(1, &mut client, &mut server);
    right.connect(&mut server, CLIENT, left.number);
    left.connect(&mut client, SERVER, right.number);
    client.host.manager().establish(active).expect("a response");
    carry(2, &mut client, &mut server);
    for (station, id, number) in [
        (&mut client, active, left.number),
        (&mut server, passive, right.number),
    ] {
        let ended = station.host.manager().disconnect(at(3), id);
        ended.expect("a connection");
        assert_eq!(station.state(number), State::ReadyToSend);
        assert_eq!(station.host.poll_instruction(), None, "it is done here");
        assert_eq!(station.state(number), State::Error);
    }
}

#[test]
fn ends_of_several_connections_are_handled_by_one_poll() {
    let (mut client, mut server) = (Station::new(CLIENT), Station::new(SERVER));
    server.listen();
    let mut ends = Vec::new();
    for _ in 0..2 {
        let (left, right) = (client.queue_pair(), server.queue_pair());
        let active = client.connect(0, left.number);
        carry(0, &mut client, &mut server);
        server.accept(1, right.number);
        carry(1, &mut client, &mut server);
        left.connect(&mut client, SERVER, right.number);
        client.host.manager().establish(active).expect("a response");
        carry(2, &mut client, &mut server);
        server.events();
        ends.push((active, left.number));
    }
    for (id, _) in &ends {
        let ended = client.host.manager().disconnect(at(3), *id);
        ended.expect("a connection");
    }
    assert_eq!(client.host.poll_instruction(), None);
    for (_, number) in ends {
        assert_eq!(client.state(number), State::Error);
    }
}

#[test]
fn instruction_about_a_queue_pair_of_another_device_is_passed_on() {
    let (mut client, mut server) = (Station::new(CLIENT), Station::new(SERVER));
    server.listen();
    let active = client.connect(0, CLIENT_QPN);
    carry(0, &mut client, &mut server);
    server.accept(1, SERVER_QPN);
    carry(1, &mut client, &mut server);
    client.host.manager().establish(active).expect("a response");
    carry(2, &mut client, &mut server);
    let ended = client.host.manager().disconnect(at(3), active);
    ended.expect("a connection");
    let expected = Instruction::MoveToError {
        id: active,
        qpn: CLIENT_QPN,
    };
    assert_eq!(client.host.poll_instruction(), Some(expected));
    assert_eq!(client.host.poll_instruction(), None);
}

/// Queue pair 1 has 64 sends and 16 receives.
#[test]
fn many_requests_at_once_are_all_sent_and_all_answered() {
    const REQUESTS: u32 = 200;
    let (mut client, mut server) = (Station::new(CLIENT), Station::new(SERVER));
    for number in 0..REQUESTS {
        client.connect(0, Qpn::new(0x100 + number));
    }
    let messages = carry(0, &mut client, &mut server);
    let requests = messages
        .iter()
        .filter(|message| matches!(message, Message::ConnectRequest(_)));
    assert_eq!(requests.count(), REQUESTS as usize);
    let events = client.events();
    assert_eq!(events.len(), REQUESTS as usize);
    for (_, kind) in events {
        let EventKind::Rejected { reason, .. } = kind else {
            panic!("{kind:?}");
        };
        assert_eq!(reason, RejectReason::InvalidServiceId);
    }
}

#[test]
fn message_leaves_from_the_address_of_its_id_with_its_traffic_class_and_hop_limit() {
    let second = [10, 0, 0, 9].into();
    let mut client = Station::with(CLIENT, |config| {
        config.device.gids = vec![wire::Gid::from(CLIENT), wire::Gid::from(second)];
    });
    client.host.manager().add_address(second);
    client.address = second;
    let manager = client.host.manager();
    let id = manager.create_id(
        wire::cm::PortSpace::Tcp,
        cm::ServiceType::ReliableConnection,
    );
    manager
        .set_traffic_class(id.expect("an id"), 1)
        .expect("new");
    client.connect_with(0, id.expect("an id"), CLIENT_QPN);
    let sent = client.sends(0);
    let [request] = &sent[..] else {
        panic!("one packet");
    };
    assert_eq!(request.route.flow.source, second);
    assert_eq!(request.route.flow.destination, SERVER);
    assert_eq!(
        (request.route.traffic_class, request.route.hop_limit),
        (1, HOP_LIMIT)
    );
}

#[test]
fn message_of_an_address_that_the_device_does_not_have_is_not_sent() {
    let mut client = Station::new(CLIENT);
    let lost = [10, 0, 0, 9].into();
    client.host.manager().add_address(lost);
    client.address = lost;
    client.connect(0, CLIENT_QPN);
    assert_eq!(client.messages(0), []);
}

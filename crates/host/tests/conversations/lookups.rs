//! Messages that another process at the address may own.

use cm::IdRange;
use host::{Host, Message, Owner};
use wire::Qpn;
use wire::cm::{Message as CmMessage, RejectReason};

use crate::station::{CLIENT, SERVER, Sent, Station, at, carry};

/// How many messages may wait for a look-up.
const MAX_UNRESOLVED: usize = 256;

/// A process that shares the server's address with others, and owns the communication ids that begin with 3.
fn sharing() -> Station {
    Station::with(SERVER, |config| {
        config.shares_addresses = true;
        config.manager.id_range = IdRange::new(6, 3).expect("six bits");
    })
}

/// A connection request, as a packet.
fn request() -> Sent {
    let mut client = Station::new(CLIENT);
    client.connect(0, Qpn::new(0x11));
    let sent = client.sends(0);
    sent.into_iter().next().expect("a request")
}

fn holds(host: &mut Host, packet: &Sent, forwarded: bool) -> bool {
    host.hold_for_lookup(&packet.route, &packet.bytes, forwarded)
}

/// Holds a request, and asks for its look-up.
fn held(server: &mut Station) -> Message {
    assert!(holds(&mut server.host, &request(), false));
    server.host.poll_lookup(at(0)).expect("a look-up")
}

#[test]
fn request_without_a_listener_is_held_whether_or_not_it_was_forwarded() {
    for forwarded in [false, true] {
        let mut server = sharing();
        assert!(holds(&mut server.host, &request(), forwarded));
        let message = server.host.poll_lookup(at(0)).expect("a look-up");
        assert_eq!(message.packet, request().bytes);
        assert_eq!(message.route, request().route);
        assert!(server.host.poll_lookup(at(0)).is_none(), "it is asked once");
    }
}

#[test]
fn request_to_a_listener_of_this_process_is_not_held() {
    let mut server = sharing();
    server.listen();
    assert!(!holds(&mut server.host, &request(), false));
}

#[test]
fn process_that_has_its_addresses_alone_holds_nothing() {
    let mut server = Station::new(SERVER);
    assert!(!holds(&mut server.host, &request(), false));
    assert!(server.host.poll_lookup(at(0)).is_none());
}

#[test]
fn damaged_request_is_left_to_the_device_which_counts_it() {
    let mut server = sharing();
    let mut packet = request();
    let last = packet.bytes.len() - 1;
    packet.bytes[last] ^= 1;
    assert!(!holds(&mut server.host, &packet, false));
    server.receives(0, &[packet]);
    assert_eq!(server.host.device().counters().bad_checksum, 1);
    assert_eq!(server.messages(0), []);
}

/// A REP is for the process whose range has its communication id. One that was forwarded has been looked up.
#[test]
fn reply_is_held_only_by_a_process_that_does_not_own_its_id() {
    let mut server = Station::new(SERVER);
    server.listen();
    let mut owner = Station::with(CLIENT, |config| {
        config.shares_addresses = true;
        config.manager.id_range = IdRange::new(6, 3).expect("six bits");
    });
    let mut other = Station::with(CLIENT, |config| {
        config.shares_addresses = true;
        config.manager.id_range = IdRange::new(6, 4).expect("six bits");
    });
    owner.connect(0, Qpn::new(0x11));
    carry(0, &mut owner, &mut server);
    server.accept(1, Qpn::new(0x22));
    let sent = server.sends(1);
    let [reply] = &sent[..] else {
        panic!("one packet");
    };
    assert!(matches!(reply.message(), Some(CmMessage::ConnectReply(_))));
    assert!(!holds(&mut owner.host, reply, false));
    assert!(holds(&mut other.host, reply, false));
    assert!(!holds(&mut other.host, reply, true));
}

/// A requester that gives up before a response does not know our id, so any process may have the request.
#[test]
fn timeout_reject_without_our_id_is_held() {
    let mut client = Station::new(CLIENT);
    let id = client.connect(0, Qpn::new(0x11));
    client.sends(0);
    client.host.manager().destroy(at(1), id).expect("an id");
    let sent = client.sends(1);
    let [reject] = &sent[..] else {
        panic!("one packet");
    };
    assert!(matches!(reject.message(), Some(CmMessage::Reject(_))));
    assert!(holds(&mut sharing().host, reject, false));
}

#[test]
fn message_of_another_process_is_not_handled_here() {
    let mut server = sharing();
    let message = held(&mut server);
    let ours = server.host.finish_lookup(at(0), message, Owner::Elsewhere);
    assert!(ours.is_none());
    assert_eq!(server.host.poll_timeout(), None, "it is not asked again");
}

#[test]
fn message_of_this_process_is_handled_at_once() {
    let mut server = sharing();
    let message = held(&mut server);
    let ours = server.host.finish_lookup(at(0), message, Owner::Here);
    let ours = ours.expect("it is ours");
    server
        .host
        .handle_datagram(at(0), &ours.route, &ours.packet);
    assert_eq!(server.messages(0).len(), 1, "it is rejected");
}

#[test]
fn request_without_a_listener_is_looked_up_again_and_rejected_after_a_second() {
    let mut server = sharing();
    let mut message = held(&mut server);
    let mut now = at(0);
    let mut lookups = 0;
    let ours = loop {
        if let Some(ours) = server.host.finish_lookup(now, message, Owner::None) {
            break ours;
        }
        assert!(server.host.poll_lookup(now).is_none(), "it waits");
        now = server.host.poll_timeout().expect("a time");
        message = server.host.poll_lookup(now).expect("its time has come");
        lookups += 1;
    };
    assert_eq!((now, lookups), (at(1000), 500));
    server.host.handle_datagram(now, &ours.route, &ours.packet);
    let [CmMessage::Reject(reject)] = server.messages(1000)[..] else {
        panic!("one message");
    };
    assert_eq!(reject.reason, RejectReason::InvalidServiceId);
}

#[test]
fn request_that_waits_reaches_the_listener_that_comes() {
    let mut server = sharing();
    let message = held(&mut server);
    let waits = server.host.finish_lookup(at(0), message, Owner::None);
    assert!(waits.is_none());
    server.listen();
    let message = server.host.poll_lookup(at(2)).expect("its time has come");
    let ours = server.host.finish_lookup(at(2), message, Owner::Here);
    let ours = ours.expect("it is ours");
    server
        .host
        .handle_datagram(at(2), &ours.route, &ours.packet);
    server.accept(2, Qpn::new(0x22));
}

#[test]
fn messages_are_looked_up_in_the_order_in_which_they_arrive() {
    let mut server = sharing();
    let mut client = Station::new(CLIENT);
    for number in [0x11, 0x12] {
        client.connect(0, Qpn::new(number));
    }
    let sent = client.sends(0);
    for packet in &sent {
        assert!(holds(&mut server.host, packet, false));
    }
    for packet in sent {
        let message = server.host.poll_lookup(at(0)).expect("a look-up");
        assert_eq!(message.packet, packet.bytes);
    }
}

#[test]
fn the_next_timer_is_the_first_one_of_device_manager_and_look_ups() {
    let mut server = sharing();
    server.connect(0, Qpn::new(0x11));
    assert_eq!(server.sends(0).len(), 1);
    assert_eq!(server.host.poll_timeout(), Some(at(1500)), "the manager's");
    let pair = server.queue_pair();
    pair.connect(&mut server, CLIENT, Qpn::new(0x12));
    pair.send(&mut server, 1);
    assert_eq!(server.sends(0).len(), 1);
    let of_device = server.host.poll_timeout().expect("a timer");
    assert!(of_device > at(2) && of_device < at(1500));
    let message = held(&mut server);
    let waits = server.host.finish_lookup(at(0), message, Owner::None);
    assert!(waits.is_none());
    assert_eq!(server.host.poll_timeout(), Some(at(2)), "the look-up's");
}

/// Nobody waits for the owner of a reply: its connection is over.
#[test]
fn reply_without_an_owner_is_handled_at_once() {
    let mut server = Station::new(SERVER);
    server.listen();
    let mut client = Station::new(CLIENT);
    client.connect(0, Qpn::new(0x11));
    carry(0, &mut client, &mut server);
    server.accept(1, Qpn::new(0x22));
    let reply = server.sends(1).remove(0);
    let mut other = Station::with(CLIENT, |config| {
        config.shares_addresses = true;
        config.manager.id_range = IdRange::new(13, 1).expect("13 bits");
    });
    assert!(holds(&mut other.host, &reply, false));
    let message = other.host.poll_lookup(at(1)).expect("a look-up");
    let ours = other.host.finish_lookup(at(1), message, Owner::None);
    assert!(ours.is_some());
}

#[test]
fn messages_beyond_the_limit_are_dropped_and_counted() {
    let mut server = sharing();
    let packet = request();
    for _ in 0..MAX_UNRESOLVED + 3 {
        assert!(holds(&mut server.host, &packet, false));
    }
    assert_eq!(server.host.dropped_messages(), 3);
    let lookups = std::iter::from_fn(|| server.host.poll_lookup(at(0)));
    assert_eq!(lookups.count(), MAX_UNRESOLVED);
}

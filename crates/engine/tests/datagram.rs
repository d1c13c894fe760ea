//! Unreliable datagrams.

mod conversation;

use conversation::*;
use engine::{
    Address, AsyncEvent, CompletedWork, Config, Destination, MulticastError, Notify, PostError,
    QueuePairType, ReceiveRequest, SendFlags, SendRequest, Source, State, Status, Work,
};
use std::net::IpAddr;
use wire::{Flow, Gid, PathMtu, Qpn, QueueKey, Route, grh};

const QUEUE_KEY: u32 = 0x1111_1111;

fn datagrams() -> Setup {
    Setup {
        kind: QueuePairType::Ud,
        ..Setup::default()
    }
}

fn with_inbox() -> (Conversation, Region) {
    let mut peer = Conversation::with(datagrams());
    let inbox = peer.registers(0x1000, &[0; 256]);
    peer.posts_receive(1, &inbox);
    (peer, inbox)
}

fn to_peer(queue_key: u32) -> Destination {
    Destination {
        address: Address::new(gid(PEER_ADDRESS), 0),
        queue_pair: PEER,
        queue_key: QueueKey::new(queue_key),
    }
}

fn hello(id: u64) -> SendRequest {
    let request = SendRequest::new(id, Work::Send).inline(b"hello");
    request.to(to_peer(0x2222_2222))
}

/// The specification defines an immediate error for work that the transport service does not
/// support.
#[test]
fn datagram_queue_pair_rejects_reads_writes_and_atomics() {
    let mut peer = Conversation::with(datagrams());
    let memory = peer.registers(0x1000, &[0; 64]);
    let remote = remote(0x9000);
    for work in [
        Work::Read(remote),
        Work::Write(remote),
        Work::WriteImmediate(remote, *b"imm!"),
        Work::AtomicWrite(remote),
        Work::FetchAdd { remote, add: 1 },
        Work::CompareSwap {
            remote,
            compare: 1,
            swap: 2,
        },
        Work::SendInvalidate(memory.key()),
        Work::LocalInvalidate(memory.key()),
    ] {
        let request = SendRequest::new(1, work).with([memory.segment(0, 8)]);
        let rejected = peer.device.post_send(peer.number, request.to(to_peer(1)));
        assert_eq!(rejected, Err(PostError::Unsupported), "{work:?}");
    }
    peer.completes([]);
    peer.receives_nothing(at(1));
    assert_eq!(peer.state(), State::ReadyToSend);
}

#[test]
fn datagram_completes_when_it_is_sent() {
    let mut peer = Conversation::with(datagrams());
    peer.posts(hello(1));
    let work = Work::SendImmediate(*b"imm!");
    let request = SendRequest::new(2, work).inline(b"hello");
    peer.posts(
        request
            .to(to_peer(0x2222_2222))
            .flags(SendFlags::SIGNALED | SendFlags::SOLICITED),
    );
    let received = peer.received(at(0));
    let words: Vec<&str> = received.iter().map(DevicePacket::text).collect();
    assert_eq!(
        words,
        [
            "datagram +0 5B qkey=0x22222222",
            "datagram +1 5B qkey=0x22222222 imm=imm! solicited",
        ]
    );
    assert_eq!(received[0].packet().destination, PEER);
    assert_eq!(
        received[0].packet().deth().expect("a DETH").source(),
        peer.number
    );
    assert_eq!(
        received[0].route.flow.destination,
        IpAddr::from(PEER_ADDRESS)
    );
    peer.completes([(1, Status::Success), (2, Status::Success)]);
    peer.receives_nothing(at(10_000));
}

#[test]
fn datagrams_to_several_destinations_have_their_own_routes() {
    let mut peer = Conversation::with(datagrams());
    for last in [2, 3, 2] {
        let mut destination = to_peer(0x2222_2222);
        destination.address = Address::new(gid([10, 0, 0, last]), 0);
        destination.address.hop_limit = last;
        let request = SendRequest::new(1, Work::Send).inline(b"hello");
        peer.posts(request.to(destination));
    }
    let ways: Vec<(IpAddr, u8)> = peer
        .received(at(0))
        .iter()
        .map(|received| (received.route.flow.destination, received.route.hop_limit))
        .collect();
    let way = |last| (IpAddr::from([10, 0, 0, last]), last);
    assert_eq!(ways, [way(2), way(3), way(2)]);
}

#[test]
fn datagram_as_long_as_the_mtu_is_sent() {
    let mut peer = Conversation::with(datagrams());
    let outbox = peer.registers(0x1000, &pattern(8192));
    let request = SendRequest::new(1, Work::Send).with([outbox.segment(0, 4096)]);
    peer.posts(request.to(to_peer(1)));
    peer.receives(at(0), ["datagram +0 4096B qkey=0x1"]);
    peer.completes([(1, Status::Success)]);
}

#[test]
fn oversize_datagram_is_not_sent_and_moves_the_send_queue_to_error() {
    let (mut peer, inbox) = with_inbox();
    let outbox = peer.registers(0x9000, &pattern(8192));
    let request = SendRequest::new(2, Work::Send).with([outbox.segment(0, 4097)]);
    peer.posts(request.to(to_peer(1)));
    peer.posts(hello(3));
    peer.receives_nothing(at(0));
    peer.completes([(2, Status::LocalLength), (3, Status::Flushed)]);
    assert_eq!(peer.state(), State::SendQueueError);
    // Receiving continues.
    peer.sends(at(1), datagram(PSN, QUEUE_KEY, PEER, b"hi"));
    peer.completes([(1, Status::Success)]);
    assert_eq!(inbox.bytes()[40..42], *b"hi");
    // Requests are flushed until the application moves the queue pair to Ready to Send.
    peer.posts(hello(4));
    peer.completes([(4, Status::Flushed)]);
    peer.goes_to(State::ReadyToSend);
    peer.posts(hello(5));
    peer.receives(at(2), ["datagram +0 5B qkey=0x22222222"]);
    peer.completes([(5, Status::Success)]);
}

// IBA 10.3.1
#[test]
fn unusable_local_key_moves_the_send_queue_to_error() {
    let mut peer = Conversation::with(datagrams());
    let outbox = peer.registers(0x1000, &pattern(64));
    let request = SendRequest::new(1, Work::Send).with([outbox.segment(60, 5)]);
    peer.posts(request.to(to_peer(1)));
    peer.posts(hello(2));
    peer.receives_nothing(at(0));
    peer.completes([(1, Status::LocalProtection), (2, Status::Flushed)]);
    assert_eq!(peer.state(), State::SendQueueError);
}

#[test]
fn datagram_needs_a_reachable_destination() {
    let mut peer = Conversation::with(datagrams());
    let number = peer.number;
    let nowhere = SendRequest::new(1, Work::Send).inline(b"hello");
    let rejected = peer.device.post_send(number, nowhere);
    assert_eq!(rejected, Err(PostError::Destination));
    let mut destination = to_peer(1);
    destination.address.source_index = 9;
    let rejected = peer.device.post_send(number, hello(1).to(destination));
    assert!(matches!(rejected, Err(PostError::Address(_))));
    let write = SendRequest::new(1, Work::Write(remote(0x9000))).to(to_peer(1));
    let rejected = peer.device.post_send(number, write);
    assert_eq!(rejected, Err(PostError::Unsupported));
}

#[test]
fn privileged_queue_key_is_replaced_by_the_queue_pair_s_key() {
    let mut peer = Conversation::with(datagrams());
    peer.posts(hello(1).to(to_peer(0x8000_0000)));
    peer.posts(hello(2).to(to_peer(0x7fff_ffff)));
    peer.receives(
        at(0),
        [
            "datagram +0 5B qkey=0x11111111",
            "datagram +1 5B qkey=0x7fffffff",
        ],
    );
}

#[test]
fn datagram_with_a_wrong_queue_key_is_dropped() {
    let (mut peer, _) = with_inbox();
    peer.sends(at(1), datagram(PSN, QUEUE_KEY + 1, PEER, b"hello"));
    peer.completes([]);
    assert_eq!(peer.counters().bad_queue_key, 1);
    peer.sends(at(2), datagram(PSN, QUEUE_KEY, PEER, b"hello"));
    peer.completes([(1, Status::Success)]);
    peer.receives_nothing(at(3));
}

// IBA 11.4.1.2, Annex A17.4.5.2
#[test]
fn receive_starts_with_the_ipv4_header_in_the_grh_area() {
    let (mut peer, inbox) = with_inbox();
    let sent = datagram(PSN, QUEUE_KEY, Qpn::new(0xabc), b"hello");
    let bytes = sent.sealed(peer.number, &flow());
    let route = Route {
        flow: flow(),
        traffic_class: 0x20,
        hop_limit: 63,
    };
    peer.device.handle_datagram(at(1), &route, &bytes);
    let completion = peer.completion();
    assert_eq!(completion.work, CompletedWork::Receive);
    assert_eq!(completion.length, 45);
    let source = Source {
        queue_pair: Qpn::new(0xabc),
        gid: gid(PEER_ADDRESS),
    };
    assert_eq!(completion.source, Some(source));
    assert_eq!(inbox.bytes()[40..46], *b"hello\0");
    let area: [u8; 40] = inbox.first(40).try_into().expect("forty bytes");
    assert_eq!(area[..20], [0; 20]);
    assert_eq!(area[20..22], [0x45, 0x20]);
    // 20 IP + 8 UDP + 12 BTH + 8 DETH + 8 data and pad + 4 ICRC.
    assert_eq!(area[22..24], 60_u16.to_be_bytes());
    let route = grh::parse(&area).expect("an IPv4 header");
    assert_eq!(route.source, gid(PEER_ADDRESS));
    assert_eq!(route.destination, gid(DEVICE_ADDRESS));
    assert_eq!((route.traffic_class, route.hop_limit), (0x20, 63));
}

fn over_ipv6() -> (Setup, Flow) {
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let flow = Flow {
        source: address("fd00::2"),
        destination: address("fd00::1"),
        ..flow()
    };
    let setup = datagrams();
    let config = Config {
        gids: vec![flow.destination.into()],
        ..setup.config.clone()
    };
    (Setup { config, ..setup }, flow)
}

// IBA 11.4.1.2, Annex A17.4.5.2
#[test]
fn receive_starts_with_the_ipv6_header_in_the_grh_area() {
    let (setup, flow) = over_ipv6();
    let mut peer = Conversation::with(setup);
    let inbox = peer.registers(0x1000, &[0; 256]);
    peer.posts_receive(1, &inbox);
    let sent = datagram(PSN, QUEUE_KEY, Qpn::new(0xabc), b"hello");
    let bytes = sent.sealed(peer.number, &flow);
    peer.delivers(at(1), &flow, &bytes);
    let source = peer.completion().source.expect("a datagram has a source");
    assert_eq!(source.gid, Gid::from(flow.source));
    let area: [u8; 40] = inbox.first(40).try_into().expect("forty bytes");
    assert_eq!(area[0] >> 4, 6);
    // 8 UDP + 12 BTH + 8 DETH + 8 data and pad + 4 ICRC.
    assert_eq!(area[4..6], 40_u16.to_be_bytes());
    let route = grh::parse(&area).expect("an IPv6 header");
    assert_eq!(route.source, Gid::from(flow.source));
    assert_eq!(route.destination, Gid::from(flow.destination));
    assert_eq!(inbox.bytes()[40..45], *b"hello");
}

#[test]
fn packets_from_addresses_that_no_machine_has_are_dropped() {
    let (setup, over_ipv6) = over_ipv6();
    let over_ipv4 = flow();
    let setups = [
        (setup, over_ipv6, ["::", "ff02::1", "::ffff:10.0.0.2"]),
        (
            datagrams(),
            over_ipv4,
            ["0.0.0.0", "224.0.0.1", "255.255.255.255"],
        ),
    ];
    for (setup, flow, sources) in setups {
        let mut peer = Conversation::with(setup);
        let inbox = peer.registers(0x1000, &[0; 256]);
        peer.posts_receive(1, &inbox);
        for source in sources {
            let flow = Flow {
                source: source.parse().expect("an address"),
                ..flow
            };
            let before = *peer.counters();
            let number = peer.number;
            let hello = || datagram(PSN, QUEUE_KEY, Qpn::new(0xabc), b"hello");
            peer.delivers(at(1), &flow, &hello().sealed(number, &flow));
            let request = send_only(PSN, b"hello").sealed(Qpn::new(0x1234), &flow);
            peer.delivers(at(1), &flow, &request);
            let route = Route::new(flow);
            let without_icrc = hello().sealed(number, &flow);
            peer.device
                .handle_without_icrc(at(1), &route, &without_icrc);
            let wrong_path = before.wrong_path + 3;
            let expected = engine::Counters {
                wrong_path,
                ..before
            };
            assert_eq!(*peer.counters(), expected, "{source}");
        }
        peer.completes([]);
        let number = peer.number;
        let sent = datagram(PSN, QUEUE_KEY, Qpn::new(0xabc), b"hello");
        peer.delivers(at(2), &flow, &sent.sealed(number, &flow));
        peer.completes([(1, Status::Success)]);
    }
}

#[test]
fn datagram_is_sent_over_ipv6() {
    let (setup, flow) = over_ipv6();
    let mut peer = Conversation::with(setup);
    let mut destination = to_peer(1);
    destination.address.destination = flow.source.into();
    peer.posts(hello(1).to(destination));
    let received = peer.received(at(0));
    assert_eq!(received[0].text(), "datagram +0 5B qkey=0x1");
    assert_eq!(received[0].route.flow.destination, flow.source);
}

#[test]
fn datagram_delivers_immediate_data_and_solicited_event() {
    let (mut peer, _) = with_inbox();
    peer.arms(Notify::Solicited);
    let sent = PeerPacket::new(wire::Opcode::UdSendOnlyImmediate, PSN, b"x")
        .push(&wire::Deth::new(QueueKey::new(QUEUE_KEY), PEER))
        .push(&wire::Immediate::new(*b"imm!"))
        .solicited();
    peer.sends(at(1), sent);
    assert!(peer.is_notified());
    assert_eq!(peer.completion().immediate, Some(*b"imm!"));
}

#[test]
fn datagram_without_a_receive_is_dropped_silently() {
    let (mut peer, _) = with_inbox();
    peer.sends(at(1), datagram(PSN, QUEUE_KEY, PEER, b"one"));
    peer.sends(at(1), datagram(PSN + 1, QUEUE_KEY, PEER, b"two"));
    peer.receives_nothing(at(2));
    peer.completes([(1, Status::Success)]);
    assert_eq!(peer.counters().dropped_messages, 1);
    assert_eq!(peer.state(), State::ReadyToSend);
}

#[test]
fn psn_of_a_datagram_is_ignored() {
    let (mut peer, inbox) = with_inbox();
    peer.posts_receive(2, &inbox);
    peer.sends(at(1), datagram(PSN + 77, QUEUE_KEY, PEER, b"one"));
    peer.sends(at(1), datagram(PSN - 5, QUEUE_KEY, PEER, b"two"));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn datagram_longer_than_the_receive_is_dropped_and_the_receive_stays_posted() {
    let mut peer = Conversation::with(datagrams());
    let inbox = peer.registers(0x1000, &[0; 256]);
    peer.posts_receive_request(ReceiveRequest::new(1, [inbox.segment(0, 44)]));
    peer.sends(at(1), datagram(PSN, QUEUE_KEY, PEER, b"five!"));
    peer.completes([]);
    assert_eq!(peer.state(), State::ReadyToSend);
    assert_eq!(inbox.bytes(), [0; 256]);
    assert_eq!(peer.counters().dropped_messages, 1);
    peer.raises([]);
    peer.sends(at(2), datagram(PSN, QUEUE_KEY, PEER, b"four"));
    peer.completes([(1, Status::Success)]);
    assert_eq!(inbox.bytes()[40..45], *b"four\0");
}

#[test]
fn oversize_management_datagram_does_not_change_queue_pair_1() {
    let mut peer = Conversation::with(Setup {
        kind: QueuePairType::Management,
        ..Setup::default()
    });
    let inbox = peer.registers(0x1000, &[0; 512]);
    peer.posts_receive_request(ReceiveRequest::new(1, [inbox.segment(0, 296)]));
    peer.sends(at(1), datagram(PSN, 0x8001_0000, PEER, &[7; 257]));
    peer.completes([]);
    assert_eq!(peer.state(), State::ReadyToSend);
    peer.sends(at(2), datagram(PSN, 0x8001_0000, PEER, &[7; 256]));
    peer.completes([(1, Status::Success)]);
}

#[test]
fn receive_with_an_unusable_key_moves_the_queue_pair_to_error() {
    let mut peer = Conversation::with(datagrams());
    let inbox = peer.registers(0x1000, &[0; 256]);
    let mut segment = inbox.segment(0, 128);
    segment.address += 200;
    peer.posts_receive_request(ReceiveRequest::new(1, [segment]));
    peer.posts_receive(2, &inbox);
    peer.sends(at(1), datagram(PSN, QUEUE_KEY, PEER, b"hello"));
    peer.completes([(1, Status::LocalProtection), (2, Status::Flushed)]);
    assert_eq!(peer.state(), State::Error);
    let number = peer.number;
    peer.raises([AsyncEvent::QueuePairFatal(number)]);
}

#[test]
fn datagram_that_exactly_fits_its_receive_is_delivered() {
    let mut peer = Conversation::with(datagrams());
    let inbox = peer.registers(0x1000, &[0; 256]);
    peer.posts_receive_request(ReceiveRequest::new(1, [inbox.segment(0, 45)]));
    peer.sends(at(1), datagram(PSN, QUEUE_KEY, PEER, b"five!"));
    peer.completes([(1, Status::Success)]);
}

#[test]
fn grh_area_is_scattered_like_the_payload() {
    let mut peer = Conversation::with(datagrams());
    let inbox = peer.registers(0x1000, &[0xee; 256]);
    let segments = [inbox.segment(0, 30), inbox.segment(100, 100)];
    peer.posts_receive_request(ReceiveRequest::new(1, segments));
    peer.sends(at(1), datagram(PSN, QUEUE_KEY, PEER, b"hello"));
    peer.completes([(1, Status::Success)]);
    let bytes = inbox.bytes();
    assert_eq!(bytes[20..22], [0x45, 0]);
    assert_eq!(bytes[30..100], [0xee; 70]);
    // The last ten bytes of the GRH area hold the addresses; the data follows.
    assert_eq!(bytes[106..116], *b"\x0a\x00\x00\x01hello\xee");
}

const GROUP: [u8; 4] = [239, 1, 2, 3];

fn to_group(payload: &[u8]) -> (Flow, PeerPacket) {
    let flow = Flow {
        destination: GROUP.into(),
        ..flow()
    };
    let sent = datagram(PSN, QUEUE_KEY, PEER, payload);
    (flow, sent.to(Qpn::MULTICAST))
}

#[test]
fn multicast_datagram_is_delivered_to_every_member() {
    let (mut peer, inbox) = with_inbox();
    let init = peer.init();
    let second = peer.adds(init);
    let outsider = peer.adds(init);
    for (id, number) in [(2, second), (3, outsider)] {
        let request = ReceiveRequest::new(id, [inbox.all()]);
        peer.device
            .post_receive(number, request)
            .expect("the queue has room");
    }
    let group = gid(GROUP);
    let number = peer.number;
    peer.device
        .attach_multicast(number, group)
        .expect("the queue pair can join");
    peer.device
        .attach_multicast(number, group)
        .expect("joining twice is allowed");
    peer.device
        .attach_multicast(second, group)
        .expect("the queue pair can join");
    let (flow, sent) = to_group(b"all");
    peer.delivers(at(1), &flow, &sent.clone().sealed(number, &flow));
    let completions = peer.completions();
    let receivers: Vec<(u64, Qpn)> = completions
        .iter()
        .map(|completion| (completion.id, completion.queue_pair))
        .collect();
    assert_eq!(receivers, [(1, number), (2, second)]);
    let area: [u8; 40] = inbox.first(40).try_into().expect("forty bytes");
    let route = grh::parse(&area).expect("an IPv4 header");
    assert_eq!(route.destination, group);

    peer.posts_receive(4, &inbox);
    peer.device
        .detach_multicast(number, group)
        .expect("the queue pair is a member");
    peer.device
        .detach_multicast(second, group)
        .expect("the queue pair is a member");
    peer.delivers(at(2), &flow, &sent.sealed(number, &flow));
    peer.completes([]);
    assert_eq!(peer.counters().unknown_group, 1);
}

#[test]
fn only_datagram_queue_pairs_join_only_multicast_addresses() {
    let mut peer = Conversation::new();
    let number = peer.number;
    let rejected = peer.device.attach_multicast(number, gid(GROUP));
    assert_eq!(rejected, Err(MulticastError::NotDatagram));
    let mut peer = Conversation::with(datagrams());
    let number = peer.number;
    let rejected = peer.device.attach_multicast(number, gid(PEER_ADDRESS));
    assert_eq!(
        rejected,
        Err(MulticastError::NotMulticast(gid(PEER_ADDRESS)))
    );
    let rejected = peer.device.detach_multicast(number, gid(GROUP));
    assert_eq!(rejected, Err(MulticastError::NotMember(gid(GROUP))));
    let rejected = peer.device.attach_multicast(Qpn::new(999), gid(GROUP));
    assert_eq!(rejected, Err(MulticastError::UnknownQueuePair));
}

#[test]
fn destroyed_queue_pair_leaves_its_groups() {
    let (mut peer, _) = with_inbox();
    let number = peer.number;
    peer.device
        .attach_multicast(number, gid(GROUP))
        .expect("the queue pair can join");
    peer.device
        .destroy_queue_pair(number)
        .expect("nothing uses the queue pair");
    let (flow, sent) = to_group(b"all");
    peer.delivers(at(1), &flow, &sent.sealed(number, &flow));
    assert_eq!(peer.counters().unknown_group, 1);
}

#[test]
fn management_queue_pair_has_number_1_and_the_well_known_queue_key() {
    let mut peer = Conversation::with(Setup {
        kind: QueuePairType::Management,
        ..Setup::default()
    });
    assert_eq!(peer.number, Qpn::GSI);
    let inbox = peer.registers(0x1000, &[0; 512]);
    peer.posts_receive(1, &inbox);
    peer.sends(at(1), datagram(PSN, QUEUE_KEY, Qpn::GSI, b"wrong key"));
    peer.completes([]);
    peer.sends(at(2), datagram(PSN, 0x8001_0000, Qpn::GSI, &[7; 256]));
    let completion = peer.completion();
    assert_eq!((completion.queue_pair, completion.length), (Qpn::GSI, 296));
    let mut destination = to_peer(0x8001_0000);
    destination.queue_pair = Qpn::GSI;
    peer.posts(hello(2).to(destination));
    peer.receives(at(3), ["datagram +0 5B qkey=0x80010000"]);
    let second = peer.device.create_queue_pair(peer.init());
    assert_eq!(second, Err(engine::ObjectError::Exhausted));
}

#[test]
fn datagrams_use_the_mtu_of_the_port() {
    let setup = datagrams();
    let mut peer = Conversation::with(Setup {
        config: Config {
            active_mtu: PathMtu::Mtu256,
            ..setup.config.clone()
        },
        path_mtu: PathMtu::Mtu256,
        ..setup
    });
    let outbox = peer.registers(0x1000, &pattern(512));
    let request = |id, length| {
        let request = SendRequest::new(id, Work::Send).with([outbox.segment(0, length)]);
        request.to(to_peer(1))
    };
    peer.posts(request(1, 256));
    peer.posts(request(2, 257));
    peer.receives(at(0), ["datagram +0 256B qkey=0x1"]);
    peer.completes([(1, Status::Success), (2, Status::LocalLength)]);
}

#[test]
fn draining_queue_keeps_unsent_datagrams_until_ready_to_send() {
    let mut peer = Conversation::with(datagrams());
    peer.goes_to(State::SendQueueDrain);
    peer.posts(hello(1));
    peer.receives_nothing(at(0));
    peer.completes([]);
    peer.goes_to(State::ReadyToSend);
    peer.receives(at(1), ["datagram +0 5B qkey=0x22222222"]);
    peer.completes([(1, Status::Success)]);
}

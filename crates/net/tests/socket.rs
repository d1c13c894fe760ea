//! Packets through real sockets of this machine, verified as a peer would verify them.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::process;
use std::time::Duration;

use net::poll::{Interest, wait};
use net::socket::{Inbox, Receiver, SendError, Sender, SocketError};
use wire::{Flow, IcrcChecker, Opcode, PacketHead, Psn, Qpn, ROCE_PORT, Route, icrc};

/// Packets as the engine makes them: packet *i* is sealed for the identification *i*.
fn batch(flow: &Flow, packets: u16, payload: usize) -> (usize, Vec<u8>) {
    let mut bytes = Vec::new();
    for number in 0..packets {
        let psn = Psn::new(u32::from(number));
        let head = PacketHead::new(Opcode::RcSendMiddle, Qpn::new(0x11), psn);
        let start = bytes.len();
        bytes.extend_from_slice(head.bytes());
        bytes.extend((0..payload).map(|place| (place * 7) as u8));
        let seal = icrc::checksum(flow, number, &bytes[start..]);
        bytes.extend(seal);
    }
    (bytes.len() / usize::from(packets), bytes)
}

/// Everything that arrives within a moment: route and bytes of each packet, and how many batches.
fn arrivals(receiver: &Receiver, inbox: &mut Inbox) -> (Vec<(Route, Vec<u8>)>, usize) {
    let mut packets = Vec::new();
    let mut batches = 0;
    let interest = [Interest::readable(receiver.as_fd())];
    while !wait(&interest, Some(Duration::from_millis(20)))
        .unwrap()
        .is_empty()
    {
        for batch in receiver.receive(inbox).unwrap() {
            batches += 1;
            packets.extend(batch.packets().map(|packet| (batch.route, packet.to_vec())));
        }
    }
    (packets, batches)
}

/// The identification that each packet had in its IPv4 header, after its ICRC was verified.
fn identifications(packets: &[(Route, Vec<u8>)]) -> Vec<u16> {
    let mut checker = IcrcChecker::new();
    let check = |(route, packet): &(Route, Vec<u8>)| {
        let fragmentation = checker
            .check(&route.flow, packet)
            .expect("an intact packet");
        assert!(fragmentation.dont_fragment);
        fragmentation.identification
    };
    packets.iter().map(check).collect()
}

/// An address for one test of this run: another run at the same time has others.
fn address(test: u8) -> IpAddr {
    let [low, high, ..] = process::id().to_le_bytes();
    IpAddr::from([127, 128 | high & 63, low, test])
}

/// A sender and a receiver on one address, and the route of what goes between them.
fn pair(address: IpAddr) -> (Sender, Receiver, Route) {
    let receiver = Receiver::bind(SocketAddr::new(address, 0)).unwrap();
    let sender = Sender::bind(address).unwrap();
    let mut route = Route::new(sender.flow_to(address));
    route.flow.destination_port = receiver.local().port();
    (sender, receiver, route)
}

#[test]
fn a_segmented_batch_arrives_in_one_piece_with_counting_identifications() {
    let (sender, receiver, route) = pair(address(1));
    assert!(sender.segmentation());
    let (size, mut bytes) = batch(&route.flow, 60, 1024);
    // The last may be shorter.
    let short = bytes.len() - size;
    let (_, last) = batch(&route.flow, 1, 4);
    bytes.truncate(short);
    bytes.extend(last);
    for _ in 0..3 {
        sender.send(&route, size, &mut bytes).unwrap();
    }
    let (packets, batches) = arrivals(&receiver, &mut Inbox::default());
    assert_eq!((packets.len(), batches), (180, 3));
    let mut expected: Vec<u16> = (0..59).collect();
    expected.push(0);
    assert_eq!(identifications(&packets), expected.repeat(3));
    assert!(packets.iter().all(|(arrived, _)| *arrived == route));
}

#[test]
fn without_segmentation_every_packet_is_resealed_for_identification_zero() {
    let (sender, receiver, route) = pair(address(2));
    sender.set_segmentation(false);
    let (size, mut bytes) = batch(&route.flow, 100, 512);
    sender.send(&route, size, &mut bytes).unwrap();
    let (packets, batches) = arrivals(&receiver, &mut Inbox::new(16));
    println!("{} packets in {batches} batches", packets.len());
    assert_eq!(identifications(&packets), [0; 100]);
}

#[test]
fn a_batch_that_the_kernel_rejects_is_sent_packet_by_packet() {
    let (sender, receiver, route) = pair(address(3));
    // No kernel takes that many in one send.
    let (size, mut bytes) = batch(&route.flow, 300, 64);
    sender.send(&route, size, &mut bytes).unwrap();
    assert!(!sender.segmentation());
    let (packets, _) = arrivals(&receiver, &mut Inbox::default());
    assert_eq!(identifications(&packets), [0; 300]);
    // Again, as packets of one batch each: the driver has learned.
    let (size, mut bytes) = batch(&route.flow, 1, 64);
    sender.send(&route, size, &mut bytes).unwrap();
    assert_eq!(arrivals(&receiver, &mut Inbox::default()).0.len(), 1);
}

#[test]
fn ipv6_batches_have_no_identifications() {
    let (sender, receiver, mut route) = pair("::1".parse().unwrap());
    let (size, mut bytes) = batch(&route.flow, 40, 1024);
    sender.send(&route, size, &mut bytes).unwrap();
    (route.traffic_class, route.hop_limit) = (0xb8, 3);
    sender.send(&route, size, &mut bytes).unwrap();
    sender.set_segmentation(false);
    sender.send(&route, size, &mut bytes).unwrap();
    let (packets, _) = arrivals(&receiver, &mut Inbox::default());
    assert_eq!(identifications(&packets), [0; 120]);
    assert!(packets[40..].iter().all(|(arrived, _)| *arrived == route));
    assert_eq!(packets[0].0.hop_limit, Route::DEFAULT_HOP_LIMIT);
}

#[test]
fn traffic_class_and_hop_limit_are_as_asked() {
    let (sender, receiver, mut route) = pair(address(4));
    let (size, mut many) = batch(&route.flow, 4, 256);
    let (_, mut one) = batch(&route.flow, 1, 256);
    for (traffic_class, hop_limit, arriving) in
        [(0x68, 1, 1), (0, 255, 255), (3, 0, 64), (0, 64, 64)]
    {
        (route.traffic_class, route.hop_limit) = (traffic_class, hop_limit);
        sender.send(&route, size, &mut many).unwrap();
        sender.send(&route, size, &mut one).unwrap();
        let (packets, batches) = arrivals(&receiver, &mut Inbox::default());
        assert_eq!((packets.len(), batches), (5, 2));
        for (arrived, _) in packets {
            assert_eq!(
                (arrived.traffic_class, arrived.hop_limit),
                (traffic_class, arriving)
            );
        }
    }
}

#[test]
fn an_unspecified_address_learns_each_packet_s_destination() {
    for (any, one) in [("0.0.0.0:0", "127.41.0.5"), ("[::]:0", "::1")] {
        let receiver = Receiver::bind(any.parse().unwrap()).unwrap();
        let one: IpAddr = one.parse().unwrap();
        let sender = Sender::bind(one).unwrap();
        let mut flow = sender.flow_to(one);
        flow.destination_port = receiver.local().port();
        let (size, mut bytes) = batch(&flow, 2, 128);
        sender.send(&Route::new(flow), size, &mut bytes).unwrap();
        let (packets, _) = arrivals(&receiver, &mut Inbox::default());
        assert_eq!(packets.len(), 2);
        assert_eq!(packets[0].0.flow, flow);
    }
}

#[test]
fn a_packet_over_the_mtu_is_rejected_and_segmentation_stays() {
    let (sender, _receiver, route) = pair(address(6));
    let mut bytes = vec![0; 140_000];
    let sent = sender.send(&route, 70_000, &mut bytes);
    assert!(
        matches!(sent, Err(SendError::TooLong { length: 70_000, .. })),
        "{sent:?}"
    );
    assert!(sender.segmentation());
}

#[test]
fn every_receiver_of_a_group_gets_every_packet() {
    let interface: IpAddr = "127.0.0.1".parse().unwrap();
    // Of this process alone: another run on the same machine would be heard too.
    let [.., high, low] = process::id().to_be_bytes();
    let group = IpAddr::from([239, 41, high, low]);
    let receivers = [(); 2].map(|()| Receiver::join_group(group, ROCE_PORT, interface).unwrap());
    let sender = Sender::bind(interface).unwrap();
    let route = Route::new(sender.flow_to(group));
    let (size, mut bytes) = batch(&route.flow, 8, 256);
    sender.send(&route, size, &mut bytes).unwrap();
    for receiver in receivers {
        let (packets, batches) = arrivals(&receiver, &mut Inbox::default());
        println!("{batches} batches; {}", packets[0].0.flow);
        assert_eq!(identifications(&packets), (0..8).collect::<Vec<_>>());
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let foreign = Sender::bind("192.0.2.1".parse().unwrap()).unwrap_err();
    assert!(matches!(foreign, SocketError::NotLocal(_)), "{foreign}");
    let (_sender, receiver, _) = pair(address(8));
    let taken = Receiver::bind(receiver.local()).unwrap_err();
    assert!(matches!(taken, SocketError::PortTaken { .. }), "{taken}");
    println!("{foreign}\n{taken}");
}

#[test]
fn the_receive_buffer_is_reported_and_its_drops_are_counted() {
    let (sender, receiver, route) = pair(address(9));
    let (size, mut bytes) = batch(&route.flow, 15, 4096);
    println!(
        "buffer {} bytes; {:?}",
        receiver.buffer(),
        receiver.shortage().map(|it| it.to_string())
    );
    for _ in 0..1000 {
        sender.send(&route, size, &mut bytes).unwrap();
    }
    let dropped = receiver.dropped().unwrap();
    let (packets, _) = arrivals(&receiver, &mut Inbox::default());
    println!(
        "{} of 15000 packets of 4 KB held, {dropped} drops counted",
        packets.len()
    );
    assert!(packets.len() < 15_000 && dropped > 0);
}

//! Every packet that Linux sent is parsed and written back bit by bit.

mod captures;

use captures::{Capture, DAMAGED};
use wire::cm::{AddressHeader, Message, RejectReason, Service, ServiceStatus};
use wire::{Datagram, Fragmentation, IcrcChecker, IcrcError, Packet, Qpn, ROCE_PORT};
use wire::{grh, icrc, mad};

/// The expected counts. They make a test fail if the reader finds no packets.
const CAPTURES: usize = 46;
const PACKETS: usize = 1750;
const MESSAGES: usize = 189;

fn each_datagram(mut check: impl FnMut(&Capture, Datagram<'_>)) {
    let captures = captures::intact();
    assert_eq!(captures.len(), CAPTURES);
    let mut seen = 0;
    for capture in &captures {
        for datagram in capture.datagrams() {
            check(capture, datagram);
            seen += 1;
        }
    }
    assert_eq!(seen, PACKETS);
}

fn parse<'a>(capture: &Capture, datagram: &Datagram<'a>) -> Packet<'a> {
    Packet::parse(datagram.payload).unwrap_or_else(|error| panic!("{}: {error}", capture.name))
}

/// The management datagram in a packet for queue pair 1.
fn management<'a>(packet: &Packet<'a>) -> Option<&'a [u8; mad::LENGTH]> {
    (packet.destination == Qpn::GSI).then(|| {
        packet
            .payload
            .private()
            .expect("it is in this process")
            .try_into()
            .expect("256 bytes")
    })
}

#[test]
fn every_packet_is_written_back_identically() {
    each_datagram(|capture, datagram| {
        let packet = parse(capture, &datagram);
        let mut written = Vec::new();
        packet.emit(&mut written);
        let (covered, _) = datagram.payload.split_last_chunk::<4>().expect("an ICRC");
        assert_eq!(written, covered, "{}: {packet}", capture.name);
    });
}

// CA17-22
#[test]
fn every_icrc_is_computed_identically() {
    each_datagram(|capture, datagram| {
        let (covered, icrc) = datagram.payload.split_last_chunk::<4>().expect("an ICRC");
        assert!(datagram.fragmentation.dont_fragment);
        let identification = datagram.fragmentation.identification;
        let computed = icrc::checksum(&datagram.flow, identification, covered);
        assert_eq!(computed, *icrc, "{}", capture.name);
    });
}

#[test]
fn every_packet_passes_the_checker_and_its_identification_is_recovered() {
    let mut checker = IcrcChecker::new();
    let mut with_identification = 0;
    each_datagram(|capture, datagram| {
        assert_eq!(datagram.flow.destination_port, ROCE_PORT);
        let recovered = checker.check(&datagram.flow, datagram.payload);
        assert_eq!(recovered, Ok(datagram.fragmentation), "{}", capture.name);
        with_identification += usize::from(datagram.fragmentation != Fragmentation::NONE);
    });
    assert!(
        with_identification > PACKETS / 2,
        "Linux increments the identification"
    );
}

#[test]
fn damaged_packet_is_rejected() {
    let capture = captures::capture(DAMAGED);
    let datagrams: Vec<_> = capture.datagrams().collect();
    let [datagram] = datagrams[..] else {
        panic!(
            "the capture holds {} packets, expected one",
            datagrams.len()
        );
    };
    let verdict = IcrcChecker::new().check(&datagram.flow, datagram.payload);
    assert!(matches!(verdict, Err(IcrcError::Mismatch { .. })));
}

#[test]
fn every_message_is_written_back_identically() {
    let mut messages = 0;
    each_datagram(|capture, datagram| {
        let Some(datagram) = management(&parse(capture, &datagram)) else {
            return;
        };
        let (header, message) =
            Message::parse(datagram).unwrap_or_else(|error| panic!("{}: {error}", capture.name));
        let written = message.emit(header.transaction());
        assert_eq!(written, *datagram, "{}: {message}", capture.name);
        messages += 1;
    });
    assert_eq!(messages, MESSAGES);
}

// Annex A11
#[test]
fn address_header_of_every_rdma_cm_request_matches_its_packet() {
    let mut requests = 0;
    each_datagram(|capture, datagram| {
        let private_data = match parse(capture, &datagram).message() {
            Some(Message::ConnectRequest(request)) => request.private_data.bytes().to_vec(),
            Some(Message::ServiceRequest(request)) => request.private_data.bytes().to_vec(),
            _ => return,
        };
        let first = private_data.first_chunk().expect("room for addresses");
        let header = AddressHeader::parse(first).expect("addresses");
        assert_eq!(header.source, datagram.flow.source, "{}", capture.name);
        assert_eq!(header.destination, datagram.flow.destination);
        assert_eq!(header.emit(), *first);
        requests += 1;
    });
    assert_eq!(requests, 42);
}

#[test]
fn routing_area_equals_the_captured_ip_header() {
    const ETHERNET: usize = 14;
    let capture = captures::capture("ud-pingpong.pcap");
    for (datagram, frame) in capture.datagrams().zip(capture.frames()) {
        let udp_length = (8 + datagram.payload.len()) as u16;
        let Datagram {
            flow,
            fragmentation,
            ..
        } = datagram;
        let (class, hops) = (datagram.traffic_class, datagram.hop_limit);
        let area = grh::area(&flow, class, hops, fragmentation, udp_length);
        assert_eq!(area[20..], frame[ETHERNET..][..20]);
        let route = grh::parse(&area).expect("an IPv4 header");
        assert_eq!(route.source.ip(), Some(flow.source));
        assert_eq!(route.destination.ip(), Some(flow.destination));
    }
}

#[test]
fn every_datagram_is_written_back_identically_except_the_udp_checksum() {
    const ETHERNET: usize = 14;
    for capture in captures::intact() {
        for (datagram, frame) in capture.datagrams().zip(capture.frames()) {
            let mut written = Vec::new();
            datagram.emit(&mut written);
            let mut sent = frame[ETHERNET..][..written.len()].to_vec();
            let checksum = if datagram.flow.source.is_ipv4() {
                26
            } else {
                46
            };
            // Linux omits the UDP checksum of RoCE packets. Where a socket wrote one, it may be
            // incomplete because the network device was expected to complete it.
            sent[checksum..checksum + 2].copy_from_slice(&written[checksum..][..2]);
            assert_eq!(written, sent, "{}", capture.name);
        }
    }
}

#[test]
fn reject_reasons_are_parsed() {
    let reasons = |name| {
        let capture = captures::capture(name);
        let messages =
            capture
                .datagrams()
                .filter_map(|datagram| match parse(&capture, &datagram).message() {
                    Some(Message::Reject(reject)) => Some(reject.reason),
                    _ => None,
                });
        messages.collect::<Vec<_>>()
    };
    assert_eq!(reasons("gold-reject.pcap"), [RejectReason::Consumer]);
    assert_eq!(reasons("nolistener.pcap"), [RejectReason::InvalidServiceId]);
}

#[test]
fn connection_request_fields_are_parsed() {
    let capture = captures::capture("rping.pcap");
    let first = capture.datagrams().next().expect("a packet");
    let Some(Message::ConnectRequest(request)) = parse(&capture, &first).message() else {
        panic!("the first message is not a REQ");
    };
    assert_eq!(request.service_id.to_string(), "tcp/7174");
    assert_eq!(request.service, Service::ReliableConnection);
    assert_eq!(request.path_mtu, Some(wire::PathMtu::Mtu1024));
    assert_eq!(request.partition, wire::PartitionKey::default());
    assert_eq!(request.primary.local_gid.ip(), Some(first.flow.source));
    assert_eq!(
        request.primary.remote_gid.ip(),
        Some(first.flow.destination)
    );
    assert_eq!(request.primary.hop_limit, 64);
    assert_eq!((request.retry_count, request.rnr_retry_count), (7, 7));
    assert_eq!(request.alternate, wire::cm::Path::default());
}

#[test]
fn service_reply_is_parsed() {
    let capture = captures::capture("udaddy.pcap");
    let replies =
        capture
            .datagrams()
            .filter_map(|datagram| match parse(&capture, &datagram).message() {
                Some(Message::ServiceReply(reply)) => Some(reply),
                _ => None,
            });
    let replies: Vec<_> = replies.collect();
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].status, ServiceStatus::Valid);
    assert_ne!(replies[0].qpn.value(), 0);
}

#[test]
fn packets_are_formatted_in_one_line() {
    let described = |name, frame: usize| {
        let capture = captures::capture(name);
        let datagram = capture.datagrams().nth(frame - 1).expect("a frame");
        parse(&capture, &datagram).to_string()
    };
    assert_eq!(
        described("gold-sendimm.pcap", 4),
        "RC SEND_ONLY_IMM qp 0x000015 psn 8015460 ack imm 0xcafef00d len 61"
    );
    assert_eq!(
        described("gold-sendinv.pcap", 4),
        "RC SEND_ONLY_INV qp 0x000025 psn 10883241 ack inv 0x00001234 len 64"
    );
    assert_eq!(
        described("gold-badrkey.pcap", 4),
        "RC WRITE_ONLY qp 0x000020 psn 1602615 ack va 0x7f52d6c71000 rkey 0x0000421b dma 64 len 64"
    );
    assert_eq!(
        described("gold-badrkey.pcap", 5),
        "RC ACKNOWLEDGE qp 0x000020 psn 1602615 NAK remote access error msn 0"
    );
    assert_eq!(
        described("gold-rnr.pcap", 5),
        "RC ACKNOWLEDGE qp 0x000026 psn 14314475 RNR 655.36ms msn 0"
    );
    assert_eq!(
        described("gold-cas.pcap", 4),
        "RC COMPARE_SWAP qp 0x00001e psn 8697273 ack va 0x7fcc28fe6000 rkey 0x00001565 \
         compare 0x312a231c150e0700 swap 0xaabbccdd"
    );
    assert_eq!(
        described("gold-cas.pcap", 5),
        "RC ATOMIC_ACKNOWLEDGE qp 0x00001e psn 8697273 ACK msn 1 was 0x312a231c150e0700"
    );
    assert_eq!(
        described("udaddy.pcap", 3),
        "UD SEND_ONLY_IMM qp 0x00002e psn 0 qkey 0x01234567 from qp 0x00002f imm 0x0000002f len 100"
    );
}

#[test]
fn messages_are_formatted_in_one_line() {
    let described = |name, frame: usize| {
        let capture = captures::capture(name);
        let datagram = capture.datagrams().nth(frame - 1).expect("a frame");
        let message = parse(&capture, &datagram).message().expect("a message");
        message.to_string()
    };
    assert_eq!(
        described("rping.pcap", 1),
        "CM REQ id 0x5601c9d0 service tcp/7174 reliable connection qpn 0x000013 psn 11989082 \
         mtu 1024"
    );
    assert_eq!(
        described("rping.pcap", 2),
        "CM REP id 0x7bc2384b peer 0x5601c9d0 qpn 0x000013 psn 15096878"
    );
    assert_eq!(
        described("nolistener.pcap", 2),
        "CM REJ id 0x00000000 peer 0x4a01c9d0 of REQ: no program listens on this service id"
    );
    assert_eq!(
        described("udaddy.pcap", 2),
        "CM SIDR_REP id 0x4d01c9d0 service udp/7174 served qpn 0x00002e qkey 0x01234567"
    );
}

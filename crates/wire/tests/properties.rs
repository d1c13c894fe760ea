//! Properties that hold for all bytes and all values.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use wire::cm::Message;
use wire::{Aeth, AtomicAckEth, AtomicEth, Deth, Feth, FlushPlacement, FlushRange, Ieth};
use wire::{Datagram, Extension, Flow, HeldPackets, ICRC_LENGTH, IcrcChecker, Immediate, Key};
use wire::{Opcode, Packet};
use wire::{PacketHead, PartitionKey, Psn, Qpn, QueueKey, Reth, Srqn, Syndrome, Xrceth, grh, mad};

/// The values for the extension headers of any opcode.
#[derive(Clone, Copy, Debug)]
struct Values {
    long: [u64; 3],
    word: u32,
    small: u32,
    byte: u8,
}

fn values() -> impl Strategy<Value = Values> {
    (any::<[u64; 3]>(), any::<u32>(), 0..1_u32 << 24, any::<u8>()).prop_map(
        |(long, word, small, byte)| Values {
            long,
            word,
            small,
            byte,
        },
    )
}

fn push(head: PacketHead, extension: Extension, values: Values) -> PacketHead {
    let [first, second, third] = values.long;
    let (key, number) = (Key::new(values.word), Qpn::new(values.small));
    match extension {
        Extension::Xrceth => head.push(&Xrceth::new(Srqn::new(values.small))),
        Extension::Deth => head.push(&Deth::new(QueueKey::new(values.word), number)),
        Extension::Reth => head.push(&Reth::new(first, key, values.small)),
        Extension::AtomicEth => head.push(&AtomicEth::new(first, key, second, third)),
        Extension::Aeth => {
            let syndrome = Syndrome::from_byte(values.byte);
            head.push(&Aeth::new(syndrome, values.small))
        }
        Extension::AtomicAckEth => head.push(&AtomicAckEth::new(first)),
        Extension::Immediate => head.push(&Immediate::new(values.word.to_be_bytes())),
        Extension::Ieth => head.push(&Ieth::new(key)),
        Extension::Feth => {
            let placement = FlushPlacement::new(values.byte);
            head.push(&Feth::new(placement, FlushRange::Region))
        }
    }
}

fn expect_extension(packet: &Packet<'_>, extension: Extension, values: Values) {
    let [first, second, third] = values.long;
    let (key, number) = (Key::new(values.word), Qpn::new(values.small));
    match extension {
        Extension::Xrceth => assert_eq!(packet.xrc_srq(), Some(Srqn::new(values.small))),
        Extension::Deth => {
            let deth = packet.deth().expect("a DETH");
            assert_eq!(deth.queue_key(), QueueKey::new(values.word));
            assert_eq!(deth.source(), number);
        }
        Extension::Reth => {
            let reth = packet.reth().expect("a RETH");
            assert_eq!(reth.virtual_address(), first);
            assert_eq!((reth.remote_key(), reth.dma_length()), (key, values.small));
        }
        Extension::AtomicEth => {
            let atomic = packet.atomic().expect("an AtomicETH");
            assert_eq!(
                (atomic.virtual_address(), atomic.remote_key()),
                (first, key)
            );
            assert_eq!((atomic.swap_or_add(), atomic.compare()), (second, third));
        }
        Extension::Aeth => {
            let aeth = packet.aeth().expect("an AETH");
            assert_eq!(aeth.syndrome(), Syndrome::from_byte(values.byte));
            assert_eq!(aeth.message_sequence(), values.small);
        }
        Extension::AtomicAckEth => {
            let found = packet.atomic_acknowledge().map(AtomicAckEth::original);
            assert_eq!(found, Some(first));
        }
        Extension::Immediate => {
            let found = packet.immediate().map(Immediate::bytes);
            assert_eq!(found, Some(values.word.to_be_bytes()));
        }
        Extension::Ieth => assert_eq!(packet.invalidate(), Some(key)),
        Extension::Feth => {
            let flush = packet.flush().expect("a FETH");
            assert_eq!(flush.placement(), FlushPlacement::new(values.byte));
            assert_eq!(flush.range(), Some(FlushRange::Region));
        }
    }
}

fn any_opcode() -> impl Strategy<Value = Opcode> {
    select(Opcode::ALL)
}

fn any_flow() -> impl Strategy<Value = Flow> {
    let ipv4 = (any::<[u8; 4]>(), any::<[u8; 4]>()).prop_map(|(a, b)| (a.into(), b.into()));
    let ipv6 = (any::<[u8; 16]>(), any::<[u8; 16]>()).prop_map(|(a, b)| (a.into(), b.into()));
    let ports = (any::<u16>(), any::<u16>());
    (prop_oneof![ipv4, ipv6], ports).prop_map(|((source, destination), ports)| Flow {
        source,
        destination,
        source_port: ports.0,
        destination_port: ports.1,
    })
}

/// A management datagram with a valid CM header and an arbitrary body.
fn any_message() -> impl Strategy<Value = [u8; mad::LENGTH]> {
    let body = vec(any::<u8>(), mad::BODY_LENGTH);
    (0x10..=0x1a_u16, any::<u64>(), body).prop_map(|(attribute, transaction, body)| {
        let header = mad::Header::new(7, 2, 3, attribute, transaction);
        let body = body.try_into().expect("the length of a body");
        mad::join(&header, &body)
    })
}

proptest! {
    #[test]
    fn parsing_arbitrary_bytes_does_not_panic(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(packet) = Packet::parse(&bytes) {
            _ = packet.to_string();
            _ = packet.head();
        }
        _ = Datagram::parse_ethernet(&bytes);
        _ = Datagram::parse_ip(&bytes);
    }

    #[test]
    fn parsing_arbitrary_bytes_after_a_known_opcode_does_not_panic(
        opcode in any_opcode(),
        rest in vec(any::<u8>(), 0..100),
    ) {
        let bytes = [&[opcode.byte(), 0], &rest[..]].concat();
        if let Ok(packet) = Packet::parse(&bytes) {
            _ = packet.to_string();
            let mut written = Vec::new();
            packet.emit(&mut written);
            prop_assert_eq!(written.len() + ICRC_LENGTH, bytes.len());
        }
    }

    #[test]
    fn reading_an_arbitrary_routing_area_does_not_panic(area in any::<[u8; 20]>(), more in any::<[u8; 20]>()) {
        let area: [u8; grh::LENGTH] = [area, more].concat().try_into().expect("40 bytes");
        _ = grh::parse(&area);
    }

    #[test]
    fn parsing_an_arbitrary_list_of_held_packets_gives_what_it_emits(bytes in vec(0..4_u8, 0..300)) {
        if let Ok(held) = HeldPackets::parse(&bytes) {
            let mut emitted = Vec::new();
            held.emit(|part| emitted.extend_from_slice(part));
            prop_assert_eq!(emitted, bytes);
        }
    }

    #[test]
    fn list_of_held_packets_is_unchanged_by_a_round_trip(gaps in vec((1..500_u32, 1..500_u32), 0..64)) {
        let ranges = gaps.iter().scan(0, |end, (gap, count)| {
            let start = *end + gap;
            *end = start + count;
            Some(start..*end)
        });
        let held = HeldPackets::new(ranges);
        let head = PacketHead::new(Opcode::RcAcknowledge, Qpn::new(1), Psn::ZERO);
        let head = head.push(&Aeth::new(Syndrome::Acknowledge { credits: None }, 0));
        let mut datagram = head.bytes().to_vec();
        held.emit(|part| datagram.extend_from_slice(part));
        datagram.extend([0; ICRC_LENGTH]);
        let packet = Packet::parse(&datagram).expect("a packet");
        prop_assert_eq!(packet.held_packets(), Ok(held));
    }

    #[test]
    fn parsing_an_arbitrary_management_datagram_does_not_panic(bytes in vec(any::<u8>(), mad::LENGTH)) {
        let bytes: [u8; mad::LENGTH] = bytes.try_into().expect("256 bytes");
        _ = Message::parse(&bytes);
    }

    #[test]
    fn packet_has_the_values_of_its_head(
        opcode in any_opcode(),
        values in values(),
        (solicited, migrated, acknowledge) in any::<(bool, bool, bool)>(),
        (forward, backward) in any::<(bool, bool)>(),
        (partition, destination, psn) in (any::<u16>(), 0..1_u32 << 24, 0..1_u32 << 24),
        payload in vec(any::<u8>(), 0..64),
    ) {
        let payload = if opcode.carries_payload() { &payload[..] } else { &[] };
        let pad = payload.len().next_multiple_of(4) - payload.len();
        let head = PacketHead::new(opcode, Qpn::new(destination), Psn::new(psn))
            .solicited(solicited)
            .migrated(migrated)
            .pad(pad as u8)
            .partition(PartitionKey::new(partition))
            .congestion(forward, backward)
            .acknowledge(acknowledge);
        let extensions = opcode.extensions().iter();
        let head = extensions.fold(head, |head, &extension| push(head, extension, values));
        prop_assert_eq!(head.bytes().len(), opcode.header_length());

        let zeros = [0; 3 + ICRC_LENGTH];
        let datagram = [head.bytes(), payload, &zeros[..pad + ICRC_LENGTH]].concat();
        let packet = Packet::parse(&datagram).expect("a packet");
        prop_assert_eq!(packet.opcode, opcode);
        prop_assert_eq!(packet.solicited, solicited);
        prop_assert_eq!(packet.migrated, migrated);
        prop_assert_eq!(usize::from(packet.pad), pad);
        prop_assert_eq!(packet.partition.value(), partition);
        prop_assert_eq!(packet.forward_congestion, forward);
        prop_assert_eq!(packet.backward_congestion, backward);
        prop_assert_eq!(packet.destination.value(), destination);
        prop_assert_eq!(packet.acknowledge, acknowledge);
        prop_assert_eq!(packet.psn.value(), psn);
        prop_assert_eq!(packet.payload, payload.into());
        for &extension in opcode.extensions() {
            expect_extension(&packet, extension, values);
        }

        let mut written = Vec::new();
        packet.emit(&mut written);
        prop_assert_eq!(&written[..], &datagram[..datagram.len() - ICRC_LENGTH]);
    }

    #[test]
    fn message_is_unchanged_by_a_round_trip(datagram in any_message()) {
        let (header, message) = Message::parse(&datagram).expect("a message");
        let written = message.emit(header.transaction());
        let (header_again, message_again) = Message::parse(&written).expect("a message");
        prop_assert_eq!(header_again, header);
        prop_assert_eq!(message_again, message);
        _ = message.to_string();
        // Reserved bits are dropped, and no bit is added.
        for (written, read) in written.iter().zip(datagram) {
            prop_assert_eq!(written & !read, 0);
        }
    }

    #[test]
    fn datagram_is_unchanged_by_a_round_trip(
        flow in any_flow(),
        (traffic_class, hop_limit, label) in (any::<u8>(), any::<u8>(), 0..1_u32 << 20),
        payload in vec(any::<u8>(), 0..100),
    ) {
        let datagram = Datagram {
            flow,
            traffic_class,
            flow_label: if flow.source.is_ipv6() { label } else { 0 },
            hop_limit,
            fragmentation: wire::Fragmentation::NONE,
            payload: &payload,
        };
        let mut written = Vec::new();
        datagram.emit(&mut written);
        prop_assert_eq!(Datagram::parse_ip(&written), Ok(datagram));
    }

    #[test]
    fn packet_with_a_computed_icrc_is_accepted(
        flow in any_flow(),
        identification in any::<u16>(),
        packet in vec(any::<u8>(), 12..300),
    ) {
        let checksum = wire::icrc::checksum(&flow, identification, &packet);
        let datagram = [&packet[..], &checksum].concat();
        let recovered = IcrcChecker::new().check(&flow, &datagram).expect("the packet is intact");
        prop_assert!(recovered.dont_fragment);
        if flow.source.is_ipv4() {
            prop_assert_eq!(recovered.identification, identification);
        }
    }

    #[test]
    fn psn_distances_are_consistent(start in 0..1_u32 << 24, steps in 0..1_u32 << 24) {
        let (from, to) = (Psn::new(start), Psn::new(start) + steps);
        prop_assert_eq!(to.ahead_of(from), steps);
        prop_assert_eq!(to - steps, from);
        let signed = to.since(from);
        prop_assert!((-(1 << 23)..1 << 23).contains(&signed));
        prop_assert_eq!(from + signed.cast_unsigned(), to);
    }
}

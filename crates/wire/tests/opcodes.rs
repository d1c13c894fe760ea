//! The opcode table against the specification.

use std::collections::HashSet;

use wire::{Extension, Modifier, Opcode, Operation, Position, Transport};

fn bytes_of(transport: Transport) -> Vec<u8> {
    let opcodes = Opcode::ALL.iter();
    opcodes
        .filter(|opcode| opcode.transport() == transport)
        .map(|opcode| opcode.byte())
        .collect()
}

// IBA "OpCode field"
#[test]
fn every_transport_has_its_specified_opcodes() {
    let reliable: Vec<u8> = (0x00..=0x14).chain([0x16, 0x17, 0x1c, 0x1d]).collect();
    assert_eq!(bytes_of(Transport::Rc), reliable);
    let unreliable: Vec<u8> = (0x20..=0x2b).collect();
    assert_eq!(bytes_of(Transport::Uc), unreliable);
    assert_eq!(bytes_of(Transport::Ud), [0x64, 0x65]);
    assert_eq!(bytes_of(Transport::Cnp), [0x81]);
    let extended: Vec<u8> = reliable.iter().map(|byte| byte | 0xa0).collect();
    assert_eq!(bytes_of(Transport::Xrc), extended);
}

#[test]
fn every_opcode_byte_maps_to_one_opcode() {
    let known: HashSet<u8> = Opcode::ALL.iter().map(|opcode| opcode.byte()).collect();
    assert_eq!(known.len(), Opcode::ALL.len());
    for byte in 0..=255 {
        let found = Opcode::from_byte(byte).map(Opcode::byte);
        assert_eq!(found, known.contains(&byte).then_some(byte));
    }
}

#[test]
fn every_opcode_is_found_by_its_properties() {
    for &opcode in Opcode::ALL {
        let found = Opcode::find(
            opcode.transport(),
            opcode.operation(),
            opcode.position(),
            opcode.modifier(),
        );
        assert_eq!(found, Some(opcode));
    }
}

#[test]
fn undefined_combinations_have_no_opcode() {
    use {Modifier as C, Operation as O, Position as P, Transport as T};
    assert_eq!(Opcode::find(T::Ud, O::Write, P::Only, C::None), None);
    assert_eq!(Opcode::find(T::Uc, O::Send, P::Only, C::Invalidate), None);
    assert_eq!(Opcode::find(T::Rc, O::Send, P::First, C::Immediate), None);
    assert_eq!(Opcode::find(T::Rc, O::Write, P::Last, C::Invalidate), None);
}

// IBA "OpCode field"
#[test]
fn headers_have_their_specified_lengths() {
    let lengths = [
        (Opcode::RcSendOnly, 12),
        (Opcode::RcSendLastImmediate, 12 + 4),
        (Opcode::RcSendOnlyInvalidate, 12 + 4),
        (Opcode::RcWriteFirst, 12 + 16),
        (Opcode::RcWriteMiddle, 12),
        (Opcode::RcWriteOnlyImmediate, 12 + 16 + 4),
        (Opcode::RcReadRequest, 12 + 16),
        (Opcode::RcReadResponseFirst, 12 + 4),
        (Opcode::RcReadResponseMiddle, 12),
        (Opcode::RcAcknowledge, 12 + 4),
        (Opcode::RcAtomicAcknowledge, 12 + 4 + 8),
        (Opcode::RcCompareSwap, 12 + 28),
        (Opcode::RcFlush, 12 + 4 + 16),
        (Opcode::RcAtomicWrite, 12 + 16),
        (Opcode::UcWriteOnlyImmediate, 12 + 16 + 4),
        (Opcode::UdSendOnly, 12 + 8),
        (Opcode::UdSendOnlyImmediate, 12 + 8 + 4),
        (Opcode::CongestionNotification, 12),
        (Opcode::XrcSendMiddle, 12 + 4),
        (Opcode::XrcWriteOnlyImmediate, 12 + 4 + 16 + 4),
        (Opcode::XrcFetchAdd, 12 + 4 + 28),
        (Opcode::XrcAcknowledge, 12 + 4),
    ];
    for (opcode, length) in lengths {
        assert_eq!(opcode.header_length(), length, "{opcode}");
    }
    assert_eq!(Opcode::MAX_HEADER_LENGTH, 12 + 4 + 28);
}

#[test]
fn xrc_requests_start_with_an_xrceth_and_responses_have_none() {
    let extended = Opcode::ALL
        .iter()
        .filter(|o| o.transport() == Transport::Xrc);
    for opcode in extended {
        let first = opcode.extensions().first() == Some(&Extension::Xrceth);
        assert_eq!(first, opcode.is_request(), "{opcode}");
    }
}

#[test]
fn every_xrc_opcode_matches_an_rc_opcode() {
    for &opcode in Opcode::ALL
        .iter()
        .filter(|o| o.transport() == Transport::Rc)
    {
        let mirror = Opcode::from_byte(opcode.byte() | 0xa0).expect("RC has the same operation");
        assert_eq!(mirror.operation(), opcode.operation());
        assert_eq!(mirror.position(), opcode.position());
        assert_eq!(mirror.modifier(), opcode.modifier());
        assert_eq!(mirror.carries_payload(), opcode.carries_payload());
        let own = mirror.extensions().iter();
        let own: Vec<_> = own.copied().filter(|e| *e != Extension::Xrceth).collect();
        assert_eq!(own, opcode.extensions());
    }
}

#[test]
fn opcodes_are_requests_or_responses() {
    let responses = Opcode::ALL.iter().filter(|opcode| opcode.is_response());
    let responses: Vec<u8> = responses.map(|opcode| opcode.byte()).collect();
    let reliable = 0x0d..=0x12;
    let extended = 0xad..=0xb2;
    assert_eq!(responses, reliable.chain(extended).collect::<Vec<u8>>());
    let neither: Vec<_> = Opcode::ALL
        .iter()
        .filter(|opcode| !opcode.is_request() && !opcode.is_response())
        .collect();
    assert_eq!(neither, [&Opcode::CongestionNotification]);
}

#[test]
fn only_the_last_packet_of_a_message_has_a_companion() {
    for opcode in Opcode::ALL {
        if opcode.modifier() != Modifier::None {
            assert!(opcode.position().ends(), "{opcode}");
        }
    }
}

#[test]
fn opcode_names_match_other_tools() {
    assert_eq!(Opcode::RcSendLastImmediate.to_string(), "RC SEND_LAST_IMM");
    assert_eq!(Opcode::RcReadRequest.to_string(), "RC READ_REQUEST");
    assert_eq!(Opcode::UcWriteMiddle.to_string(), "UC WRITE_MIDDLE");
    assert_eq!(
        Opcode::XrcSendOnlyInvalidate.to_string(),
        "XRC SEND_ONLY_INV"
    );
    assert_eq!(Opcode::CongestionNotification.to_string(), "CNP");
}

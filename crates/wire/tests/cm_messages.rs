//! Connection manager messages against the tables of the specification. The captures hold no MRA,
//! LAP or APR, and a round trip alone does not detect a field at a wrong position.

use wire::cm::{
    AcknowledgedMessage, AlternatePathResponse, AlternatePathStatus, CmParseError, CommunicationId,
    ConnectReply, ConnectRequest, Failover, LoadAlternatePath, Message, Path, PrivateData,
    ReceiptAcknowledge, Reject, RejectReason, RejectedMessage, Service, ServiceReply,
    ServiceStatus, Timeout,
};
use wire::{AckTimeout, Gid, PathMtu, Psn, Qpn, QueueKey, mad};

const HEADER: usize = mad::LENGTH - mad::BODY_LENGTH;

fn body(message: impl Into<Message>) -> Vec<u8> {
    message.into().emit(0)[HEADER..].to_vec()
}

fn communication_id(value: u32) -> CommunicationId {
    CommunicationId::new(value)
}

fn timeout(code: u8) -> Timeout {
    Timeout::new(code).expect("five bits")
}

fn path() -> Path {
    Path {
        local_lid: 0x0102,
        remote_lid: 0x0304,
        local_gid: Gid::from_bytes([0xaa; 16]),
        remote_gid: Gid::from_bytes([0xbb; 16]),
        flow_label: 0xf_edcb,
        packet_rate: 0x15,
        traffic_class: 0x77,
        hop_limit: 0x40,
        service_level: 0x9,
        subnet_local: true,
        local_ack_timeout: AckTimeout::new(0x12).expect("five bits"),
    }
}

#[test]
fn header_has_the_communication_management_class() {
    let datagram = Message::from(ReceiptAcknowledge::default()).emit(0x0102_0304_0506_0708);
    let expected = [
        1, 7, 2, 3, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0x11, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(datagram[..HEADER], expected);
}

// IBA "REQ Message Contents"
#[test]
fn request_fields_have_their_specified_bits() {
    let body = body(ConnectRequest {
        remote_response_timeout: timeout(0x15),
        service: Service::UnreliableConnection,
        flow_control: true,
        starting_psn: Psn::new(0x12_3456),
        local_response_timeout: timeout(0x0a),
        retry_count: 6,
        path_mtu: Some(PathMtu::Mtu4096),
        rnr_retry_count: 7,
        max_cm_retries: 0xf,
        shared_receive_queue: true,
        extended_transport: 1,
        primary: path(),
        ..ConnectRequest::default()
    });
    assert_eq!(body[43], 0b1010_1011);
    assert_eq!(body[44..48], [0x12, 0x34, 0x56, 0b0101_0110]);
    assert_eq!(body[50..52], [0b0101_0111, 0b1111_1001]);
    assert_eq!(body[52..56], [1, 2, 3, 4]);
    assert_eq!(body[88..92], [0xfe, 0xdc, 0xb0, 0x15]);
    assert_eq!(body[92..96], [0x77, 0x40, 0b1001_1000, 0b1001_0000]);
}

// IBA "REP Message Contents"
#[test]
fn reply_fields_have_their_specified_bits() {
    let body = body(ConnectReply {
        target_ack_delay: timeout(0x0f),
        failover: Failover::Rejected,
        flow_control: true,
        rnr_retry_count: 5,
        shared_receive_queue: true,
        ..ConnectReply::default()
    });
    assert_eq!(body[26..28], [0b0111_1101, 0b1011_0000]);
}

#[test]
fn mra_fields_have_their_specified_bits() {
    let body = body(ReceiptAcknowledge {
        local_id: communication_id(1),
        remote_id: communication_id(2),
        message: AcknowledgedMessage::Reply,
        service_timeout: timeout(0x1f),
        private_data: PrivateData::from([0xee; 222]),
    });
    assert_eq!(body[..8], [0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(body[8..11], [0b0100_0000, 0b1111_1000, 0xee]);
}

#[test]
fn reject_fields_have_their_specified_bits() {
    let body = body(Reject {
        message: RejectedMessage::None,
        information_length: 72,
        reason: RejectReason::VendorOptionNotSupported,
        information: PrivateData::from([0xaa; 72]),
        private_data: PrivateData::from([0xbb; 148]),
        ..Reject::default()
    });
    assert_eq!(body[8..12], [0b1000_0000, 72 << 1, 0, 35]);
    assert_eq!((body[12], body[83], body[84]), (0xaa, 0xaa, 0xbb));
}

#[test]
fn load_alternate_path_has_its_own_field_order() {
    let message = LoadAlternatePath {
        local_id: communication_id(1),
        remote_id: communication_id(2),
        remote_qpn: Qpn::new(0x12_3456),
        remote_response_timeout: timeout(0x11),
        alternate: path(),
        private_data: PrivateData::from([0xee; 168]),
    };
    let body = body(message);
    assert_eq!(body[12..16], [0x12, 0x34, 0x56, 0b1000_1000]);
    assert_eq!(body[20..25], [1, 2, 3, 4, 0xaa]);
    assert_eq!(body[40], 0xbb);
    // Flow label and traffic class, then hop limit and rate.
    assert_eq!(body[56..60], [0xfe, 0xdc, 0xb0, 0x77]);
    assert_eq!(body[60..65], [0x40, 0x15, 0b1001_1000, 0b1001_0000, 0xee]);
    let (_, parsed) = Message::parse(&Message::from(message).emit(0)).expect("a message");
    assert_eq!(parsed, message.into());
}

#[test]
fn alternate_path_response_fields_have_their_specified_bits() {
    let body = body(AlternatePathResponse {
        information_length: 3,
        status: AlternatePathStatus::InvalidServiceLevel,
        information: PrivateData::from([0xaa; 72]),
        private_data: PrivateData::from([0xbb; 148]),
        ..AlternatePathResponse::default()
    });
    assert_eq!(body[8..13], [3, 13, 0, 0, 0xaa]);
    assert_eq!(body[83..85], [0xaa, 0xbb]);
}

#[test]
fn service_reply_fields_have_their_specified_bits() {
    let body = body(ServiceReply {
        request_id: communication_id(9),
        status: ServiceStatus::Rejected,
        information_length: 1,
        qpn: Qpn::new(0x12_3456),
        queue_key: QueueKey::new(0x0123_4567),
        ..ServiceReply::default()
    });
    assert_eq!(body[..8], [0, 0, 0, 9, 2, 1, 0, 0]);
    assert_eq!(body[8..12], [0x12, 0x34, 0x56, 0]);
    assert_eq!(body[20..24], [0x01, 0x23, 0x45, 0x67]);
}

/// A missing field, or two fields at one position, changes these counts.
#[test]
fn every_bit_that_is_not_reserved_is_read() {
    let reserved = [
        // One of them is the highest bit of the path MTU, which alone is not a valid code.
        (0x10, 4 * 8 + 4 * 8 + 12 + 12 + 1),
        (0x11, 6 + 3),
        (0x12, 6 + 1),
        (0x13, 3 * 8 + 4),
        (0x14, 0),
        (0x15, 8),
        (0x16, 0),
        (0x17, 2 * 8),
        (0x18, 2 * 8 + 8),
        (0x19, 4 * 8 + 3 + 4 * 8 + 12),
        (0x1a, 2 * 8),
    ];
    for (attribute, expected) in reserved {
        let unread = (0..mad::BODY_LENGTH * 8).filter(|&bit| !is_read(attribute, bit));
        assert_eq!(unread.count(), expected, "attribute {attribute:#x}");
    }
}

fn is_read(attribute: u16, bit: usize) -> bool {
    let header = mad::Header::new(7, 2, 3, attribute, 0);
    let mut body = [0; mad::BODY_LENGTH];
    let (_, empty) = Message::parse(&mad::join(&header, &body)).expect("a message");
    body[bit / 8] = 1 << (bit % 8);
    let (_, changed) = Message::parse(&mad::join(&header, &body)).expect("a message");
    changed != empty
}

#[test]
fn other_management_datagrams_are_rejected_with_a_reason() {
    let intact = Message::from(ReceiptAcknowledge::default()).emit(0);
    let parse_error = |byte: usize, value: u8| {
        let mut datagram = intact;
        datagram[byte] = value;
        Message::parse(&datagram).expect_err("the datagram must not parse")
    };
    assert_eq!(parse_error(0, 2), CmParseError::BaseVersion(2));
    assert_eq!(parse_error(1, 4), CmParseError::Class(4));
    assert_eq!(parse_error(2, 1), CmParseError::ClassVersion(1));
    assert_eq!(parse_error(3, 0x81), CmParseError::Method(0x81));
    assert_eq!(parse_error(17, 0x1b), CmParseError::UnknownAttribute(0x1b));
}

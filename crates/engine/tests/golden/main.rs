//! Captured connections between two kernels, with our device in the place of one of them.
//!
//! Queue pair numbers, PSNs and addresses are the captured ones. Only the memory keys are ours;
//! they are written into the client's requests before delivery. Our packets must equal the
//! kernel's. The known differences have their own tests below.

#[path = "../conversation/mod.rs"]
mod conversation;

mod capture;
mod client;
mod server;

use capture::{Capture, capture};
use engine::Status;
use server::Server;
use wire::{NakCode, Packet, PathMtu, Syndrome};

fn described(packets: &[Vec<u8>]) -> Vec<String> {
    packets
        .iter()
        .map(|bytes| Packet::parse(bytes).expect("a packet").to_string())
        .collect()
}

/// Asserts that our responses equal the kernel's: opcodes, numbers, syndromes, counts and data.
#[track_caller]
fn assert_responses_equal_the_kernel_s(server: &Server, capture: &Capture) {
    let ours = server.responses(capture);
    let theirs: Vec<Vec<u8>> = capture
        .responses()
        .map(|frame| frame.bytes.clone())
        .collect();
    assert_eq!(described(&ours), described(&theirs));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let payload = |bytes| Packet::parse(bytes).expect("a packet").payload.to_vec();
        assert_eq!(payload(ours), payload(theirs));
    }
}

#[test]
fn responses_to_sends_equal_the_kernel_s() {
    for capture in [
        capture!("gold-send"),
        capture!("gold-send0"),
        capture!("gold-sendimm"),
        capture!("gold-sendbig"),
    ] {
        assert_responses_equal_the_kernel_s(&Server::default(), &capture);
    }
}

#[test]
fn responses_to_writes_equal_the_kernel_s() {
    for capture in [
        capture!("gold-write0"),
        capture!("gold-writebig"),
        capture!("gold-wimm"),
    ] {
        assert_responses_equal_the_kernel_s(&Server::default(), &capture);
    }
}

#[test]
fn responses_to_reads_equal_the_kernel_s() {
    for capture in [capture!("gold-read"), capture!("gold-readbig")] {
        assert_responses_equal_the_kernel_s(&Server::default(), &capture);
    }
}

#[test]
fn responses_to_atomics_equal_the_kernel_s() {
    for capture in [
        capture!("gold-cas"),
        capture!("gold-fadd"),
        capture!("ib_atomic_bw"),
    ] {
        assert_responses_equal_the_kernel_s(&Server::default(), &capture);
    }
}

#[test]
fn responses_to_interleaved_writes_and_reads_equal_the_kernel_s() {
    assert_responses_equal_the_kernel_s(&Server::default(), &capture!("gold-batch"));
}

#[test]
fn responses_to_whole_programs_equal_the_kernel_s() {
    for capture in [
        capture!("rc-pingpong"),
        capture!("srq-pingpong"),
        capture!("ipv6/rc-pingpong-gid0"),
        capture!("ib_write_bw-R"),
        capture!("rping"),
        capture!("rdma_server"),
    ] {
        assert_responses_equal_the_kernel_s(&Server::default(), &capture);
    }
}

#[test]
fn wrong_keys_are_rejected_as_by_the_kernel() {
    let server = Server {
        right_key: false,
        ..Server::default()
    };
    for capture in [
        capture!("gold-badrkey"),
        capture!("gold-badread"),
        capture!("gold-noperm"),
    ] {
        assert_responses_equal_the_kernel_s(&server, &capture);
    }
}

#[test]
fn write_out_of_bounds_is_rejected_as_by_the_kernel() {
    let server = Server {
        registered: Some(4096),
        ..Server::default()
    };
    assert_responses_equal_the_kernel_s(&server, &capture!("gold-oob"));
}

#[test]
fn missing_receive_is_reported_as_by_the_kernel() {
    let server = Server {
        receives: (0, 4096),
        ..Server::default()
    };
    assert_responses_equal_the_kernel_s(&server, &capture!("gold-rnr"));
    let in_time = Server {
        late_receive: true,
        ..server
    };
    assert_responses_equal_the_kernel_s(&in_time, &capture!("gold-rnrok"));
}

#[test]
fn responses_with_path_mtu_4096_equal_the_kernel_s() {
    let server = Server {
        mtu: PathMtu::Mtu4096,
        ..Server::default()
    };
    for capture in [
        capture!("mtu4096/gold-sendbig"),
        capture!("mtu4096/gold-readbig"),
        capture!("mtu4096/gold-writebig"),
    ] {
        assert_responses_equal_the_kernel_s(&server, &capture);
    }
}

/// About 300 packets, of which every twentieth request is lost. The kernel discards what arrives behind a gap, and we keep it:
/// we acknowledge all that it acknowledges, with no more NAKs.
#[test]
fn lost_requests_get_no_more_naks_than_from_the_kernel() {
    let capture = capture!("loss5-requests-send");
    let responses = Server::default().responses(&capture);
    let ours: Vec<Packet<'_>> = responses
        .iter()
        .map(|it| Packet::parse(it).expect("valid"))
        .collect();
    let theirs: Vec<Packet<'_>> = capture.responses().map(|frame| frame.packet()).collect();
    assert_eq!(ours[0].psn, theirs[0].psn);
    assert_eq!(ours.last().map(|it| it.psn), theirs.last().map(|it| it.psn));
    let naks = |packets: &[Packet<'_>]| {
        let is_nak = |it: &&Packet<'_>| {
            let syndrome = it.aeth().map(wire::Aeth::syndrome);
            matches!(syndrome, Some(Syndrome::Negative(_)))
        };
        packets.iter().filter(is_nak).count()
    };
    assert!((1..=naks(&theirs)).contains(&naks(&ours)));
}

/// The capture lacks lost responses. All captured responses must be among ours, in the same order.
#[track_caller]
fn assert_responses_include_the_kernel_s(capture: &Capture, describe: fn(&Packet<'_>) -> String) {
    let ours = Server::default().responses(capture);
    let mut rest = ours
        .iter()
        .map(|bytes| describe(&Packet::parse(bytes).expect("a packet")));
    for frame in capture.responses() {
        let theirs = describe(&frame.packet());
        assert!(rest.any(|ours| ours == theirs), "missing: {theirs}");
    }
}

#[test]
fn duplicates_after_a_lost_acknowledgement_are_answered_as_by_the_kernel() {
    let whole_packet = |packet: &Packet<'_>| packet.to_string();
    assert_responses_include_the_kernel_s(&capture!("loss5-acks-send"), whole_packet);
}

/// The kernel starts its response to the rest of a read with a MIDDLE packet. We start it with a
/// FIRST packet, because it responses a new request. Requesters accept both.
#[test]
fn duplicate_reads_after_a_lost_response_are_answered_as_by_the_kernel() {
    let without_position = |packet: &Packet<'_>| {
        let operation = packet.opcode.operation();
        format!("{operation:?} {} {:?}", packet.psn, packet.payload)
    };
    assert_responses_include_the_kernel_s(&capture!("loss5-responses-read"), without_position);
}

#[test]
fn requests_equal_the_kernel_s() {
    for capture in [
        capture!("gold-send"),
        capture!("gold-send0"),
        capture!("gold-sendimm"),
        capture!("gold-sendbig"),
        capture!("gold-write0"),
        capture!("gold-writebig"),
        capture!("gold-wimm"),
        capture!("gold-read"),
        capture!("gold-readbig"),
        capture!("gold-cas"),
        capture!("gold-fadd"),
        capture!("gold-sendinv"),
    ] {
        client::assert_requests_equal_the_kernel_s(&capture, PathMtu::Mtu1024, Status::Success);
    }
    for capture in [
        capture!("mtu4096/gold-sendbig"),
        capture!("mtu4096/gold-readbig"),
        capture!("mtu4096/gold-writebig"),
    ] {
        client::assert_requests_equal_the_kernel_s(&capture, PathMtu::Mtu4096, Status::Success);
    }
}

#[test]
fn naks_of_the_kernel_complete_requests_with_their_status() {
    for (capture, status) in [
        (capture!("gold-badrkey"), Status::RemoteAccess),
        (capture!("gold-badread"), Status::RemoteAccess),
        (capture!("gold-noperm"), Status::RemoteAccess),
        (capture!("gold-oob"), Status::RemoteAccess),
        (capture!("gold-toolong"), Status::RemoteOperation),
    ] {
        client::assert_requests_equal_the_kernel_s(&capture, PathMtu::Mtu1024, status);
    }
}

fn only_aeth(packets: &[Vec<u8>]) -> (Syndrome, u32) {
    let [bytes] = packets else {
        panic!("expected one response, got {}", packets.len())
    };
    let packet = Packet::parse(bytes).expect("a packet");
    let aeth = packet.aeth().expect("an AETH");
    (aeth.syndrome(), aeth.message_sequence())
}

fn aeth_of_the_kernel(capture: &Capture) -> (Syndrome, u32) {
    let packets: Vec<Vec<u8>> = capture
        .responses()
        .map(|frame| frame.bytes.clone())
        .collect();
    only_aeth(&packets)
}

/// The kernel sends "remote operational error" (0x63). The specification and hardware send "invalid
/// request" (0x61), because the message is too long and the receiver is intact.
#[test]
fn too_long_send_is_an_invalid_request_unlike_with_the_kernel() {
    let capture = capture!("gold-toolong");
    let server = Server {
        receives: (1, 100),
        ..Server::default()
    };
    let ours = only_aeth(&server.responses(&capture));
    let theirs = aeth_of_the_kernel(&capture);
    assert_eq!(ours, (Syndrome::Negative(NakCode::InvalidRequest), 0));
    assert_eq!(theirs, (Syndrome::Negative(NakCode::RemoteOperational), 0));
}

/// The kernel acknowledges a SEND whose key cannot be invalidated, and reports an error only at the
/// receiver. The specification requires a NAK, so that the sender does not consider the key
/// invalidated.
#[test]
fn send_with_an_invalid_key_to_invalidate_is_rejected_unlike_with_the_kernel() {
    let capture = capture!("gold-sendinv");
    let ours = only_aeth(&Server::default().responses(&capture));
    let theirs = aeth_of_the_kernel(&capture);
    assert_eq!(ours, (Syndrome::Negative(NakCode::RemoteAccess), 0));
    assert_eq!(theirs, (Syndrome::UNLIMITED, 0));
}

//! The kernel's own conversations, with our device in the place of one of the two.
//!
//! Numbers of queue pairs, sequence numbers and addresses are the captured ones; only the keys of
//! memory are ours, put into the client's requests before they are delivered. What we say must be
//! what the kernel said, word by word. The known differences have tests of their own below.

#[path = "../conversation/mod.rs"]
mod conversation;

mod capture;
mod client;
mod server;

use capture::{Capture, capture};
use engine::Status;
use server::Server;
use wire::{NakCode, Packet, PathMtu, Syndrome};

fn in_words(packets: &[Vec<u8>]) -> Vec<String> {
    packets
        .iter()
        .map(|bytes| Packet::parse(bytes).expect("a packet").to_string())
        .collect()
}

/// Our answers are the kernel's: kind, numbers, verdict, counts and data.
#[track_caller]
fn answers_like_the_kernel(server: &Server, capture: &Capture) {
    let ours = server.answers(capture);
    let theirs: Vec<Vec<u8>> = capture
        .responses()
        .map(|frame| frame.bytes.clone())
        .collect();
    assert_eq!(in_words(&ours), in_words(&theirs));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let payload = |bytes| Packet::parse(bytes).expect("a packet").payload.to_vec();
        assert_eq!(payload(ours), payload(theirs));
    }
}

#[test]
fn sends_are_answered_like_the_kernel_does() {
    for capture in [
        capture!("gold-send"),
        capture!("gold-send0"),
        capture!("gold-sendimm"),
        capture!("gold-sendbig"),
    ] {
        answers_like_the_kernel(&Server::default(), &capture);
    }
}

#[test]
fn writes_are_answered_like_the_kernel_does() {
    for capture in [
        capture!("gold-write0"),
        capture!("gold-writebig"),
        capture!("gold-wimm"),
    ] {
        answers_like_the_kernel(&Server::default(), &capture);
    }
}

#[test]
fn reads_are_answered_like_the_kernel_does() {
    for capture in [capture!("gold-read"), capture!("gold-readbig")] {
        answers_like_the_kernel(&Server::default(), &capture);
    }
}

#[test]
fn atomics_are_answered_like_the_kernel_does() {
    for capture in [
        capture!("gold-cas"),
        capture!("gold-fadd"),
        capture!("ib_atomic_bw"),
    ] {
        answers_like_the_kernel(&Server::default(), &capture);
    }
}

#[test]
fn writes_and_reads_in_turn_are_answered_like_the_kernel_does() {
    answers_like_the_kernel(&Server::default(), &capture!("gold-batch"));
}

#[test]
fn whole_programs_are_answered_like_the_kernel_does() {
    for capture in [
        capture!("rc-pingpong"),
        capture!("srq-pingpong"),
        capture!("ipv6/rc-pingpong-gid0"),
        capture!("ib_write_bw-R"),
        capture!("rping"),
        capture!("rdma_server"),
    ] {
        answers_like_the_kernel(&Server::default(), &capture);
    }
}

#[test]
fn wrong_keys_are_refused_like_the_kernel_does() {
    let server = Server {
        right_key: false,
        ..Server::default()
    };
    for capture in [
        capture!("gold-badrkey"),
        capture!("gold-badread"),
        capture!("gold-noperm"),
    ] {
        answers_like_the_kernel(&server, &capture);
    }
}

#[test]
fn a_write_out_of_bounds_is_refused_like_the_kernel_does() {
    let server = Server {
        registered: Some(4096),
        ..Server::default()
    };
    answers_like_the_kernel(&server, &capture!("gold-oob"));
}

#[test]
fn a_missing_receive_is_reported_like_the_kernel_does() {
    let server = Server {
        receives: (0, 4096),
        ..Server::default()
    };
    answers_like_the_kernel(&server, &capture!("gold-rnr"));
    let in_time = Server {
        late_receive: true,
        ..server
    };
    answers_like_the_kernel(&in_time, &capture!("gold-rnrok"));
}

#[test]
fn a_larger_path_mtu_changes_nothing_but_the_number_of_packets() {
    let server = Server {
        mtu: PathMtu::Mtu4096,
        ..Server::default()
    };
    for capture in [
        capture!("mtu4096/gold-sendbig"),
        capture!("mtu4096/gold-readbig"),
        capture!("mtu4096/gold-writebig"),
    ] {
        answers_like_the_kernel(&server, &capture);
    }
}

/// Two and a half thousand packets with every twentieth request missing: the same NAKs for the same
/// gaps, the same silence, the same acknowledgements.
#[test]
fn lost_requests_are_answered_like_the_kernel_does() {
    answers_like_the_kernel(&Server::default(), &capture!("loss5-requests-send"));
}

/// What was lost on the way back is not in the capture; all that arrived must be among our answers,
/// in the same order.
#[track_caller]
fn answers_include_the_kernel_s(capture: &Capture, words: fn(&Packet<'_>) -> String) {
    let ours = Server::default().answers(capture);
    let mut rest = ours
        .iter()
        .map(|bytes| words(&Packet::parse(bytes).expect("a packet")));
    for frame in capture.responses() {
        let theirs = words(&frame.packet());
        assert!(rest.any(|ours| ours == theirs), "missing: {theirs}");
    }
}

#[test]
fn requests_that_come_again_after_a_lost_acknowledgement_are_answered_like_the_kernel_does() {
    let all_of_it = |packet: &Packet<'_>| packet.to_string();
    answers_include_the_kernel_s(&capture!("loss5-acks-send"), all_of_it);
}

/// The kernel begins its answer to the rest of a read with a MIDDLE, as if nothing had happened; we
/// begin it with a FIRST, because it answers a new request. Requesters take both.
#[test]
fn reads_that_come_again_after_a_lost_response_are_answered_like_the_kernel_does() {
    let without_position = |packet: &Packet<'_>| {
        let operation = packet.opcode.operation();
        format!("{operation:?} {} {:?}", packet.psn, packet.payload)
    };
    answers_include_the_kernel_s(&capture!("loss5-responses-read"), without_position);
}

#[test]
fn requests_are_made_like_the_kernel_makes_them() {
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
        client::asks_like_the_kernel(&capture, PathMtu::Mtu1024, Status::Success);
    }
    for capture in [
        capture!("mtu4096/gold-sendbig"),
        capture!("mtu4096/gold-readbig"),
        capture!("mtu4096/gold-writebig"),
    ] {
        client::asks_like_the_kernel(&capture, PathMtu::Mtu4096, Status::Success);
    }
}

#[test]
fn refusals_by_the_kernel_end_requests_with_their_status() {
    for (capture, status) in [
        (capture!("gold-badrkey"), Status::RemoteAccess),
        (capture!("gold-badread"), Status::RemoteAccess),
        (capture!("gold-noperm"), Status::RemoteAccess),
        (capture!("gold-oob"), Status::RemoteAccess),
        (capture!("gold-toolong"), Status::RemoteOperation),
    ] {
        client::asks_like_the_kernel(&capture, PathMtu::Mtu1024, status);
    }
}

fn only_verdict(packets: &[Vec<u8>]) -> (Syndrome, u32) {
    let [bytes] = packets else {
        panic!("one answer, not {}", packets.len())
    };
    let packet = Packet::parse(bytes).expect("a packet");
    let aeth = packet.aeth().expect("a verdict");
    (aeth.syndrome(), aeth.message_sequence())
}

fn verdict_of_the_kernel(capture: &Capture) -> (Syndrome, u32) {
    let packets: Vec<Vec<u8>> = capture
        .responses()
        .map(|frame| frame.bytes.clone())
        .collect();
    only_verdict(&packets)
}

/// The kernel says "remote operational error" (0x63). The specification and hardware say "invalid
/// request" (0x61): the receiver is well, it is the message that is too long.
#[test]
fn a_send_that_is_too_long_is_an_invalid_request_other_than_with_the_kernel() {
    let capture = capture!("gold-toolong");
    let server = Server {
        receives: (1, 100),
        ..Server::default()
    };
    let ours = only_verdict(&server.answers(&capture));
    let theirs = verdict_of_the_kernel(&capture);
    assert_eq!(ours, (Syndrome::Negative(NakCode::InvalidRequest), 0));
    assert_eq!(theirs, (Syndrome::Negative(NakCode::RemoteOperational), 0));
}

/// The kernel acknowledges a SEND whose key can't be invalidated, and fails at the receiver only. The
/// specification has a NAK for it, so that the sender doesn't take the key for invalid.
#[test]
fn a_send_with_a_key_that_can_not_be_invalidated_is_refused_other_than_with_the_kernel() {
    let capture = capture!("gold-sendinv");
    let ours = only_verdict(&Server::default().answers(&capture));
    let theirs = verdict_of_the_kernel(&capture);
    assert_eq!(ours, (Syndrome::Negative(NakCode::RemoteAccess), 0));
    assert_eq!(theirs, (Syndrome::UNLIMITED, 0));
}

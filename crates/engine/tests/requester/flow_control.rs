//! Limits on outstanding requests: fences, depth, credits, and the window.

use engine::{BatchLimits, Config, SendFlags, SendRequest, State, Status, WindowLimits, Work};

use crate::conversation::*;

fn hello(id: u64) -> SendRequest {
    SendRequest::new(id, Work::Send).inline(b"hello")
}

fn read(id: u64, memory: &Region) -> SendRequest {
    SendRequest::new(id, Work::Read(remote(0x9000))).with([memory.segment(0, 8)])
}

fn fetch_add(id: u64, memory: &Region) -> SendRequest {
    let work = Work::FetchAdd {
        remote: remote(0x9000),
        add: 1,
    };
    SendRequest::new(id, work).with([memory.segment(0, 8)])
}

fn fenced(request: SendRequest) -> SendRequest {
    request.flags(SendFlags::SIGNALED | SendFlags::FENCE)
}

#[test]
fn fenced_request_waits_for_reads_and_atomics() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; 64]);
    peer.posts(read(1, &memory));
    peer.posts(fetch_add(2, &memory));
    peer.posts(fenced(hello(3)));
    peer.posts(hello(4));
    peer.receives(
        at(0),
        [
            "read-request +0 va=0x9000 len=8",
            "fetch-add +1 va=0x9000 add=1",
        ],
    );
    peer.sends(at(1), response_only(PSN, &[1; 8]));
    peer.receives_nothing(at(1));
    peer.sends(at(2), atomic_ack(PSN + 1, 7));
    peer.receives(at(2), ["send Only +2 5B ackreq", "send Only +3 5B ackreq"]);
}

#[test]
fn fenced_request_waits_for_a_retransmitted_read() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; 64]);
    peer.posts(read(1, &memory));
    peer.posts(fenced(hello(2)));
    peer.receives(at(0), ["read-request +0 va=0x9000 len=8"]);
    peer.receives(at(70), ["read-request +0 va=0x9000 len=8"]);
    peer.sends(at(71), response_only(PSN, &[1; 8]));
    peer.receives(at(71), ["send Only +1 5B ackreq"]);
}

#[test]
fn long_read_is_outstanding_until_its_last_response() {
    let mut peer = Conversation::with(Setup {
        initiator_depth: 1,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &[0; 4096]);
    let long = SendRequest::new(1, Work::Read(remote(0x9000))).with([memory.segment(0, 2048)]);
    peer.posts(long);
    peer.posts(read(2, &memory));
    peer.posts(fenced(hello(3)));
    peer.receives(at(0), ["read-request +0 va=0x9000 len=2048"]);
    peer.sends(at(1), response_first(PSN, &[1; 1024]));
    peer.receives_nothing(at(1));
    peer.sends(at(2), response_last(PSN + 1, &[1; 1024]));
    peer.receives(at(2), ["read-request +2 va=0x9000 len=8"]);
    peer.sends(at(3), response_only(PSN + 2, &[1; 8]));
    peer.receives(at(3), ["send Only +3 5B ackreq"]);
}

#[test]
fn request_without_a_fence_does_not_wait_for_reads() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; 64]);
    peer.posts(read(1, &memory));
    peer.posts(hello(2));
    peer.receives(
        at(0),
        ["read-request +0 va=0x9000 len=8", "send Only +1 5B ackreq"],
    );
}

#[test]
fn fence_does_not_wait_for_sends_and_writes() {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    peer.posts(fenced(hello(2)));
    peer.receives(at(0), ["send Only +0 5B ackreq", "send Only +1 5B ackreq"]);
}

#[test]
fn outstanding_reads_and_atomics_are_limited_by_the_initiator_depth() {
    let mut peer = Conversation::with(Setup {
        initiator_depth: 2,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &[0; 64]);
    peer.posts(read(1, &memory));
    peer.posts(fetch_add(2, &memory));
    peer.posts(read(3, &memory));
    peer.posts(hello(4));
    peer.receives(
        at(0),
        [
            "read-request +0 va=0x9000 len=8",
            "fetch-add +1 va=0x9000 add=1",
        ],
    );
    peer.sends(at(1), response_only(PSN, &[1; 8]));
    peer.receives(
        at(1),
        ["read-request +2 va=0x9000 len=8", "send Only +3 5B ackreq"],
    );
}

#[test]
fn read_with_initiator_depth_0_fails() {
    let mut peer = Conversation::with(Setup {
        initiator_depth: 0,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &[0; 64]);
    peer.posts(hello(1));
    peer.posts(read(2, &memory));
    peer.receives(at(0), ["send Only +0 5B ackreq"]);
    peer.completes([]);
    peer.sends(at(1), ack(PSN));
    peer.completes([(1, Status::Success), (2, Status::LocalOperation)]);
    assert_eq!(peer.state(), State::Error);
}

/// One message is acknowledged, and `credits` receives are left.
fn with_credits(credits: u32) -> Conversation {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    peer.receives(at(0), ["send Only +0 5B ackreq"]);
    peer.sends(at(1), ack_with_credits(PSN, 1, credits));
    peer.completes([(1, Status::Success)]);
    peer
}

// C9-148
#[test]
fn without_credits_only_one_packet_is_in_flight() {
    let mut peer = with_credits(0);
    peer.posts(hello(2));
    peer.posts(hello(3));
    peer.receives(at(1), ["send Only +1 5B ackreq"]);
    peer.receives_nothing(at(2));
    peer.sends(at(3), ack_with_credits(PSN + 1, 2, 0));
    peer.receives(at(3), ["send Only +2 5B ackreq"]);
}

// C9-148
#[test]
fn without_credits_only_the_first_packet_of_a_long_message_is_sent_and_requests_an_acknowledgement()
{
    let mut peer = with_credits(0);
    let outbox = peer.registers(0x1000, &pattern(4096));
    peer.posts(SendRequest::new(2, Work::Send).with([outbox.segment(0, 3000)]));
    peer.receives(at(1), ["send First +1 1024B ackreq"]);
    // The first packet got a receive, so the whole message has one.
    peer.sends(at(2), ack_with_credits(PSN + 1, 1, 0));
    peer.receives(
        at(2),
        ["send Middle +2 1024B ackreq", "send Last +3 952B ackreq"],
    );
}

// C9-148
#[test]
fn credits_limit_the_number_of_messages_in_flight() {
    let mut peer = with_credits(2);
    for id in 2..=5 {
        peer.posts(hello(id));
    }
    peer.receives(at(1), ["send Only +1 5B ackreq", "send Only +2 5B ackreq"]);
    peer.sends(at(2), ack_with_credits(PSN + 2, 3, 4));
    peer.receives(at(2), ["send Only +3 5B ackreq", "send Only +4 5B ackreq"]);
}

// C9-148
#[test]
fn duplicate_acknowledgement_with_more_credits_admits_more_messages() {
    let mut peer = with_credits(1);
    peer.posts(hello(2));
    peer.posts(hello(3));
    peer.receives(at(1), ["send Only +1 5B ackreq"]);
    peer.sends(at(2), ack_with_credits(PSN, 1, 3));
    peer.posts(hello(4));
    peer.receives(at(2), ["send Only +2 5B ackreq", "send Only +3 5B ackreq"]);
}

// C9-148
#[test]
fn request_that_consumes_no_receive_needs_no_credit() {
    let mut peer = with_credits(0);
    let memory = peer.registers(0x1000, &[0; 64]);
    let write = |id| SendRequest::new(id, Work::Write(remote(0x9000))).inline(b"data");
    peer.posts(write(2));
    peer.posts(read(3, &memory));
    peer.posts(write(4));
    assert_eq!(peer.received(at(2)).len(), 3);
}

// C9-148: the peer counts every request packet of a read as one message.
#[test]
fn each_request_packet_of_a_read_counts_as_a_message() {
    let (mut peer, memory) = with_window(8 << 10, 8 << 10, 8 << 10);
    peer.posts(hello(1));
    peer.receives(at(0), ["send Only +0 5B ackreq"]);
    peer.sends(at(1), ack_with_credits(PSN, 1, 2));
    let place = Work::Read(remote(0x9000));
    peer.posts(SendRequest::new(2, place).with([memory.segment(0, 10_240)]));
    // Messages 2, 3 and 4 are the read. This is message 5, and there are receives up to message 3.
    peer.posts(hello(3));
    assert_eq!(peer.received(at(1)).len(), 2);
    for index in 1..=9 {
        peer.sends(at(2), response_middle(PSN + index, &[7; 1024]));
        let expected = usize::from(index == 2);
        assert_eq!(peer.received(at(2)).len(), expected, "response {index}");
    }
    peer.sends(at(3), response_middle(PSN + 10, &[7; 1024]));
    peer.receives(at(3), ["send Only +11 5B ackreq"]);
}

#[test]
fn peer_without_credits_limits_nothing() {
    let mut peer = with_credits(0);
    peer.posts(hello(2));
    peer.posts(hello(3));
    assert_eq!(peer.received(at(1)).len(), 1);
    peer.sends(at(2), ack(PSN + 1));
    peer.posts(hello(4));
    peer.posts(hello(5));
    assert_eq!(peer.received(at(2)).len(), 3);
}

fn with_window(min: u32, initial: u32, max: u32) -> (Conversation, Region) {
    let setup = Setup::default();
    let window = WindowLimits { min, initial, max };
    let mut peer = Conversation::with(Setup {
        retry_count: 7,
        config: Config {
            window,
            ..setup.config.clone()
        },
        ..setup
    });
    let outbox = peer.registers(0x1000, &pattern(256 << 10));
    (peer, outbox)
}

#[test]
fn window_limits_packets_in_flight_and_grows_with_acknowledgements() {
    let (mut peer, outbox) = with_window(4 << 10, 4 << 10, 16 << 10);
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.all()]));
    let mut sent = 0;
    for window in [4, 8, 16, 16, 16] {
        let received = peer.received(at_nanos(100_000));
        assert_eq!(received.len(), window);
        let last = received.last().expect("a packet");
        assert!(
            last.text().ends_with("ackreq"),
            "the last packet of a full window requests an acknowledgement"
        );
        sent += window as u32;
        peer.sends(at_nanos(100_000), ack(PSN + (sent - 1)));
    }
}

#[test]
fn every_acknowledgement_admits_more_packets() {
    let (mut peer, outbox) = with_window(8 << 10, 8 << 10, 8 << 10);
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.all()]));
    assert_eq!(peer.received(at(1)).len(), 8);
    peer.sends(at(1), ack(PSN + 2));
    assert_eq!(peer.received(at(1)).len(), 3);
    peer.receives_nothing(at(2));
}

#[test]
fn full_window_admits_no_packets_until_a_quarter_is_free() {
    let (mut peer, outbox) = with_window(16 << 10, 16 << 10, 16 << 10);
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.all()]));
    assert_eq!(peer.received(at(1)).len(), 16);
    peer.sends(at(1), ack(PSN + 2));
    peer.receives_nothing(at(1));
    peer.sends(at(2), ack(PSN + 3));
    assert_eq!(peer.received(at(2)).len(), 4);
}

#[test]
fn small_requests_behind_many_others_are_coalesced() {
    let mut peer = Conversation::new();
    for id in 0..16 {
        peer.posts(hello(id));
        assert_eq!(
            peer.received(at(0)).len(),
            1,
            "few requests are outstanding"
        );
    }
    for id in 16..31 {
        peer.posts(hello(id));
        peer.receives_nothing(at(0));
    }
    peer.posts(hello(31));
    assert_eq!(
        peer.received(at(0)).len(),
        16,
        "sixteen packets are sent together"
    );
}

#[test]
fn acknowledgement_ends_coalescing() {
    let mut peer = Conversation::new();
    for id in 0..16 {
        peer.posts(hello(id));
    }
    assert_eq!(peer.received(at(0)).len(), 16);
    peer.posts(hello(16));
    peer.receives_nothing(at(0));
    peer.sends(at(1), ack(PSN));
    peer.receives(at(1), ["send Only +16 5B ackreq"]);
}

#[test]
fn coalescing_ends_after_50_microseconds() {
    let mut peer = Conversation::new();
    for id in 0..16 {
        peer.posts(hello(id));
    }
    assert_eq!(peer.received(at(0)).len(), 16);
    peer.posts(hello(16));
    peer.receives_nothing(at_nanos(40_000));
    peer.receives(at_nanos(50_000), ["send Only +16 5B ackreq"]);
    peer.posts(hello(17));
    peer.receives_nothing(at_nanos(60_000));
}

#[test]
fn small_request_behind_a_long_message_is_not_coalesced() {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(64 << 10));
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.all()]));
    assert_eq!(peer.received(at(0)).len(), 64);
    peer.posts(hello(2));
    peer.receives(at(0), ["send Only +64 5B ackreq"]);
}

#[test]
fn long_message_is_not_coalesced() {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(64 << 10));
    for id in 0..16 {
        peer.posts(hello(id));
    }
    assert_eq!(peer.received(at(0)).len(), 16);
    peer.posts(SendRequest::new(16, Work::Write(remote(0x9000))).with([outbox.all()]));
    assert_eq!(peer.received(at(0)).len(), 64);
}

/// A message that is held back in its middle must not leave outstanding packets that request no
/// acknowledgement.
#[test]
fn begun_message_continues_when_credits_run_out() {
    let setup = Setup::default();
    let config = Config {
        window: WindowLimits {
            min: 16 << 10,
            initial: 16 << 10,
            max: 16 << 10,
        },
        batch: BatchLimits {
            packets: 2,
            bytes: 65_000,
        },
        ..setup.config.clone()
    };
    let mut peer = Conversation::with(Setup { config, ..setup });
    let outbox = peer.registers(0x1000, &pattern(8 << 10));
    for id in 0..11 {
        peer.posts(hello(id));
    }
    peer.posts(SendRequest::new(11, Work::Send).with([outbox.all()]));
    assert_eq!(
        peer.received(at(0)).len(),
        13,
        "three quarters of the window"
    );
    peer.sends(at_nanos(100_000), ack_with_credits(PSN + 10, 11, 0));
    let received = peer.received(at_nanos(100_000));
    assert!(received.last().is_some_and(|it| it.packet().acknowledge));
    let last = 10 + 2 + received.len() as u32;
    peer.sends(at_nanos(200_000), ack_with_credits(PSN + last, 11, 0));
    assert_eq!(
        received.len() + peer.received(at_nanos(200_000)).len(),
        6,
        "the rest"
    );
}

#[test]
fn window_halves_with_every_loss_down_to_its_minimum() {
    let (mut peer, outbox) = with_window(8 << 10, 32 << 10, 32 << 10);
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.all()]));
    assert_eq!(peer.received(at(0)).len(), 32);
    for (millis, window) in [(70, 16), (210, 8), (490, 8)] {
        assert_eq!(peer.received(at(millis)).len(), window);
    }
}

#[test]
fn small_messages_count_as_packets_in_the_window() {
    let (mut peer, _) = with_window(8 << 10, 8 << 10, 8 << 10);
    for id in 1..=20 {
        peer.posts(hello(id));
    }
    assert_eq!(peer.received(at(0)).len(), 8);
}

#[test]
fn long_message_requests_an_acknowledgement_every_64_packets_and_at_its_end() {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(200 << 10));
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.all()]));
    let received = peer.received(at(0));
    assert_eq!(received.len(), 200);
    let asking: Vec<usize> = (0..200)
        .filter(|&index| received[index].packet().acknowledge)
        .collect();
    assert_eq!(asking, [63, 127, 191, 199]);
}

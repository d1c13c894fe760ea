//! How much may be under way: fences, depth, credits, and the window.

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
fn a_fenced_request_waits_for_reads_and_atomics() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; 64]);
    peer.posts(read(1, &memory));
    peer.posts(fetch_add(2, &memory));
    peer.posts(fenced(hello(3)));
    peer.posts(hello(4));
    peer.hears(
        at(0),
        [
            "read-request +0 va=0x9000 len=8",
            "fetch-add +1 va=0x9000 add=1",
        ],
    );
    peer.says(at(1), response_only(PSN, &[1; 8]));
    peer.hears_nothing(at(1));
    peer.says(at(2), atomic_ack(PSN + 1, 7));
    peer.hears(at(2), ["send Only +2 5B ask", "send Only +3 5B ask"]);
}

#[test]
fn a_fenced_request_still_waits_when_the_read_is_asked_again() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; 64]);
    peer.posts(read(1, &memory));
    peer.posts(fenced(hello(2)));
    peer.hears(at(0), ["read-request +0 va=0x9000 len=8"]);
    peer.hears(at(70), ["read-request +0 va=0x9000 len=8"]);
    peer.says(at(71), response_only(PSN, &[1; 8]));
    peer.hears(at(71), ["send Only +1 5B ask"]);
}

#[test]
fn a_long_read_is_outstanding_until_its_last_response() {
    let mut peer = Conversation::with(Setup {
        initiator_depth: 1,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &[0; 4096]);
    let long = SendRequest::new(1, Work::Read(remote(0x9000))).with([memory.segment(0, 2048)]);
    peer.posts(long);
    peer.posts(read(2, &memory));
    peer.posts(fenced(hello(3)));
    peer.hears(at(0), ["read-request +0 va=0x9000 len=2048"]);
    peer.says(at(1), response_first(PSN, &[1; 1024]));
    peer.hears_nothing(at(1));
    peer.says(at(2), response_last(PSN + 1, &[1; 1024]));
    peer.hears(at(2), ["read-request +2 va=0x9000 len=8"]);
    peer.says(at(3), response_only(PSN + 2, &[1; 8]));
    peer.hears(at(3), ["send Only +3 5B ask"]);
}

#[test]
fn a_request_without_fence_does_not_wait() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; 64]);
    peer.posts(read(1, &memory));
    peer.posts(hello(2));
    peer.hears(
        at(0),
        ["read-request +0 va=0x9000 len=8", "send Only +1 5B ask"],
    );
}

#[test]
fn a_fence_does_not_wait_for_sends_and_writes() {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    peer.posts(fenced(hello(2)));
    peer.hears(at(0), ["send Only +0 5B ask", "send Only +1 5B ask"]);
}

#[test]
fn no_more_reads_and_atomics_are_outstanding_than_were_agreed() {
    let mut peer = Conversation::with(Setup {
        initiator_depth: 2,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &[0; 64]);
    peer.posts(read(1, &memory));
    peer.posts(fetch_add(2, &memory));
    peer.posts(read(3, &memory));
    peer.posts(hello(4));
    peer.hears(
        at(0),
        [
            "read-request +0 va=0x9000 len=8",
            "fetch-add +1 va=0x9000 add=1",
        ],
    );
    peer.says(at(1), response_only(PSN, &[1; 8]));
    peer.hears(
        at(1),
        ["read-request +2 va=0x9000 len=8", "send Only +3 5B ask"],
    );
}

#[test]
fn a_read_without_any_depth_can_never_be_sent() {
    let mut peer = Conversation::with(Setup {
        initiator_depth: 0,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &[0; 64]);
    peer.posts(hello(1));
    peer.posts(read(2, &memory));
    peer.hears(at(0), ["send Only +0 5B ask"]);
    peer.completes([]);
    peer.says(at(1), ack(PSN));
    peer.completes([(1, Status::Success), (2, Status::LocalOperation)]);
    assert_eq!(peer.state(), State::Error);
}

/// One message was acknowledged, and `credits` receives are left.
fn with_credits(credits: u32) -> Conversation {
    let mut peer = Conversation::new();
    peer.posts(hello(1));
    peer.hears(at(0), ["send Only +0 5B ask"]);
    peer.says(at(1), ack_with_credits(PSN, 1, credits));
    peer.completes([(1, Status::Success)]);
    peer
}

// C9-148
#[test]
fn without_a_credit_only_one_packet_is_under_way() {
    let mut peer = with_credits(0);
    peer.posts(hello(2));
    peer.posts(hello(3));
    peer.hears(at(1), ["send Only +1 5B ask"]);
    peer.hears_nothing(at(2));
    peer.says(at(3), ack_with_credits(PSN + 1, 2, 0));
    peer.hears(at(3), ["send Only +2 5B ask"]);
}

// C9-148
#[test]
fn without_a_credit_only_the_first_packet_of_a_long_message_goes_and_asks() {
    let mut peer = with_credits(0);
    let outbox = peer.registers(0x1000, &pattern(4096));
    peer.posts(SendRequest::new(2, Work::Send).with([outbox.segment(0, 3000)]));
    peer.hears(at(1), ["send First +1 1024B ask"]);
    // It got a receive, so the whole message has one.
    peer.says(at(2), ack_with_credits(PSN + 1, 1, 0));
    peer.hears(at(2), ["send Middle +2 1024B ask", "send Last +3 952B ask"]);
}

// C9-148
#[test]
fn as_many_messages_go_as_there_are_credits() {
    let mut peer = with_credits(2);
    for id in 2..=5 {
        peer.posts(hello(id));
    }
    peer.hears(at(1), ["send Only +1 5B ask", "send Only +2 5B ask"]);
    peer.says(at(2), ack_with_credits(PSN + 2, 3, 4));
    peer.hears(at(2), ["send Only +3 5B ask", "send Only +4 5B ask"]);
}

// C9-148
#[test]
fn an_acknowledgement_that_says_nothing_new_but_more_credits_lets_more_go() {
    let mut peer = with_credits(1);
    peer.posts(hello(2));
    peer.posts(hello(3));
    peer.hears(at(1), ["send Only +1 5B ask"]);
    peer.says(at(2), ack_with_credits(PSN, 1, 3));
    peer.posts(hello(4));
    peer.hears(at(2), ["send Only +2 5B ask", "send Only +3 5B ask"]);
}

// C9-148
#[test]
fn what_takes_no_receive_needs_no_credit() {
    let mut peer = with_credits(0);
    let memory = peer.registers(0x1000, &[0; 64]);
    let write = |id| SendRequest::new(id, Work::Write(remote(0x9000))).inline(b"data");
    peer.posts(write(2));
    peer.posts(read(3, &memory));
    peer.posts(write(4));
    assert_eq!(peer.listens(at(1)).len(), 3);
}

// C9-148: the peer counts every request of a read as a message of its own.
#[test]
fn a_read_in_pieces_counts_as_many_messages_as_it_has_pieces() {
    let (mut peer, memory) = with_window(8 << 10, 8 << 10, 8 << 10);
    peer.posts(hello(1));
    peer.hears(at(0), ["send Only +0 5B ask"]);
    peer.says(at(1), ack_with_credits(PSN, 1, 2));
    let place = Work::Read(remote(0x9000));
    peer.posts(SendRequest::new(2, place).with([memory.segment(0, 10_240)]));
    // Messages 2, 3 and 4 are the read, so this is number 5, and there are receives up to number 3.
    peer.posts(hello(3));
    assert_eq!(peer.listens(at(1)).len(), 2);
    for index in 1..=9 {
        peer.says(at(2), response_middle(PSN + index, &[7; 1024]));
        let expected = usize::from(index == 2);
        assert_eq!(peer.listens(at(2)).len(), expected, "response {index}");
    }
    peer.says(at(3), response_middle(PSN + 10, &[7; 1024]));
    peer.hears(at(3), ["send Only +11 5B ask"]);
}

#[test]
fn a_peer_that_does_not_count_credits_limits_nothing() {
    let mut peer = with_credits(0);
    peer.posts(hello(2));
    peer.posts(hello(3));
    assert_eq!(peer.listens(at(1)).len(), 1);
    peer.says(at(2), ack(PSN + 1));
    peer.posts(hello(4));
    peer.posts(hello(5));
    assert_eq!(peer.listens(at(2)).len(), 3);
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
fn never_more_than_the_window_is_under_way_and_it_grows_with_what_arrives() {
    let (mut peer, outbox) = with_window(4 << 10, 8 << 10, 32 << 10);
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.all()]));
    let mut sent = 0;
    for window in [8, 16, 32, 32, 32] {
        let heard = peer.listens(at(1));
        assert_eq!(heard.len(), window);
        let last = heard.last().expect("a packet");
        assert!(last.words().ends_with("ask"), "a full window asks");
        sent += window as u32;
        peer.says(at(1), ack(PSN + (sent - 1)));
    }
}

#[test]
fn the_window_moves_with_every_acknowledgement() {
    let (mut peer, outbox) = with_window(8 << 10, 8 << 10, 8 << 10);
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.all()]));
    assert_eq!(peer.listens(at(1)).len(), 8);
    peer.says(at(1), ack(PSN + 2));
    assert_eq!(peer.listens(at(1)).len(), 3);
    peer.hears_nothing(at(2));
}

#[test]
fn a_window_stays_shut_until_a_quarter_of_it_is_open() {
    let (mut peer, outbox) = with_window(16 << 10, 16 << 10, 16 << 10);
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.all()]));
    assert_eq!(peer.listens(at(1)).len(), 16);
    peer.says(at(1), ack(PSN + 2));
    peer.hears_nothing(at(1));
    peer.says(at(2), ack(PSN + 3));
    assert_eq!(peer.listens(at(2)).len(), 4);
}

#[test]
fn behind_many_requests_small_ones_wait_for_company() {
    let mut peer = Conversation::new();
    for id in 0..16 {
        peer.posts(hello(id));
        assert_eq!(peer.listens(at(0)).len(), 1, "little is under way");
    }
    for id in 16..31 {
        peer.posts(hello(id));
        peer.hears_nothing(at(0));
    }
    peer.posts(hello(31));
    assert_eq!(peer.listens(at(0)).len(), 16, "sixteen go together");
}

#[test]
fn an_acknowledgement_ends_the_wait_for_company() {
    let mut peer = Conversation::new();
    for id in 0..16 {
        peer.posts(hello(id));
    }
    assert_eq!(peer.listens(at(0)).len(), 16);
    peer.posts(hello(16));
    peer.hears_nothing(at(0));
    peer.says(at(1), ack(PSN));
    peer.hears(at(1), ["send Only +16 5B ask"]);
}

#[test]
fn the_wait_for_company_ends_before_a_distant_peer_answers() {
    let mut peer = Conversation::new();
    for id in 0..16 {
        peer.posts(hello(id));
    }
    assert_eq!(peer.listens(at(0)).len(), 16);
    peer.posts(hello(16));
    peer.hears_nothing(at_nanos(40_000));
    peer.hears(at_nanos(50_000), ["send Only +16 5B ask"]);
    peer.posts(hello(17));
    peer.hears_nothing(at_nanos(60_000));
}

#[test]
fn the_word_behind_a_long_message_does_not_wait() {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(64 << 10));
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.all()]));
    assert_eq!(peer.listens(at(0)).len(), 64);
    peer.posts(hello(2));
    peer.hears(at(0), ["send Only +64 5B ask"]);
}

#[test]
fn a_long_message_needs_no_company() {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(64 << 10));
    for id in 0..16 {
        peer.posts(hello(id));
    }
    assert_eq!(peer.listens(at(0)).len(), 16);
    peer.posts(SendRequest::new(16, Work::Write(remote(0x9000))).with([outbox.all()]));
    assert_eq!(peer.listens(at(0)).len(), 64);
}

/// What holds a message back in its middle must not leave packets on the way that ask for no answer.
#[test]
fn a_message_that_was_begun_goes_on_when_credits_end() {
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
        peer.listens(at(0)).len(),
        13,
        "three quarters of the window"
    );
    peer.says(at(1), ack_with_credits(PSN + 10, 11, 0));
    let heard = peer.listens(at(1));
    assert!(heard.last().is_some_and(|it| it.packet().acknowledge));
    let last = 10 + 2 + heard.len() as u32;
    peer.says(at(2), ack_with_credits(PSN + last, 11, 0));
    assert_eq!(heard.len() + peer.listens(at(2)).len(), 6, "the rest");
}

#[test]
fn the_window_halves_with_every_loss_down_to_its_floor() {
    let (mut peer, outbox) = with_window(8 << 10, 32 << 10, 32 << 10);
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.all()]));
    assert_eq!(peer.listens(at(0)).len(), 32);
    for (millis, window) in [(70, 16), (210, 8), (490, 8)] {
        assert_eq!(peer.listens(at(millis)).len(), window);
    }
}

#[test]
fn small_messages_count_as_packets_in_the_window() {
    let (mut peer, _) = with_window(8 << 10, 8 << 10, 8 << 10);
    for id in 1..=20 {
        peer.posts(hello(id));
    }
    assert_eq!(peer.listens(at(0)).len(), 8);
}

#[test]
fn a_long_message_asks_at_least_every_64_packets_and_at_its_end() {
    let mut peer = Conversation::new();
    let outbox = peer.registers(0x1000, &pattern(200 << 10));
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.all()]));
    let heard = peer.listens(at(0));
    assert_eq!(heard.len(), 200);
    let asking: Vec<usize> = (0..200)
        .filter(|&index| heard[index].packet().acknowledge)
        .collect();
    assert_eq!(asking, [63, 127, 191, 199]);
}

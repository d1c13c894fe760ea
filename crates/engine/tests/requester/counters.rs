//! What a device and a queue pair count.

use engine::{SendRequest, Status, Work};

use crate::conversation::*;

fn send(id: u64) -> SendRequest {
    SendRequest::new(id, Work::Send).inline(b"hello")
}

/// A SEND of 5 bytes has 12 bytes of header, 3 of pad and 4 of ICRC; an acknowledgement has 4 more and no data.
#[test]
fn packets_bytes_and_messages_are_counted_in_both_directions() {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.posts_receive(1, &inbox);
    peer.posts(send(2));
    peer.receives(at(0), ["send Only +0 5B ackreq"]);
    peer.sends(at(1), ack(PSN));
    peer.sends(at(1), send_only(PSN, b"hello").ackreq());
    assert_eq!(peer.received(at(2)).len(), 1);
    let (device, queue_pair) = (*peer.counters(), *peer.queue_pair().counters());
    assert_eq!((device.packets_sent, device.bytes_sent), (2, 24 + 20));
    assert_eq!(
        (device.packets_received, device.bytes_received),
        (2, 20 + 24)
    );
    assert_eq!((device.sends_completed, device.receives_completed), (1, 1));
    assert_eq!(
        (queue_pair.packets_sent, queue_pair.bytes_sent),
        (2, 24 + 20)
    );
    assert_eq!(
        (queue_pair.packets_received, queue_pair.bytes_received),
        (2, 20 + 24)
    );
    assert_eq!(
        (queue_pair.messages_sent, queue_pair.messages_received),
        (1, 1)
    );
    let peers = peer.queue_pair().peer().expect("it is connected");
    assert_eq!(peers.queue_pair, PEER);
}

#[test]
fn exhausted_retries_are_counted_by_their_kind() {
    let mut peer = Conversation::with(Setup {
        rnr_retry: 0,
        ..Setup::default()
    });
    peer.posts(send(1));
    assert_eq!(peer.received(at(0)).len(), 1);
    peer.sends(at(1), rnr_nak(PSN, 12));
    peer.completes([(1, Status::ReceiverNotReady)]);
    let counters = peer.counters();
    assert_eq!(
        (counters.rnr_retries_exhausted, counters.retries_exhausted),
        (1, 0)
    );
    assert_eq!(peer.queue_pair().counters().rnr_naks_received, 1);

    let mut peer = Conversation::with(Setup {
        retry_count: 0,
        ..Setup::default()
    });
    peer.posts(send(1));
    assert_eq!(peer.received(at(0)).len(), 1);
    peer.receives_nothing(at(10_000));
    peer.completes([(1, Status::RetriesExhausted)]);
    let counters = peer.counters();
    assert_eq!(
        (counters.rnr_retries_exhausted, counters.retries_exhausted),
        (0, 1)
    );
    assert_eq!(peer.queue_pair().counters().timeouts, 1);
}

#[test]
fn a_monitor_sees_what_is_outstanding_and_why_it_waits() {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 64]);
    peer.posts_receive(1, &inbox);
    let idle = peer.queue_pair().usage();
    assert_eq!((idle.outstanding_sends, idle.posted_receives), (0, 1));
    assert!(idle.window > 0);
    peer.posts(send(2));
    peer.posts(send(3));
    assert_eq!(peer.received(at(0)).len(), 2);
    let sent = peer.queue_pair().usage();
    assert_eq!((sent.outstanding_sends, sent.unacknowledged), (2, 2));
    peer.sends(at(1), rnr_nak(PSN, 31));
    let waiting = peer.queue_pair().usage();
    assert!(waiting.waits_for_receiver && !sent.waits_for_receiver);
    assert_eq!(waiting.unacknowledged, 2, "they are sent again");
    // Code 31 is 491.52 ms.
    assert_eq!(peer.received(at(500)).len(), 2);
    assert_eq!(peer.received(at(600)).len(), 2, "after a timeout");
    let late = peer.queue_pair().usage();
    assert!(late.timeouts == 1 && !late.waits_for_receiver);
    peer.sends(at(601), ack(PSN + 1));
    let done = peer.queue_pair().usage();
    assert_eq!((done.outstanding_sends, done.unacknowledged), (0, 0));
    assert_eq!(done.timeouts, 0);
}

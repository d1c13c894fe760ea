//! Batches: packets that leave in one send, cut by the kernel into segments of one size.

use engine::{BatchLimits, Config, SendRequest, Work};
use wire::Qpn;

use crate::conversation::*;

fn with_limits(batch: BatchLimits) -> (Conversation, Region) {
    let setup = Setup::default();
    let mut peer = Conversation::with(Setup {
        config: Config {
            batch,
            ..setup.config.clone()
        },
        ..setup
    });
    let outbox = peer.registers(0x1000, &pattern(64 << 10));
    (peer, outbox)
}

fn batches(peer: &mut Conversation) -> Vec<Vec<Heard>> {
    std::iter::from_fn(|| peer.listens_to_one_batch(at(0))).collect()
}

fn sizes(peer: &mut Conversation) -> Vec<usize> {
    batches(peer).iter().map(Vec::len).collect()
}

#[test]
fn packets_of_one_size_leave_together_and_a_shorter_one_ends_the_batch() {
    let (mut peer, outbox) = with_limits(BatchLimits::default());
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.segment(0, 10_000)]));
    peer.posts(SendRequest::new(2, Work::Send).inline(b"next"));
    // Nine full packets and the rest of the message; then the next one.
    assert_eq!(sizes(&mut peer), [10, 1]);
}

#[test]
fn a_first_packet_that_is_longer_than_the_others_does_not_take_many_with_it() {
    let (mut peer, outbox) = with_limits(BatchLimits::default());
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.segment(0, 10_240)]));
    // The first has a RETH: one shorter packet may follow it.
    assert_eq!(sizes(&mut peer), [2, 8]);
}

#[test]
fn small_messages_of_one_size_share_a_batch() {
    let (mut peer, _) = with_limits(BatchLimits::default());
    for id in 0..5 {
        peer.posts(SendRequest::new(id, Work::Send).inline(b"same size"));
    }
    assert_eq!(sizes(&mut peer), [5]);
}

#[test]
fn a_batch_has_no_more_packets_and_bytes_than_the_socket_takes() {
    let limits = BatchLimits {
        packets: 4,
        bytes: 65_000,
    };
    let (mut peer, outbox) = with_limits(limits);
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.segment(0, 10_240)]));
    assert_eq!(sizes(&mut peer), [4, 4, 2]);
    let limits = BatchLimits {
        packets: 64,
        bytes: 3_200,
    };
    let (mut peer, outbox) = with_limits(limits);
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.segment(0, 10_240)]));
    assert_eq!(sizes(&mut peer), [3, 3, 3, 1]);
}

#[test]
fn a_socket_that_can_not_segment_gets_one_packet_at_a_time() {
    let limits = BatchLimits {
        packets: 1,
        bytes: 65_000,
    };
    let (mut peer, outbox) = with_limits(limits);
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.segment(0, 3_000)]));
    assert_eq!(sizes(&mut peer), [1, 1, 1]);
}

#[test]
fn queue_pairs_take_turns() {
    let (mut peer, outbox) = with_limits(BatchLimits::default());
    let init = peer.init();
    let other = peer.adds(init);
    let long = SendRequest::new(1, Work::Send).with([outbox.all(), outbox.all()]);
    peer.posts(long);
    let short = SendRequest::new(2, Work::Send).inline(b"hello");
    peer.device.post_send(other, short).expect("it is taken");
    let batches = batches(&mut peer);
    let second = &batches[1];
    assert_eq!(second[0].words(), "send Only +0 5B ask");
    assert!(batches.len() > 2, "the long message goes on behind it");
}

#[test]
fn an_acknowledgement_alone_rides_behind_a_request_in_one_send() {
    let (mut peer, outbox) = with_limits(BatchLimits::default());
    peer.receives(1, &outbox);
    peer.posts(SendRequest::new(2, Work::Send).inline(b"request"));
    peer.says(at(0), send_only(PSN, b"hello").ask());
    assert_eq!(sizes(&mut peer), [2]);
}

#[test]
fn other_answers_leave_before_requests() {
    let (mut peer, _) = with_limits(BatchLimits::default());
    peer.posts(SendRequest::new(2, Work::Send).inline(b"request"));
    peer.says(at(0), send_only(PSN + 1, b"hello").ask());
    peer.hears(at(0), ["nak sequence +0", "send Only +0 7B ask"]);
}

#[test]
fn every_queue_pair_has_its_own_source_port_as_the_kernel_chooses_it() {
    let (mut peer, _) = with_limits(BatchLimits::default());
    peer.posts(SendRequest::new(1, Work::Send).inline(b"hello"));
    let product = u64::from(peer.number.value()) * u64::from(PEER.value());
    let heard = peer.listens(at(0));
    let folded = product ^ product >> 20;
    let label = (folded ^ folded >> 40) as u32 & 0xfffff;
    let port = 0xc000 | (label ^ label >> 14) & 0x3fff;
    assert_eq!(u32::from(heard[0].route.flow.source_port), port);
    assert_ne!(peer.number, Qpn::new(0));
}

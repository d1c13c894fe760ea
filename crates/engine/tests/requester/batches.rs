//! Batches: packets of one send, which the kernel divides into segments of one size.

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

fn batches(peer: &mut Conversation) -> Vec<Vec<DevicePacket>> {
    std::iter::from_fn(|| peer.listens_to_one_batch(at(0))).collect()
}

fn sizes(peer: &mut Conversation) -> Vec<usize> {
    batches(peer).iter().map(Vec::len).collect()
}

#[test]
fn packets_of_one_size_share_a_batch_and_a_shorter_one_ends_it() {
    let (mut peer, outbox) = with_limits(BatchLimits::default());
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.segment(0, 10_000)]));
    peer.posts(SendRequest::new(2, Work::Send).inline(b"next"));
    // Nine full packets and the rest of the message, then the next message.
    assert_eq!(sizes(&mut peer), [10, 1]);
}

#[test]
fn longer_first_packet_shares_its_batch_with_one_packet_only() {
    let (mut peer, outbox) = with_limits(BatchLimits::default());
    peer.posts(SendRequest::new(1, Work::Write(remote(0x9000))).with([outbox.segment(0, 10_240)]));
    // The first packet has a RETH. One shorter packet may follow it.
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
fn batch_respects_the_packet_and_byte_limits_of_the_socket() {
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
fn socket_without_segmentation_gets_one_packet_per_send() {
    let limits = BatchLimits {
        packets: 1,
        bytes: 65_000,
    };
    let (mut peer, outbox) = with_limits(limits);
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.segment(0, 3_000)]));
    assert_eq!(sizes(&mut peer), [1, 1, 1]);
}

#[test]
fn queue_pairs_transmit_in_turn() {
    let (mut peer, outbox) = with_limits(BatchLimits::default());
    let init = peer.init();
    let other = peer.adds(init);
    let long = SendRequest::new(1, Work::Send).with([outbox.all(), outbox.all()]);
    peer.posts(long);
    let short = SendRequest::new(2, Work::Send).inline(b"hello");
    peer.device
        .post_send(other, short)
        .expect("the request is accepted");
    let batches = batches(&mut peer);
    let second = &batches[1];
    assert_eq!(second[0].text(), "send Only +0 5B ackreq");
    assert!(batches.len() > 2, "the long message continues after it");
}

#[test]
fn single_acknowledgement_is_sent_after_a_request_in_one_send() {
    let (mut peer, outbox) = with_limits(BatchLimits::default());
    peer.receives(1, &outbox);
    peer.posts(SendRequest::new(2, Work::Send).inline(b"request"));
    peer.says(at(0), send_only(PSN, b"hello").ackreq());
    assert_eq!(sizes(&mut peer), [2]);
}

#[test]
fn other_replies_are_sent_before_requests() {
    let (mut peer, _) = with_limits(BatchLimits::default());
    peer.posts(SendRequest::new(2, Work::Send).inline(b"request"));
    peer.says(at(0), send_only(PSN + 1, b"hello").ackreq());
    peer.hears(at(0), ["nak sequence +0", "send Only +0 7B ackreq"]);
}

#[test]
fn every_queue_pair_uses_the_source_port_that_the_kernel_would_choose() {
    let (mut peer, _) = with_limits(BatchLimits::default());
    peer.posts(SendRequest::new(1, Work::Send).inline(b"hello"));
    let product = u64::from(peer.number.value()) * u64::from(PEER.value());
    let received = peer.listens(at(0));
    let folded = product ^ product >> 20;
    let label = (folded ^ folded >> 40) as u32 & 0xfffff;
    let port = 0xc000 | (label ^ label >> 14) & 0x3fff;
    assert_eq!(u32::from(received[0].route.flow.source_port), port);
    assert_ne!(peer.number, Qpn::new(0));
}

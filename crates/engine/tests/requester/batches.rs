//! Batches: packets of one send, which the kernel divides into segments of one size.

use engine::{BatchLimits, Config, SendRequest, Status, Work};
use wire::{IcrcChecker, IcrcGenerator, Qpn, Reth, Route};

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
    std::iter::from_fn(|| peer.received_batch(at(0))).collect()
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
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.segment(0, 9_216)]));
    assert_eq!(sizes(&mut peer), [1, 3, 3, 2]);
}

#[test]
fn first_batch_to_a_peer_that_waits_is_half_as_long() {
    let (mut peer, outbox) = with_limits(BatchLimits::default());
    let message = || SendRequest::new(1, Work::Send).with([outbox.segment(0, 65_000)]);
    peer.posts(message());
    assert_eq!(sizes(&mut peer), [31, 33], "it wakes up during the second");
    peer.posts(message());
    assert_eq!(sizes(&mut peer), [62, 2], "it is still awake");
}

#[test]
fn reads_are_answered_in_full_batches_after_the_beginning_of_the_first() {
    let (mut peer, memory) = with_limits(BatchLimits::default());
    let read = |peer: &mut Conversation, number: u32| {
        let reth = Reth::new(memory.address(0), memory.key(), 64 << 10);
        peer.sends(at(0), read_request(PSN + 64 * number, reth));
    };
    read(&mut peer, 0);
    // The first packet has an AETH, and so has the last. A middle packet may follow the first.
    assert_eq!(sizes(&mut peer), [2, 61, 1]);
    read(&mut peer, 1);
    read(&mut peer, 2);
    // The last packet of one read and the first of the next have one size.
    assert_eq!(sizes(&mut peer), [2, 61, 3, 61, 1]);
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

/// The packets of each send: an acknowledgement, and a reply of this length that was posted after it.
fn acknowledgement_and_reply(limits: BatchLimits, length: u32) -> Vec<Vec<String>> {
    let (mut peer, outbox) = with_limits(limits);
    peer.posts_receive(1, &outbox);
    peer.sends(at(0), send_only(PSN, b"hello").ackreq());
    peer.completes([(1, Status::Success)]);
    peer.posts(SendRequest::new(2, Work::Send).with([outbox.segment(0, length)]));
    let texts = |batch: Vec<DevicePacket>| batch.iter().map(|it| it.text().to_owned()).collect();
    batches(&mut peer).into_iter().map(texts).collect()
}

#[test]
fn acknowledgement_shares_the_send_of_a_reply_of_one_packet() {
    let sent = acknowledgement_and_reply(BatchLimits::default(), 7);
    assert_eq!(sent, [["send Only +0 7B ackreq", "ack +0"]]);
}

#[test]
fn acknowledgement_is_sent_before_the_end_of_a_longer_reply() {
    let sent = acknowledgement_and_reply(BatchLimits::default(), 2048);
    assert_eq!(
        sent,
        [["send First +0 1024B", "send Last +1 1024B ackreq", "ack +0"]],
        "the last packet is not shorter"
    );
    let sent = acknowledgement_and_reply(BatchLimits::default(), 2000);
    let [first, rest] = &sent[..] else {
        panic!("two sends, not {sent:?}");
    };
    assert_eq!(*first, ["send First +0 1024B", "ack +0"]);
    assert_eq!(*rest, ["send Last +1 976B ackreq"]);
}

#[test]
fn acknowledgement_is_sent_before_a_reply_that_it_cannot_share_a_send_with() {
    let apart = [["ack +0"], ["send Only +0 7B ackreq"]];
    let single = BatchLimits {
        packets: 1,
        bytes: 65_000,
    };
    assert_eq!(acknowledgement_and_reply(single, 7), apart);
    let short = BatchLimits {
        packets: 64,
        bytes: 80,
    };
    assert_eq!(acknowledgement_and_reply(short, 7), apart);
    let shorter = acknowledgement_and_reply(BatchLimits::default(), 0);
    assert_eq!(shorter, [["ack +0"], ["send Only +0 0B ackreq"]]);
}

#[test]
fn acknowledgement_fits_into_the_first_of_several_sends() {
    let limits = BatchLimits {
        packets: 4,
        bytes: 65_000,
    };
    let sent = acknowledgement_and_reply(limits, 10_240);
    let sizes: Vec<usize> = sent.iter().map(Vec::len).collect();
    assert_eq!(sizes, [4, 4, 3]);
    assert_eq!(sent[0][3], "ack +0");
}

#[test]
fn other_responses_are_sent_before_requests() {
    let (mut peer, _) = with_limits(BatchLimits::default());
    peer.posts(SendRequest::new(2, Work::Send).inline(b"request"));
    peer.sends(at(0), send_only(PSN + 1, b"hello").ackreq());
    peer.receives(at(0), ["nak sequence +0", "send Only +0 7B ackreq"]);
}

#[test]
fn every_queue_pair_uses_the_source_port_that_the_kernel_would_choose() {
    let (mut peer, _) = with_limits(BatchLimits::default());
    peer.posts(SendRequest::new(1, Work::Send).inline(b"hello"));
    let product = u64::from(peer.number.value()) * u64::from(PEER.value());
    let received = peer.received(at(0));
    let folded = product ^ product >> 20;
    let label = (folded ^ folded >> 40) as u32 & 0xfffff;
    let port = 0xc000 | (label ^ label >> 14) & 0x3fff;
    assert_eq!(u32::from(received[0].route.flow.source_port), port);
    assert_ne!(peer.number, Qpn::new(0));
}

#[test]
fn icrc_that_is_left_out_can_be_filled_in_later() {
    let (mut peer, outbox) = with_limits(BatchLimits::default());
    peer.device.leave_out_icrc(true);
    peer.posts(SendRequest::new(1, Work::Send).with([outbox.segment(0, 5_000)]));
    let mut buffer = Vec::new();
    let transmit = peer.device.poll_transmit(at(0), &mut buffer);
    let transmit = transmit.expect("five packets");
    assert!(!transmit.has_icrc);
    let flow = transmit.route.flow;
    let intact = |buffer: &[u8]| {
        let mut packets = buffer.chunks(transmit.segment_size);
        packets.all(|it| IcrcChecker::new().check(&flow, it).is_ok())
    };
    assert!(!intact(&buffer));
    IcrcGenerator::new().fill(&flow, transmit.segment_size, &mut buffer);
    assert!(intact(&buffer));
}

#[test]
fn packet_from_memory_needs_no_icrc() {
    let (mut peer, _) = with_limits(BatchLimits::default());
    let inbox = peer.registers(0x40_0000, &[0; 64]);
    peer.posts_receive(1, &inbox);
    let mut datagram = send_only(PSN, b"hello").sealed(peer.number, &flow());
    datagram.iter_mut().rev().take(4).for_each(|byte| *byte = 0);
    let route = Route::new(flow());
    peer.device.handle_datagram(at(0), &route, &datagram);
    assert_eq!(peer.counters().bad_checksum, 1);
    peer.device.handle_without_icrc(at(0), &route, &datagram);
    peer.completes([(1, Status::Success)]);
    peer.device
        .handle_without_icrc(at(0), &route, &datagram[..8]);
    assert_eq!(peer.counters().malformed, 1);
}

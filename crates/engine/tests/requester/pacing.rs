//! Packets to another host are spread over the round trip.

use engine::{Config, Congestion, SendRequest, Status, Work};
use wire::{Opcode, Psn};

use crate::conversation::*;

/// A queue pair that follows a model of the path, whose round trip takes ten milliseconds.
fn distant() -> Conversation {
    let setup = Setup::default();
    let config = Config {
        congestion: Congestion::Model,
        ..setup.config.clone()
    };
    let mut peer = Conversation::with(Setup { config, ..setup });
    peer.posts(SendRequest::new(1, Work::Send).inline(b"hello"));
    peer.receives(at(0), ["send Only +0 5B ackreq"]);
    peer.sends(at(10), ack(PSN));
    peer.completes([(1, Status::Success)]);
    peer
}

#[test]
fn last_packet_is_sent_again_if_its_acknowledgement_is_lost_during_a_pause() {
    let mut peer = distant();
    let outbox = peer.registers(0x1000, &pattern(25 << 10));
    peer.posts(SendRequest::new(2, Work::Send).with([outbox.segment(0, 25 << 10)]));
    assert_eq!(peer.received(at(19)).len(), 25);
    // Some packets seem to be lost, and are sent again one after another.
    peer.sends(at(20), nak_sequence(PSN + 1).holding([(10, 12)]));
    let again = peer.received(at_nanos(20_700_000));
    assert_eq!(again.len(), 8);
    // They were only late. The acknowledgement of the last packet is lost.
    peer.sends(at_nanos(20_700_000), ack(PSN + 24));
    let again = peer.received(at(80));
    assert!(
        again
            .iter()
            .any(|it| it.text().starts_with("send Last +25"))
    );
    peer.sends(at(81), ack(PSN + 25));
    peer.completes([(2, Status::Success)]);
}

/// How many packets are sent in a round trip, after something has happened.
fn packets_after(happens: impl FnOnce(&mut Conversation)) -> usize {
    let mut peer = distant();
    happens(&mut peer);
    let outbox = peer.registers(0x1000, &pattern(25 << 10));
    peer.posts(SendRequest::new(2, Work::Send).with([outbox.segment(0, 25 << 10)]));
    let packets = peer.received(at(40));
    let sends = packets.iter().filter(|it| it.text().starts_with("send"));
    sends.count()
}

#[test]
fn congestion_notification_lowers_the_rate() {
    let notification = PeerPacket::new(Opcode::CongestionNotification, Psn::ZERO, &[0; 16]);
    let before = packets_after(|_| {});
    let after = packets_after(|peer| peer.sends(at(20), notification));
    assert!(after <= before / 2, "{after} after {before}");
}

/// The peer sends what the window of this queue pair admits.
#[test]
fn marked_response_of_a_read_lowers_the_rate() {
    let reads = |marks| {
        move |peer: &mut Conversation| {
            let inbox = peer.registers(0x9000, &[0; 16]);
            let read = Work::Read(remote(0x5000));
            peer.posts(SendRequest::new(9, read).with([inbox.all()]));
            assert_eq!(peer.received(at(19)).len(), 1);
            let response = response_only(PSN + 1, &[1; 16]);
            if marks {
                peer.sends_marked(at(20), response);
            } else {
                peer.sends(at(20), response);
            }
        }
    };
    let (before, after) = (packets_after(reads(false)), packets_after(reads(true)));
    assert!(after <= before / 2, "{after} after {before}");
}

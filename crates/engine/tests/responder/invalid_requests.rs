//! Invalid requests: NAK 1 (invalid request) and the error state.

use engine::{Access, AsyncEvent, State, Status};
use wire::{FlushPlacement, FlushRange, Reth};

use crate::conversation::*;

fn ready() -> (Conversation, Region) {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; 8192]);
    peer.posts_receive(1, &memory);
    (peer, memory)
}

/// Asserts that the last of these packets is rejected with `nak`.
#[track_caller]
fn assert_rejected(mut peer: Conversation, sent: impl IntoIterator<Item = PeerPacket>, nak: &str) {
    peer.sends_all(at(1), sent);
    peer.receives(at(1), [nak]);
    let number = peer.number;
    peer.raises([AsyncEvent::RequestError(number)]);
    assert_eq!(peer.state(), State::Error);
    assert_eq!(peer.counters().fatal_naks_sent, 1);
    peer.completes([(1, Status::Flushed)]);
    peer.sends(at(2), send_only(PSN, b"after the nak").ackreq());
    peer.receives_nothing(at(2));
}

// IBA 9.7.4.1
#[test]
fn middle_or_last_without_a_first_is_rejected() {
    let data = pattern(1024);
    for sent in [
        send_middle(PSN, &data),
        send_last(PSN, &data),
        write_middle(PSN, &data),
        write_last(PSN, &data),
    ] {
        assert_rejected(ready().0, [sent], "nak invalid +0");
    }
}

// IBA 9.7.4.1
#[test]
fn first_or_only_inside_a_message_is_rejected() {
    let data = pattern(1024);
    let (peer, memory) = ready();
    drop(peer);
    let reth = Reth::new(memory.address(0), memory.key(), 2048);
    for sent in [
        send_first(PSN + 1, &data),
        send_only(PSN + 1, &data),
        write_first(PSN + 1, reth, &data),
        read_request(PSN + 1, reth),
        fetch_add(PSN + 1, memory.address(0), memory.key(), 1),
    ] {
        let (peer, _) = ready();
        assert_rejected(peer, [send_first(PSN, &data), sent], "nak invalid +1");
    }
}

// IBA 9.7.4.1
#[test]
fn packet_of_another_operation_inside_a_message_is_rejected() {
    let data = pattern(1024);
    let (peer, memory) = ready();
    let reth = Reth::new(memory.address(0), memory.key(), 3000);
    let sent = [write_first(PSN, reth, &data), send_middle(PSN + 1, &data)];
    assert_rejected(peer, sent, "nak invalid +1");
    let (peer, _) = ready();
    let sent = [send_first(PSN, &data), write_last(PSN + 1, &data)];
    assert_rejected(peer, sent, "nak invalid +1");
}

// C9-92
#[test]
fn first_or_middle_that_is_not_one_path_mtu_long_is_rejected() {
    for length in [0, 1, 1020, 1023, 1025, 1028, 2048] {
        let sent = send_first(PSN, &pattern(length));
        assert_rejected(ready().0, [sent], "nak invalid +0");
        let sent = [
            send_first(PSN, &pattern(1024)),
            send_middle(PSN + 1, &pattern(length)),
        ];
        assert_rejected(ready().0, sent, "nak invalid +1");
    }
}

// C9-92
#[test]
fn last_that_is_empty_or_longer_than_one_path_mtu_is_rejected() {
    for length in [0, 1025, 1028] {
        let sent = [
            send_first(PSN, &pattern(1024)),
            send_last(PSN + 1, &pattern(length)),
        ];
        assert_rejected(ready().0, sent, "nak invalid +1");
    }
}

// C9-92
#[test]
fn only_that_is_longer_than_one_path_mtu_is_rejected() {
    let (peer, memory) = ready();
    let reth = Reth::new(memory.address(0), memory.key(), 1025);
    assert_rejected(
        peer,
        [write_only(PSN, reth, &pattern(1025))],
        "nak invalid +0",
    );
    assert_rejected(
        ready().0,
        [send_only(PSN, &pattern(1025))],
        "nak invalid +0",
    );
}

// IBA 9.7.4.1
#[test]
fn write_whose_length_contradicts_its_reth_is_rejected() {
    let data = pattern(1024);
    for (announced, brought) in [(4, 5), (5, 4), (0, 4), (4, 0), (1024, 4)] {
        let (peer, memory) = ready();
        let reth = Reth::new(memory.address(0), memory.key(), announced);
        let sent = write_only(PSN, reth, &data[..brought]);
        assert_rejected(peer, [sent], "nak invalid +0");
    }
    // The first packet of a message must be followed by others.
    for announced in [0, 1023, 1024] {
        let (peer, memory) = ready();
        let reth = Reth::new(memory.address(0), memory.key(), announced);
        assert_rejected(peer, [write_first(PSN, reth, &data)], "nak invalid +0");
    }
    // The last packet must carry exactly the rest.
    for brought in [475, 477, 1024] {
        let (peer, memory) = ready();
        let reth = Reth::new(memory.address(0), memory.key(), 1500);
        let sent = [
            write_first(PSN, reth, &data),
            write_last(PSN + 1, &data[..brought]),
        ];
        assert_rejected(peer, sent, "nak invalid +1");
    }
    // A middle packet must leave data for the last one.
    for announced in [1500, 2048] {
        let (peer, memory) = ready();
        let reth = Reth::new(memory.address(0), memory.key(), announced);
        let sent = [write_first(PSN, reth, &data), write_middle(PSN + 1, &data)];
        assert_rejected(peer, sent, "nak invalid +1");
    }
}

#[test]
fn message_of_more_than_two_to_the_31_bytes_is_rejected() {
    let (peer, memory) = ready();
    let reth = Reth::new(memory.address(0), memory.key(), (1 << 31) + 1);
    assert_rejected(peer, [read_request(PSN, reth)], "nak invalid +0");
    let (peer, _) = ready();
    let sent = write_first(PSN, reth, &pattern(1024));
    assert_rejected(peer, [sent], "nak invalid +0");
}

// IBA 9.7.4.1, Annex A19.4.1.1
#[test]
fn operation_that_the_queue_pair_does_not_grant_is_rejected() {
    let without = |right: Access| {
        let mut peer = Conversation::with(Setup {
            access: all_access().difference(right),
            ..Setup::default()
        });
        let memory = peer.registers(0x1000, &[0; 64]);
        peer.posts_receive(1, &memory);
        (peer, memory)
    };
    let (peer, memory) = without(Access::REMOTE_WRITE);
    let (address, key) = (memory.address(0), memory.key());
    let reth = Reth::new(address, key, 8);
    let word = b"8 bytes!";
    assert_rejected(peer, [write_only(PSN, reth, word)], "nak invalid +0");
    let (peer, _) = without(Access::REMOTE_WRITE);
    let sent = atomic_write(PSN, address, key, word);
    assert_rejected(peer, [sent], "nak invalid +0");
    let (peer, _) = without(Access::REMOTE_READ);
    assert_rejected(peer, [read_request(PSN, reth)], "nak invalid +0");
    for sent in [
        fetch_add(PSN, address, key, 1),
        compare_swap(PSN, address, key, 0, 1),
    ] {
        let (peer, _) = without(Access::REMOTE_ATOMIC);
        assert_rejected(peer, [sent], "nak invalid +0");
    }
    for (right, placement) in [
        (Access::FLUSH_GLOBAL, FlushPlacement::GLOBAL),
        (Access::FLUSH_PERSISTENT, FlushPlacement::PERSISTENT),
    ] {
        let (peer, _) = without(right);
        let sent = flush(PSN, placement, FlushRange::Range, reth);
        assert_rejected(peer, [sent], "nak invalid +0");
    }
}

#[test]
fn atomic_on_an_unaligned_address_is_rejected() {
    for offset in [1, 2, 4, 7, 12] {
        let (peer, memory) = ready();
        let (address, key) = (memory.address(offset), memory.key());
        let sent = fetch_add(PSN, address, key, 1);
        assert_rejected(peer, [sent], "nak invalid +0");
        assert_eq!(memory.first(24), [0; 24]);
        let (peer, memory) = ready();
        let sent = atomic_write(PSN, memory.address(offset), memory.key(), b"8 bytes!");
        assert_rejected(peer, [sent], "nak invalid +0");
        assert_eq!(memory.first(24), [0; 24]);
    }
}

#[test]
fn atomic_write_of_other_than_eight_bytes_is_rejected() {
    for length in [0, 4, 7, 9, 16] {
        let (peer, memory) = ready();
        let word = pattern(length);
        let sent = atomic_write(PSN, memory.address(0), memory.key(), &word);
        assert_rejected(peer, [sent], "nak invalid +0");
    }
}

// IBA 9.7.4.1
#[test]
fn more_outstanding_reads_than_agreed_are_rejected() {
    let mut peer = Conversation::with(Setup {
        responder_resources: 2,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &[0; 64]);
    let reth = Reth::new(memory.address(0), memory.key(), 8);
    let (address, key) = (memory.address(8), memory.key());
    peer.sends(at(1), read_request(PSN, reth));
    peer.sends(at(1), fetch_add(PSN + 1, address, key, 1));
    peer.sends(at(1), read_request(PSN + 2, reth));
    peer.receives(
        at(1),
        [
            "read-response Only +0 8B",
            "atomic-ack +1 was=0",
            "nak invalid +2",
        ],
    );
    assert_eq!(peer.state(), State::Error);
}

#[test]
fn answered_reads_make_room_for_further_ones() {
    let mut peer = Conversation::with(Setup {
        responder_resources: 2,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &[0; 64]);
    let reth = Reth::new(memory.address(0), memory.key(), 8);
    for round in 0..3 {
        let psn = PSN + 2 * round;
        peer.sends(at(1), read_request(psn, reth));
        peer.sends(at(1), read_request(psn + 1, reth));
        assert_eq!(peer.received(at(1)).len(), 2);
    }
    assert_eq!(peer.state(), State::ReadyToSend);
}

#[test]
fn read_without_responder_resources_is_rejected() {
    let mut peer = Conversation::with(Setup {
        responder_resources: 0,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &[0; 64]);
    let reth = Reth::new(memory.address(0), memory.key(), 8);
    peer.sends(at(1), read_request(PSN, reth));
    peer.receives(at(1), ["nak invalid +0"]);
}

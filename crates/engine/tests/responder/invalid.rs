//! Requests that make no sense: NAK 1, and the connection ends.

use engine::{Access, AsyncEvent, State, Status};
use wire::{FlushPlacement, FlushRange, Reth};

use crate::conversation::*;

fn ready() -> (Conversation, Region) {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; 8192]);
    peer.receives(1, &memory);
    (peer, memory)
}

/// The last of these packets is refused, whatever came before it.
#[track_caller]
fn refused(mut peer: Conversation, said: impl IntoIterator<Item = Said>, nak: &str) {
    peer.says_all(at(1), said);
    peer.hears(at(1), [nak]);
    let number = peer.number;
    peer.raises([AsyncEvent::RequestError(number)]);
    assert_eq!(peer.state(), State::Error);
    assert_eq!(peer.counters().fatal_naks_sent, 1);
    peer.completes([(1, Status::Flushed)]);
    peer.says(at(2), send_only(PSN, b"after the end").ask());
    peer.hears_nothing(at(2));
}

#[test]
fn a_middle_or_last_without_a_first() {
    let data = pattern(1024);
    for said in [
        send_middle(PSN, &data),
        send_last(PSN, &data),
        write_middle(PSN, &data),
        write_last(PSN, &data),
    ] {
        refused(ready().0, [said], "nak invalid +0");
    }
}

#[test]
fn a_first_or_only_inside_a_message() {
    let data = pattern(1024);
    let (peer, memory) = ready();
    drop(peer);
    let reth = Reth::new(memory.address(0), memory.key(), 2048);
    for said in [
        send_first(PSN + 1, &data),
        send_only(PSN + 1, &data),
        write_first(PSN + 1, reth, &data),
        read_request(PSN + 1, reth),
        fetch_add(PSN + 1, memory.address(0), memory.key(), 1),
    ] {
        let (peer, _) = ready();
        refused(peer, [send_first(PSN, &data), said], "nak invalid +1");
    }
}

#[test]
fn a_packet_of_another_operation_inside_a_message() {
    let data = pattern(1024);
    let (peer, memory) = ready();
    let reth = Reth::new(memory.address(0), memory.key(), 3000);
    let said = [write_first(PSN, reth, &data), send_middle(PSN + 1, &data)];
    refused(peer, said, "nak invalid +1");
    let (peer, _) = ready();
    let said = [send_first(PSN, &data), write_last(PSN + 1, &data)];
    refused(peer, said, "nak invalid +1");
}

// C9-92
#[test]
fn a_first_or_middle_that_is_not_one_path_mtu_long() {
    for length in [0, 1, 1020, 1023, 1025, 1028, 2048] {
        let said = send_first(PSN, &pattern(length));
        refused(ready().0, [said], "nak invalid +0");
        let said = [
            send_first(PSN, &pattern(1024)),
            send_middle(PSN + 1, &pattern(length)),
        ];
        refused(ready().0, said, "nak invalid +1");
    }
}

// C9-92
#[test]
fn a_last_that_is_empty_or_longer_than_one_path_mtu() {
    for length in [0, 1025, 1028] {
        let said = [
            send_first(PSN, &pattern(1024)),
            send_last(PSN + 1, &pattern(length)),
        ];
        refused(ready().0, said, "nak invalid +1");
    }
}

// C9-92
#[test]
fn an_only_that_is_longer_than_one_path_mtu() {
    let (peer, memory) = ready();
    let reth = Reth::new(memory.address(0), memory.key(), 1025);
    refused(
        peer,
        [write_only(PSN, reth, &pattern(1025))],
        "nak invalid +0",
    );
    refused(
        ready().0,
        [send_only(PSN, &pattern(1025))],
        "nak invalid +0",
    );
}

#[test]
fn a_write_whose_length_disagrees_with_what_it_announced() {
    let data = pattern(1024);
    for (announced, brought) in [(4, 5), (5, 4), (0, 4), (4, 0), (1024, 4)] {
        let (peer, memory) = ready();
        let reth = Reth::new(memory.address(0), memory.key(), announced);
        let said = write_only(PSN, reth, &data[..brought]);
        refused(peer, [said], "nak invalid +0");
    }
    // A first packet announces more than it brings.
    for announced in [0, 1023, 1024] {
        let (peer, memory) = ready();
        let reth = Reth::new(memory.address(0), memory.key(), announced);
        refused(peer, [write_first(PSN, reth, &data)], "nak invalid +0");
    }
    // A last packet brings exactly the rest.
    for brought in [475, 477, 1024] {
        let (peer, memory) = ready();
        let reth = Reth::new(memory.address(0), memory.key(), 1500);
        let said = [
            write_first(PSN, reth, &data),
            write_last(PSN + 1, &data[..brought]),
        ];
        refused(peer, said, "nak invalid +1");
    }
    // A middle packet leaves something for the last.
    for announced in [1500, 2048] {
        let (peer, memory) = ready();
        let reth = Reth::new(memory.address(0), memory.key(), announced);
        let said = [write_first(PSN, reth, &data), write_middle(PSN + 1, &data)];
        refused(peer, said, "nak invalid +1");
    }
}

#[test]
fn a_message_of_more_than_two_to_the_31_bytes() {
    let (peer, memory) = ready();
    let reth = Reth::new(memory.address(0), memory.key(), (1 << 31) + 1);
    refused(peer, [read_request(PSN, reth)], "nak invalid +0");
    let (peer, _) = ready();
    let said = write_first(PSN, reth, &pattern(1024));
    refused(peer, [said], "nak invalid +0");
}

#[test]
fn what_the_queue_pair_does_not_let_its_peer_do() {
    let without = |right: Access| {
        let mut peer = Conversation::with(Setup {
            access: everything().difference(right),
            ..Setup::default()
        });
        let memory = peer.registers(0x1000, &[0; 64]);
        peer.receives(1, &memory);
        (peer, memory)
    };
    let (peer, memory) = without(Access::REMOTE_WRITE);
    let (address, key) = (memory.address(0), memory.key());
    let reth = Reth::new(address, key, 8);
    let word = b"8 bytes!";
    refused(peer, [write_only(PSN, reth, word)], "nak invalid +0");
    let (peer, _) = without(Access::REMOTE_WRITE);
    let said = atomic_write(PSN, address, key, word);
    refused(peer, [said], "nak invalid +0");
    let (peer, _) = without(Access::REMOTE_READ);
    refused(peer, [read_request(PSN, reth)], "nak invalid +0");
    for said in [
        fetch_add(PSN, address, key, 1),
        compare_swap(PSN, address, key, 0, 1),
    ] {
        let (peer, _) = without(Access::REMOTE_ATOMIC);
        refused(peer, [said], "nak invalid +0");
    }
    for (right, placement) in [
        (Access::FLUSH_GLOBAL, FlushPlacement::GLOBAL),
        (Access::FLUSH_PERSISTENT, FlushPlacement::PERSISTENT),
    ] {
        let (peer, _) = without(right);
        let said = flush(PSN, placement, FlushRange::Range, reth);
        refused(peer, [said], "nak invalid +0");
    }
}

#[test]
fn an_atomic_on_an_address_that_is_not_aligned() {
    for offset in [1, 2, 4, 7, 12] {
        let (peer, memory) = ready();
        let (address, key) = (memory.address(offset), memory.key());
        let said = fetch_add(PSN, address, key, 1);
        refused(peer, [said], "nak invalid +0");
        assert_eq!(memory.first(24), [0; 24]);
        let (peer, memory) = ready();
        let said = atomic_write(PSN, memory.address(offset), memory.key(), b"8 bytes!");
        refused(peer, [said], "nak invalid +0");
        assert_eq!(memory.first(24), [0; 24]);
    }
}

#[test]
fn an_atomic_write_of_other_than_eight_bytes() {
    for length in [0, 4, 7, 9, 16] {
        let (peer, memory) = ready();
        let word = pattern(length);
        let said = atomic_write(PSN, memory.address(0), memory.key(), &word);
        refused(peer, [said], "nak invalid +0");
    }
}

#[test]
fn more_reads_at_once_than_were_agreed() {
    let mut peer = Conversation::with(Setup {
        responder_resources: 2,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &[0; 64]);
    let reth = Reth::new(memory.address(0), memory.key(), 8);
    let (address, key) = (memory.address(8), memory.key());
    peer.says(at(1), read_request(PSN, reth));
    peer.says(at(1), fetch_add(PSN + 1, address, key, 1));
    peer.says(at(1), read_request(PSN + 2, reth));
    peer.hears(
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
fn as_many_reads_at_once_as_were_agreed_and_more_once_those_are_answered() {
    let mut peer = Conversation::with(Setup {
        responder_resources: 2,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &[0; 64]);
    let reth = Reth::new(memory.address(0), memory.key(), 8);
    for round in 0..3 {
        let psn = PSN + 2 * round;
        peer.says(at(1), read_request(psn, reth));
        peer.says(at(1), read_request(psn + 1, reth));
        assert_eq!(peer.listens(at(1)).len(), 2);
    }
    assert_eq!(peer.state(), State::ReadyToSend);
}

#[test]
fn any_read_when_none_were_agreed() {
    let mut peer = Conversation::with(Setup {
        responder_resources: 0,
        ..Setup::default()
    });
    let memory = peer.registers(0x1000, &[0; 64]);
    let reth = Reth::new(memory.address(0), memory.key(), 8);
    peer.says(at(1), read_request(PSN, reth));
    peer.hears(at(1), ["nak invalid +0"]);
}

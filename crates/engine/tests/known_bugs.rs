//! Bugs that other software devices had and fixed: what triggered them there does no harm here. `docs/findings.md` lists them.

mod conversation;

use conversation::*;
use engine::{
    Access, Attributes, Binding, Buffer, MemoryError, MulticastError, ObjectError, QueuePairType,
    ReceiveRequest, SendRequest, SharedReceiveInit, State, Status, WindowKind, Work,
};
use wire::{Gid, Opcode, Reth};

const SIZE: usize = 64;

/// Memory at the end of the address space: a request behind it wraps.
const TOP: u64 = u64::MAX - SIZE as u64;

fn at_the_top(access: Access) -> (Conversation, Region) {
    let mut peer = Conversation::new();
    let memory = peer.registers_for(TOP, &[7; SIZE], all_access() | access);
    (peer, memory)
}

/// Ranges that begin inside of the memory, and whose ends wrap to small addresses or into the memory again.
fn wrapping() -> impl Iterator<Item = (u64, u32)> {
    let lengths = [SIZE as u32 + 1, 4096, 1 << 31];
    [0, 8, 63].into_iter().flat_map(move |offset| {
        let ends = lengths.map(|length| (TOP + offset, length));
        ends.into_iter()
    })
}

#[test]
fn request_whose_range_wraps_the_address_space_is_rejected() {
    for access in [Access::empty(), Access::ON_DEMAND] {
        for (address, length) in wrapping() {
            let (mut peer, memory) = at_the_top(access);
            let reth = Reth::new(address, memory.key(), length);
            peer.sends(at(1), read_request(PSN, reth));
            peer.receives(at(1), ["nak access +0"]);
            let (mut peer, memory) = at_the_top(access);
            let reth = Reth::new(address, memory.key(), length);
            let sent = match length {
                0..1024 => write_only(PSN, reth, &pattern(length as usize)),
                _ => write_first(PSN, reth, &pattern(1024)),
            };
            peer.sends(at(1), sent);
            peer.receives(at(1), ["nak access +0"]);
            assert_eq!(memory.bytes(), [7; SIZE]);
        }
    }
}

#[test]
fn duplicate_read_whose_range_wraps_the_address_space_is_not_answered() {
    let (mut peer, memory) = at_the_top(Access::empty());
    let all = Reth::new(TOP, memory.key(), SIZE as u32);
    peer.sends(at(1), read_request(PSN, all));
    peer.receives(at(1), ["read-response Only +0 64B"]);
    for (address, length) in wrapping() {
        let other = Reth::new(address, memory.key(), length);
        peer.sends(at(2), read_request(PSN, other));
        peer.receives_nothing(at(2));
    }
    assert_eq!(peer.state(), State::ReadyToSend);
}

#[test]
fn window_over_a_range_that_wraps_the_address_space_is_not_bound() {
    for length in [u64::MAX, u64::MAX - 8, 0_u64.wrapping_sub(TOP), 1 << 63] {
        let (mut peer, memory) = at_the_top(Access::WINDOW_BIND);
        let window = peer.device.allocate_window(peer.domain, WindowKind::One);
        let window = window.expect("a window");
        let binding = Binding {
            region: memory.key(),
            address: TOP + 8,
            length,
            access: Access::REMOTE_WRITE,
        };
        let key = None;
        peer.posts(SendRequest::new(
            1,
            Work::BindWindow {
                window,
                key,
                binding,
            },
        ));
        peer.received(at(1));
        peer.completes([(1, Status::WindowBind)]);
    }
}

#[test]
fn window_is_bound_only_if_it_its_region_and_its_queue_pair_have_one_domain() {
    for (window_is_foreign, region_is_foreign) in [(true, false), (false, true), (true, true)] {
        let mut peer = Conversation::new();
        let other = peer.device.allocate_domain().expect("a domain");
        let domain = |is_foreign| if is_foreign { other } else { peer.domain };
        let (of_window, of_region) = (domain(window_is_foreign), domain(region_is_foreign));
        let window = peer.device.allocate_window(of_window, WindowKind::One);
        let access = all_access() | Access::WINDOW_BIND;
        let buffer = Buffer::zeroed(SIZE);
        let region = (peer.device).register(of_region, buffer, 0x1000, access);
        let binding = Binding {
            region: region.expect("memory").local_key,
            address: 0x1000,
            length: 8,
            access: Access::REMOTE_WRITE,
        };
        peer.posts(SendRequest::new(
            1,
            Work::BindWindow {
                window: window.expect("a window"),
                key: None,
                binding,
            },
        ));
        peer.received(at(1));
        peer.completes([(1, Status::WindowBind)]);
    }
}

#[test]
fn unknown_opcode_is_dropped_whatever_follows_it() {
    let mut peer = Conversation::new();
    let mut sent = 0;
    for opcode in (0..=u8::MAX).filter(|opcode| Opcode::from_byte(*opcode).is_none()) {
        for length in [12, 13, 15, 16, 17, 19, 20, 64] {
            let mut datagram = send_only(PSN, &[0; 64]).sealed(peer.number, &flow());
            datagram.truncate(length);
            datagram[0] = opcode;
            peer.delivers(at(1), &flow(), &datagram);
            sent += 1;
        }
    }
    peer.receives_nothing(at(1));
    assert_eq!(peer.counters().malformed, sent);
    assert_eq!(peer.state(), State::ReadyToSend);
}

/// The pad count of the BTH, in its second byte.
fn padded(datagram: &mut Vec<u8>, pad: u8) {
    datagram.truncate(datagram.len() - 4);
    datagram[1] = datagram[1] & !0x30 | pad << 4;
    reseal(datagram, &flow());
}

#[test]
fn pad_that_is_longer_than_the_payload_is_dropped() {
    for pad in 1..=3 {
        let mut peer = Conversation::new();
        let memory = peer.registers(0x1000, &[7; SIZE]);
        peer.posts_receive(1, &memory);
        let mut datagram = send_only(PSN, b"").sealed(peer.number, &flow());
        padded(&mut datagram, pad);
        peer.delivers(at(1), &flow(), &datagram);
        let reth = Reth::new(memory.address(0), memory.key(), 0);
        let mut datagram = write_only(PSN, reth, b"").sealed(peer.number, &flow());
        padded(&mut datagram, pad);
        peer.delivers(at(1), &flow(), &datagram);
        peer.receives_nothing(at(1));
        peer.completes([]);
        assert_eq!(peer.counters().malformed, 2);
        assert_eq!(memory.bytes(), [7; SIZE]);
    }
}

#[test]
fn datagram_without_room_for_the_icrc_is_dropped() {
    let mut peer = Conversation::new();
    let whole = send_only(PSN, b"").sealed(peer.number, &flow());
    for length in 0..whole.len() {
        peer.delivers(at(1), &flow(), &whole[..length]);
    }
    peer.receives_nothing(at(1));
    assert_eq!(peer.counters().malformed, whole.len() as u64);
}

#[test]
fn atomic_write_of_other_than_eight_bytes_changes_nothing() {
    for length in [0, 1, 4, 7, 9, 12, 16, SIZE] {
        let mut peer = Conversation::new();
        let memory = peer.registers(0x1000, &[7; SIZE]);
        let word = pattern(length);
        let sent = atomic_write(PSN, memory.address(0), memory.key(), &word);
        peer.sends(at(1), sent);
        peer.receives(at(1), ["nak invalid +0"]);
        assert_eq!(memory.bytes(), [7; SIZE]);
    }
}

#[test]
fn packet_that_moved_the_queue_pair_to_error_is_not_executed_again() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[7; SIZE]);
    for id in 1..=3 {
        peer.posts_receive(id, &memory);
    }
    let reth = Reth::new(memory.address(0), memory.key(), 4);
    let too_long = || send_only(PSN, &pattern(SIZE + 1));
    peer.sends_all(at(1), [too_long(), too_long()]);
    peer.sends(at(1), write_only(PSN, reth, b"late"));
    peer.receives(at(1), ["nak invalid +0"]);
    peer.completes([
        (1, Status::LocalLength),
        (2, Status::Flushed),
        (3, Status::Flushed),
    ]);
    assert_eq!(peer.state(), State::Error);
    assert_eq!(memory.bytes(), [7; SIZE]);
}

#[test]
fn packet_of_a_queue_pair_that_goes_to_error_is_completed_once() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[7; SIZE]);
    for id in 1..=3 {
        peer.posts_receive(id, &memory);
    }
    peer.sends(at(1), send_only(PSN, b"once"));
    peer.goes_to(State::Error);
    peer.sends(at(2), send_only(PSN, b"again"));
    peer.received(at(2));
    peer.completes([
        (1, Status::Success),
        (2, Status::Flushed),
        (3, Status::Flushed),
    ]);
    assert_eq!(memory.first(5), b"once\x07");
}

#[test]
fn responder_resources_can_change_while_reads_are_answered() {
    for resources in [0, 1, 4] {
        let mut peer = Conversation::new();
        let memory = peer.registers(0x1000, &pattern(4096));
        let reth = Reth::new(memory.address(0), memory.key(), 4096);
        peer.sends(at(1), read_request(PSN, reth));
        peer.sends(at(1), read_request(PSN + 4, reth));
        peer.goes_to(State::SendQueueDrain);
        let smaller = Attributes {
            responder_resources: Some(resources),
            ..Attributes::default()
        };
        // Both answers are legal; a response from freed memory is not.
        let _ = peer.device.modify(peer.number, &smaller);
        let responses = peer.received(at(2));
        assert_eq!(responses.len(), 8, "{resources}");
        for (response, part) in responses.iter().zip(pattern(4096).chunks(1024).cycle()) {
            assert_eq!(response.payload(), part);
        }
    }
}

#[test]
fn timers_of_a_destroyed_queue_pair_expire_without_effect() {
    let mut peer = Conversation::new();
    peer.posts(SendRequest::new(1, Work::Send).inline(b"hello"));
    peer.received(at(0));
    let number = peer.number;
    peer.device.destroy_queue_pair(number).expect("it exists");
    peer.wait_until(at(60_000));
    peer.receives_nothing(at(60_000));
    peer.completes([]);
}

#[test]
fn completions_survive_resizing_their_queue() {
    let mut peer = Conversation::new();
    let post = |peer: &mut Conversation, id| {
        peer.posts(SendRequest::new(id, Work::Send).inline(b"hello"));
        peer.received(at(id));
        peer.sends(at(id), ack(PSN + (id as u32 - 1)));
    };
    for id in 1..=3 {
        post(&mut peer, id);
    }
    let queue = peer.completion_queue;
    for capacity in [3, 64, 5] {
        let resized = peer.device.resize_completion_queue(queue, capacity);
        resized.expect("it holds its completions");
    }
    let refused = peer.device.resize_completion_queue(queue, 2);
    assert!(refused.is_err(), "it has three completions");
    post(&mut peer, 4);
    let success = |id| (id, Status::Success);
    peer.completes([success(1), success(2), success(3), success(4)]);
}

fn receive_queue(peer: &mut Conversation, capacity: u32) -> SharedReceiveInit {
    SharedReceiveInit {
        domain: peer.domain,
        capacity,
        max_segments: 1,
        xrc: None,
    }
}

#[test]
fn shared_receive_queue_works_after_a_refused_resize() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; SIZE]);
    let init = receive_queue(&mut peer, 4);
    let queue = peer.device.create_shared_receive_queue(init);
    let queue = queue.expect("a shared receive queue");
    let mut with_shared = peer.init();
    with_shared.shared_receive = Some(queue);
    let sharing = peer.adds(with_shared);
    for id in 1..=3 {
        let request = ReceiveRequest::new(id, [memory.all()]);
        let posted = peer.device.post_shared_receive(queue, request);
        posted.expect("room");
    }
    for refused in [0, 2, u32::MAX] {
        let resized = peer.device.resize_shared_receive_queue(queue, refused);
        assert!(resized.is_err(), "{refused}");
    }
    peer.sends_to(sharing, at(1), send_only(PSN, b"still here"));
    peer.completes([(1, Status::Success)]);
    assert_eq!(memory.first(10), b"still here");
}

#[test]
fn refused_shared_receive_queue_leaves_nothing() {
    let mut peer = Conversation::new();
    let domain = peer.device.allocate_domain().expect("a domain");
    let init = SharedReceiveInit {
        domain,
        ..receive_queue(&mut peer, 0)
    };
    let refused = peer.device.create_shared_receive_queue(init);
    assert!(matches!(refused, Err(ObjectError::OutOfRange { .. })));
    assert_eq!(peer.device.shared_receive_queue_count(), 0);
    assert_eq!(peer.device.free_domain(domain), Ok(()));
}

#[test]
fn refused_reregistration_leaves_memory_in_its_domain() {
    let mut peer = Conversation::new();
    let other = peer.device.allocate_domain().expect("a domain");
    let memory = peer.registers(0x1000, &[0; SIZE]);
    let refused =
        (peer.device).reregister(memory.key(), Some(other), None, Some(Access::REMOTE_WRITE));
    assert_eq!(refused, Err(MemoryError::NeedsLocalWrite));
    assert_eq!(peer.device.free_domain(other), Ok(()));
    let reth = Reth::new(memory.address(0), memory.key(), 4);
    peer.sends(at(1), write_only(PSN, reth, b"same").ackreq());
    peer.receives(at(1), ["ack +0"]);
    assert_eq!(memory.first(4), b"same");
}

#[test]
fn memory_whose_addresses_are_not_those_of_the_process_is_accessed_at_every_page() {
    const PAGES: usize = 3 * 4096;
    // Neither the registered address nor the place in a page agree.
    const ADDRESS: u64 = 0x7_0000_0123;
    let mut peer = Conversation::new();
    let memory = peer.registers(ADDRESS, &pattern(PAGES));
    let mut psn = PSN;
    for offset in [0, 3800, 4095, 4096, 8000, 8191, PAGES - 500] {
        let reth = Reth::new(memory.address(offset as u64), memory.key(), 500);
        peer.sends(at(1), read_request(psn, reth));
        let response = peer.received(at(1)).remove(0);
        assert_eq!(response.payload(), &pattern(PAGES)[offset..offset + 500]);
        psn += 1;
        peer.sends(at(1), write_only(psn, reth, &[9; 500]).ackreq());
        peer.received(at(1));
        assert_eq!(memory.bytes()[offset..offset + 500], [9; 500]);
        memory.buffer.write(0, &pattern(PAGES));
        psn += 1;
    }
}

#[test]
fn response_longer_than_the_read_writes_nothing_behind_it() {
    for length in [101, 104, 1024] {
        let mut peer = Conversation::new();
        let inbox = peer.registers(0x1000, &[7; 4096]);
        let into = inbox.segment(0, 100);
        peer.posts(SendRequest::new(1, Work::Read(remote(0x9000))).with([into]));
        peer.received(at(0));
        peer.sends(at(1), response_only(PSN, &pattern(length)));
        peer.completes([(1, Status::BadResponse)]);
        assert_eq!(inbox.bytes()[100..], [7; 3996]);
    }
}

#[test]
fn responses_that_do_not_end_write_nothing_behind_the_read() {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[7; 8192]);
    let into = inbox.segment(0, 2048);
    peer.posts(SendRequest::new(1, Work::Read(remote(0x9000))).with([into]));
    peer.received(at(0));
    peer.sends(at(1), response_first(PSN, &pattern(1024)));
    for packet in 1..6 {
        peer.sends(at(1), response_middle(PSN + packet, &pattern(1024)));
    }
    let status = peer.completion().status;
    assert!(matches!(status, Status::Success | Status::BadResponse));
    assert_eq!(inbox.bytes()[2048..], [7; 6144]);
}

#[test]
fn queue_pair_that_is_not_set_up_yet_handles_no_packet() {
    for state in [State::Reset, State::Initialized] {
        let mut peer = Conversation::with(Setup {
            state,
            ..Setup::default()
        });
        let memory = peer.registers(0x1000, &[7; SIZE]);
        let reth = Reth::new(memory.address(0), memory.key(), 4);
        peer.sends(at(1), write_only(PSN, reth, b"early").ackreq());
        peer.sends(at(1), read_request(PSN, reth));
        peer.sends(at(1), ack(PSN));
        peer.receives_nothing(at(1));
        assert_eq!(memory.bytes(), [7; SIZE]);
    }
}

#[test]
fn refused_member_leaves_no_multicast_group() {
    let mut peer = Conversation::with(Setup {
        kind: QueuePairType::Rc,
        ..Setup::default()
    });
    let group = Gid::from(std::net::IpAddr::from([239, 1, 2, 3]));
    let number = peer.number;
    let refused = peer.device.attach_multicast(number, group);
    assert_eq!(refused, Err(MulticastError::NotDatagram));
    let unknown = peer.device.detach_multicast(number, group);
    assert_eq!(unknown, Err(MulticastError::NotMember(group)));
}

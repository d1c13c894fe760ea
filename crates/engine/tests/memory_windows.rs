//! Memory windows: remote access to a part of a region.

mod conversation;

use conversation::*;
use engine::{
    Access, Binding, Buffer, MemoryError, QueuePairType, SendRequest, State, Status, WindowKind,
    Work,
};
use wire::{Key, Reth};

const ADDRESS: u64 = 0x1000;
const SIZE: usize = 256;

fn with_region() -> (Conversation, Region) {
    let mut peer = Conversation::new();
    let region = peer.registers_for(
        ADDRESS,
        &[0; SIZE],
        Access::LOCAL_WRITE | Access::WINDOW_BIND,
    );
    (peer, region)
}

fn window(peer: &mut Conversation, kind: WindowKind) -> Key {
    peer.device
        .allocate_window(peer.domain, kind)
        .expect("a window")
}

/// Bytes 64 to 128 of the region, with read and write access.
fn binding(region: &Region) -> Binding {
    Binding {
        region: region.key(),
        address: region.address(64),
        length: 64,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
    }
}

#[track_caller]
fn completes_with(peer: &mut Conversation, work: Work, status: Status) {
    peer.posts(SendRequest::new(1, work));
    peer.receives_nothing(at(0));
    peer.completes([(1, status)]);
}

/// Binds a type-1 window and returns its new key.
#[track_caller]
fn bind_type_1(peer: &mut Conversation, window: Key, binding: Binding) -> Key {
    let work = Work::BindWindow {
        window,
        key: None,
        binding,
    };
    completes_with(peer, work, Status::Success);
    peer.device
        .window_key(window)
        .expect("the key names a window")
}

/// Binds a type-2 window with a new low byte and returns its new key.
#[track_caller]
fn bind_type_2(peer: &mut Conversation, window: Key, binding: Binding) -> Key {
    let key = next_key(window);
    completes_with(peer, bind_with_key(window, key, binding), Status::Success);
    key
}

fn bind_with_key(window: Key, key: Key, binding: Binding) -> Work {
    Work::BindWindow {
        window,
        key: Some(key),
        binding,
    }
}

fn next_key(window: Key) -> Key {
    Key::new(window.value() & !0xff | window.value().wrapping_add(1) & 0xff)
}

/// Whether the peer can write four bytes at `address` with its first packet.
fn can_write(peer: &mut Conversation, key: Key, address: u64) -> bool {
    let reth = Reth::new(address, key, 4);
    peer.sends(at(0), write_only(PSN, reth, b"data").ackreq());
    match peer.received(at(0))[0].text() {
        "ack +0" => true,
        "nak access +0" => false,
        other => panic!("unexpected response: {other}"),
    }
}

#[test]
fn bound_window_of_either_type_grants_access_to_its_range_only() {
    for kind in [WindowKind::One, WindowKind::Two] {
        let inside = [64, 100, 124];
        let outside = [0, 60, 63, 125, 128, 252];
        for offset in inside.into_iter().chain(outside) {
            let (mut peer, region) = with_region();
            let window = window(&mut peer, kind);
            let key = match kind {
                WindowKind::One => bind_type_1(&mut peer, window, binding(&region)),
                WindowKind::Two => bind_type_2(&mut peer, window, binding(&region)),
            };
            let allowed = can_write(&mut peer, key, region.address(offset));
            assert_eq!(allowed, inside.contains(&offset), "offset {offset}");
            assert_eq!(region.bytes() != [0; SIZE], allowed);
        }
    }
}

#[test]
fn binding_a_window_does_not_grant_access_through_the_region_key() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::One);
    bind_type_1(&mut peer, window, binding(&region));
    assert!(!can_write(&mut peer, region.key(), region.address(64)));
}

#[test]
fn unbound_window_grants_no_access() {
    for kind in [WindowKind::One, WindowKind::Two] {
        let (mut peer, _) = with_region();
        let window = window(&mut peer, kind);
        assert!(!can_write(&mut peer, window, ADDRESS));
    }
}

#[test]
fn window_grants_only_the_rights_of_its_binding() {
    for kind in [WindowKind::One, WindowKind::Two] {
        let (mut peer, region) = with_region();
        let window = window(&mut peer, kind);
        let mut read_only = binding(&region);
        read_only.access = Access::REMOTE_READ;
        let key = match kind {
            WindowKind::One => bind_type_1(&mut peer, window, read_only),
            WindowKind::Two => bind_type_2(&mut peer, window, read_only),
        };
        let reth = Reth::new(region.address(64), key, 64);
        peer.sends(at(0), read_request(PSN, reth));
        peer.receives(at(0), ["read-response Only +0 64B"]);
        peer.sends(
            at(0),
            write_only(PSN + 1, Reth::new(region.address(64), key, 4), b"data"),
        );
        peer.receives(at(0), ["nak access +1"]);
    }
}

#[test]
fn window_with_remote_atomic_allows_atomics() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::One);
    let mut atomic = binding(&region);
    atomic.access = Access::REMOTE_ATOMIC;
    let key = bind_type_1(&mut peer, window, atomic);
    peer.sends(at(0), fetch_add(PSN, region.address(72), key, 5));
    peer.receives(at(0), ["atomic-ack +0 was=0"]);
    assert_eq!(region.word(72), 5);
}

#[test]
fn addresses_of_a_zero_based_window_start_at_0() {
    for (address, allowed) in [(0, true), (60, true), (61, false), (ADDRESS + 64, false)] {
        let (mut peer, region) = with_region();
        let window = window(&mut peer, WindowKind::Two);
        let mut zero_based = binding(&region);
        zero_based.access |= Access::ZERO_BASED;
        let key = bind_type_2(&mut peer, window, zero_based);
        assert_eq!(can_write(&mut peer, key, address), allowed);
        let offset_in_region = 64 + address as usize;
        if allowed {
            assert_eq!(
                region.bytes()[offset_in_region..offset_in_region + 4],
                *b"data"
            );
        }
    }
}

// o10-36.2.2
#[test]
fn type_1_window_cannot_be_zero_based() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::One);
    let mut zero_based = binding(&region);
    zero_based.access |= Access::ZERO_BASED;
    let work = Work::BindWindow {
        window,
        key: None,
        binding: zero_based,
    };
    completes_with(&mut peer, work, Status::WindowBind);
}

#[test]
fn window_can_be_bound_to_a_zero_based_region() {
    let mut peer = Conversation::new();
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND | Access::ZERO_BASED;
    let region = peer.registers_for(0xdead_0000, &[0; SIZE], access);
    assert_eq!(region.address(0), 0);
    let window = window(&mut peer, WindowKind::One);
    let key = bind_type_1(&mut peer, window, binding(&region));
    assert!(can_write(&mut peer, key, 64));
    assert_eq!(region.bytes()[64..68], *b"data");
}

#[test]
fn local_invalidate_unbinds_a_type_2_window() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::Two);
    let key = bind_type_2(&mut peer, window, binding(&region));
    completes_with(&mut peer, Work::LocalInvalidate(key), Status::Success);
    assert!(!can_write(&mut peer, key, region.address(64)));
}

// o10-37.2.26
#[test]
fn local_invalidate_of_other_keys_fails() {
    let (mut peer, region) = with_region();
    let one = window(&mut peer, WindowKind::One);
    let bound = bind_type_1(&mut peer, one, binding(&region));
    for key in [bound, region.key(), Key::new(0)] {
        let (mut peer, region) = with_region();
        let one = window(&mut peer, WindowKind::One);
        assert_eq!(bind_type_1(&mut peer, one, binding(&region)), bound);
        completes_with(&mut peer, Work::LocalInvalidate(key), Status::WindowBind);
        assert_eq!(peer.state(), State::Error);
    }
}

#[test]
fn type_2_window_is_usable_only_through_the_queue_pair_that_bound_it() {
    let (mut peer, region) = with_region();
    let init = peer.init();
    let other = peer.adds(init);
    let window = window(&mut peer, WindowKind::Two);
    let key = bind_type_2(&mut peer, window, binding(&region));
    let reth = Reth::new(region.address(64), key, 4);
    peer.sends_to(other, at(0), write_only(PSN, reth, b"data"));
    peer.receives(at(0), ["nak access +0"]);
    assert_eq!(region.bytes(), [0; SIZE]);
    assert!(can_write(&mut peer, key, region.address(64)));
}

#[test]
fn type_1_window_is_usable_through_every_queue_pair_of_its_domain() {
    let (mut peer, region) = with_region();
    let init = peer.init();
    let other = peer.adds(init);
    let window = window(&mut peer, WindowKind::One);
    let key = bind_type_1(&mut peer, window, binding(&region));
    let reth = Reth::new(region.address(64), key, 4);
    peer.sends_to(other, at(0), write_only(PSN, reth, b"data").ackreq());
    peer.receives(at(0), ["ack +0"]);
}

#[test]
fn other_queue_pair_cannot_invalidate_a_type_2_window() {
    let (mut peer, region) = with_region();
    let init = peer.init();
    let other = peer.adds(init);
    let window = window(&mut peer, WindowKind::Two);
    let key = bind_type_2(&mut peer, window, binding(&region));
    let work = Work::LocalInvalidate(key);
    let request = SendRequest::new(2, work);
    peer.device
        .post_send(other, request)
        .expect("the request is accepted");
    peer.receives_nothing(at(0));
    peer.completes([(2, Status::WindowBind)]);
    assert!(can_write(&mut peer, key, region.address(64)));
}

#[test]
fn destroying_a_queue_pair_unbinds_its_type_2_windows() {
    let (mut peer, region) = with_region();
    let init = peer.init();
    let other = peer.adds(init);
    let window = window(&mut peer, WindowKind::Two);
    let work = bind_with_key(window, next_key(window), binding(&region));
    let request = SendRequest::new(1, work);
    peer.device
        .post_send(other, request)
        .expect("the request is accepted");
    peer.receives_nothing(at(0));
    peer.completes([(1, Status::Success)]);
    let rejected = peer.device.deregister(region.key());
    assert_eq!(rejected, Err(MemoryError::WindowsBound(1)));
    peer.device
        .destroy_queue_pair(other)
        .expect("the object exists and is unused");
    peer.deregisters(&region);
}

#[test]
fn rebinding_a_type_1_window_moves_it_and_changes_its_key() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::One);
    let first = bind_type_1(&mut peer, window, binding(&region));
    let mut elsewhere = binding(&region);
    elsewhere.address = region.address(128);
    let second = bind_type_1(&mut peer, first, elsewhere);
    assert_ne!(first, second);
    let reth = Reth::new(region.address(128), second, 4);
    peer.sends(at(0), write_only(PSN, reth, b"data").ackreq());
    peer.receives(at(0), ["ack +0"]);
    let stale = Reth::new(region.address(64), first, 4);
    peer.sends(at(0), write_only(PSN + 1, stale, b"data").ackreq());
    peer.receives(at(0), ["nak access +1"]);
    // A window has one binding: the previous one is gone.
    let rejected = peer.device.deregister(region.key());
    assert_eq!(rejected, Err(MemoryError::WindowsBound(1)));
}

#[test]
fn binding_a_type_1_window_with_length_0_unbinds_it() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::One);
    let key = bind_type_1(&mut peer, window, binding(&region));
    let mut nothing = binding(&region);
    nothing.length = 0;
    bind_type_1(&mut peer, key, nothing);
    peer.deregisters(&region);
}

// o10-37.2.30
#[test]
fn type_2_window_is_bound_again_only_after_it_was_invalidated() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::Two);
    let first = bind_type_2(&mut peer, window, binding(&region));
    completes_with(&mut peer, Work::LocalInvalidate(first), Status::Success);
    let second = bind_type_2(&mut peer, first, binding(&region));
    assert_ne!(first, second);
    assert!(can_write(&mut peer, second, region.address(64)));
}

// C10-73, C10-74, C10-75
#[test]
fn invalid_binding_completes_with_a_bind_error() {
    type MakeInvalid = fn(&mut Conversation, &Region, &mut Binding);
    let invalid: [MakeInvalid; 7] = [
        |peer, _, binding| {
            let other = peer.device.allocate_domain().expect("a domain");
            let foreign = peer
                .device
                .register(
                    other,
                    Buffer::zeroed(SIZE),
                    ADDRESS,
                    Access::LOCAL_WRITE | Access::WINDOW_BIND,
                )
                .expect("the queue has room");
            binding.region = foreign.local_key;
        },
        |_, _, binding| binding.region = Key::new(0),
        |_, region, binding| binding.address = region.address(250),
        |_, _, binding| binding.address = ADDRESS - 1,
        |_, _, binding| binding.length = u64::MAX,
        |peer, _, binding| {
            let closed = peer.registers_for(ADDRESS, &[0; SIZE], Access::LOCAL_WRITE);
            binding.region = closed.key();
        },
        |peer, _, binding| {
            let read_only = peer.registers_for(ADDRESS, &[0; SIZE], Access::WINDOW_BIND);
            binding.region = read_only.key();
        },
    ];
    for kind in [WindowKind::One, WindowKind::Two] {
        for make_invalid in invalid {
            let (mut peer, region) = with_region();
            let window = window(&mut peer, kind);
            let mut binding = binding(&region);
            make_invalid(&mut peer, &region, &mut binding);
            let key = (kind == WindowKind::Two).then(|| next_key(window));
            let work = Work::BindWindow {
                window,
                key,
                binding,
            };
            completes_with(&mut peer, work, Status::WindowBind);
            assert_eq!(peer.state(), State::Error);
        }
    }
}

// o10-37.2.40
#[test]
fn type_2_window_cannot_be_bound_with_length_0() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::Two);
    let mut binding = binding(&region);
    binding.length = 0;
    let work = bind_with_key(window, next_key(window), binding);
    completes_with(&mut peer, work, Status::WindowBind);
}

// C10-72
#[test]
fn window_of_another_domain_grants_no_access() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::One);
    let key = bind_type_1(&mut peer, window, binding(&region));
    let other = peer.device.allocate_domain().expect("a domain");
    let mut init = peer.init();
    init.domain = other;
    let other_queue_pair = peer.adds(init);
    let reth = Reth::new(region.address(64), key, 4);
    peer.sends_to(
        other_queue_pair,
        at(0),
        write_only(PSN, reth, b"data").ackreq(),
    );
    peer.receives(at(0), ["nak access +0"]);
    assert!(can_write(&mut peer, key, region.address(64)));
}

#[test]
fn revoking_a_region_unbinds_its_windows() {
    for kind in [WindowKind::One, WindowKind::Two] {
        let (mut peer, region) = with_region();
        let window = window(&mut peer, kind);
        let key = match kind {
            WindowKind::One => bind_type_1(&mut peer, window, binding(&region)),
            WindowKind::Two => bind_type_2(&mut peer, window, binding(&region)),
        };
        let rejected = peer.device.deregister(region.key());
        assert_eq!(rejected, Err(MemoryError::WindowsBound(1)));
        peer.device
            .revoke(region.key())
            .expect("the object exists and is unused");
        assert!(!can_write(&mut peer, key, region.address(64)));
        peer.device.free_window(window).expect("the window exists");
    }
}

#[test]
fn window_must_be_bound_by_the_request_of_its_type() {
    let invalid: [fn(Key, Key, Binding) -> Work; 3] = [
        |one, _, binding| bind_with_key(one, next_key(one), binding),
        |_, two, binding| Work::BindWindow {
            window: two,
            key: None,
            binding,
        },
        // The key of a region is not the key of a window.
        |one, two, binding| {
            let region = one;
            bind_with_key(two, next_key(two), Binding { region, ..binding })
        },
    ];
    for make in invalid {
        let (mut peer, region) = with_region();
        let one = window(&mut peer, WindowKind::One);
        let two = window(&mut peer, WindowKind::Two);
        let work = make(one, two, binding(&region));
        completes_with(&mut peer, work, Status::WindowBind);
    }
}

#[test]
fn upper_bits_of_the_key_for_a_type_2_window_are_ignored() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::Two);
    let given = Key::new(!window.value());
    let work = bind_with_key(window, given, binding(&region));
    completes_with(&mut peer, work, Status::Success);
    let key = peer
        .device
        .window_key(window)
        .expect("the key names a window");
    assert_eq!(key.value(), window.value() ^ 0xff);
    assert!(can_write(&mut peer, key, region.address(64)));
}

// o10-37.2.30
#[test]
fn bound_type_2_window_cannot_be_bound_again() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::Two);
    let key = bind_type_2(&mut peer, window, binding(&region));
    let again = bind_with_key(key, next_key(key), binding(&region));
    completes_with(&mut peer, again, Status::WindowBind);
}

#[test]
fn region_with_bound_windows_cannot_be_deregistered() {
    for kind in [WindowKind::One, WindowKind::Two] {
        let (mut peer, region) = with_region();
        let window = window(&mut peer, kind);
        match kind {
            WindowKind::One => bind_type_1(&mut peer, window, binding(&region)),
            WindowKind::Two => bind_type_2(&mut peer, window, binding(&region)),
        };
        let rejected = peer.device.deregister(region.key());
        assert_eq!(rejected, Err(MemoryError::WindowsBound(1)));
        let rejected = peer.device.reregister(region.key(), None, None, None);
        assert_eq!(rejected, Err(MemoryError::WindowsBound(1)));
        peer.device.free_window(window).expect("the window exists");
        peer.deregisters(&region);
    }
}

#[test]
fn key_of_a_freed_window_grants_no_access() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::One);
    let key = bind_type_1(&mut peer, window, binding(&region));
    peer.device.free_window(key).expect("the window exists");
    assert_eq!(peer.device.window_key(key), None);
    let rejected = peer.device.free_window(key);
    assert_eq!(rejected, Err(MemoryError::UnknownKey(key)));
    assert!(!can_write(&mut peer, key, region.address(64)));
}

// C10-72
#[test]
fn window_of_another_domain_cannot_be_bound() {
    let (mut peer, region) = with_region();
    let other = peer.device.allocate_domain().expect("a domain");
    let window = peer
        .device
        .allocate_window(other, WindowKind::One)
        .expect("a window");
    let work = Work::BindWindow {
        window,
        key: None,
        binding: binding(&region),
    };
    completes_with(&mut peer, work, Status::WindowBind);
}

#[test]
fn bind_is_executed_in_order_with_sends() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::Two);
    peer.posts(SendRequest::new(1, Work::Send).inline(b"before"));
    let work = bind_with_key(window, next_key(window), binding(&region));
    peer.posts(SendRequest::new(2, work));
    peer.posts(SendRequest::new(3, Work::Send).inline(b"after"));
    peer.receives(at(0), ["send Only +0 6B ackreq", "send Only +1 5B ackreq"]);
    peer.completes([]);
    peer.sends(at(1), ack(PSN));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
    peer.sends(at(2), ack(PSN + 1));
    peer.completes([(3, Status::Success)]);
}

#[test]
fn unreliable_connection_binds_windows() {
    let mut peer = Conversation::with(Setup {
        kind: QueuePairType::Uc,
        ..Setup::default()
    });
    let region = peer.registers(ADDRESS, &[0; SIZE]);
    let window = window(&mut peer, WindowKind::Two);
    let key = bind_type_2(&mut peer, window, binding(&region));
    let reth = Reth::new(region.address(64), key, 4);
    let sent = PeerPacket::new(wire::Opcode::UcWriteOnly, PSN, b"data").push(&reth);
    peer.sends(at(0), sent);
    assert_eq!(region.bytes()[64..68], *b"data");
}

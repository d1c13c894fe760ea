//! Memory windows: doors into a region that open, close and lock for the peer.

mod conversation;

use conversation::*;
use engine::{
    Access, Binding, Buffer, Kind, MemoryError, SendRequest, State, Status, WindowKind, Work,
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

/// Bytes 64 to 128 of the region, for reading and writing.
fn binding(region: &Region) -> Binding {
    Binding {
        region: region.key(),
        address: region.address(64),
        length: 64,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
    }
}

#[track_caller]
fn does(peer: &mut Conversation, work: Work, status: Status) {
    peer.posts(SendRequest::new(1, work));
    peer.hears_nothing(at(0));
    peer.completes([(1, status)]);
}

/// Binds a type-1 window and gives its new key.
#[track_caller]
fn bind_one(peer: &mut Conversation, window: Key, binding: Binding) -> Key {
    let work = Work::BindWindow {
        window,
        key: None,
        binding,
    };
    does(peer, work, Status::Success);
    peer.device.window_key(window).expect("it is a window")
}

/// Binds a type-2 window under another choice of its low byte.
#[track_caller]
fn bind_two(peer: &mut Conversation, window: Key, binding: Binding) -> Key {
    let key = chosen(window);
    does(peer, bind_under(window, key, binding), Status::Success);
    key
}

fn bind_under(window: Key, key: Key, binding: Binding) -> Work {
    Work::BindWindow {
        window,
        key: Some(key),
        binding,
    }
}

fn chosen(window: Key) -> Key {
    Key::new(window.value() & !0xff | window.value().wrapping_add(1) & 0xff)
}

/// Whether the peer can write four bytes there, with the very next packet.
fn can_write(peer: &mut Conversation, key: Key, address: u64) -> bool {
    let reth = Reth::new(address, key, 4);
    peer.says(at(0), write_only(PSN, reth, b"door").ask());
    match peer.listens(at(0))[0].words() {
        "ack +0" => true,
        "nak access +0" => false,
        other => panic!("neither yes nor no: {other}"),
    }
}

#[test]
fn a_bound_window_of_either_type_opens_its_range_and_nothing_else() {
    for kind in [WindowKind::One, WindowKind::Two] {
        let inside = [64, 100, 124];
        let outside = [0, 60, 63, 125, 128, 252];
        for offset in inside.into_iter().chain(outside) {
            let (mut peer, region) = with_region();
            let window = window(&mut peer, kind);
            let key = match kind {
                WindowKind::One => bind_one(&mut peer, window, binding(&region)),
                WindowKind::Two => bind_two(&mut peer, window, binding(&region)),
            };
            let allowed = can_write(&mut peer, key, region.address(offset));
            assert_eq!(allowed, inside.contains(&offset), "offset {offset}");
            assert_eq!(region.bytes() != [0; SIZE], allowed);
        }
    }
}

#[test]
fn the_region_itself_stays_closed() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::One);
    bind_one(&mut peer, window, binding(&region));
    assert!(!can_write(&mut peer, region.key(), region.address(64)));
}

#[test]
fn a_window_that_is_not_bound_opens_nothing() {
    for kind in [WindowKind::One, WindowKind::Two] {
        let (mut peer, _) = with_region();
        let window = window(&mut peer, kind);
        assert!(!can_write(&mut peer, window, ADDRESS));
    }
}

#[test]
fn a_window_gives_only_the_rights_it_was_bound_with() {
    for kind in [WindowKind::One, WindowKind::Two] {
        let (mut peer, region) = with_region();
        let window = window(&mut peer, kind);
        let mut read_only = binding(&region);
        read_only.access = Access::REMOTE_READ;
        let key = match kind {
            WindowKind::One => bind_one(&mut peer, window, read_only),
            WindowKind::Two => bind_two(&mut peer, window, read_only),
        };
        let reth = Reth::new(region.address(64), key, 64);
        peer.says(at(0), read_request(PSN, reth));
        peer.hears(at(0), ["read-response Only +0 64B"]);
        peer.says(
            at(0),
            write_only(PSN + 1, Reth::new(region.address(64), key, 4), b"door"),
        );
        peer.hears(at(0), ["nak access +1"]);
    }
}

#[test]
fn atomics_go_through_a_window_with_that_right() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::One);
    let mut atomic = binding(&region);
    atomic.access = Access::REMOTE_ATOMIC;
    let key = bind_one(&mut peer, window, atomic);
    peer.says(at(0), fetch_add(PSN, region.address(72), key, 5));
    peer.hears(at(0), ["atomic-ack +0 was=0"]);
    assert_eq!(region.word(72), 5);
}

#[test]
fn a_zero_based_window_counts_from_nought() {
    for (address, allowed) in [(0, true), (60, true), (61, false), (ADDRESS + 64, false)] {
        let (mut peer, region) = with_region();
        let window = window(&mut peer, WindowKind::Two);
        let mut zero_based = binding(&region);
        zero_based.access |= Access::ZERO_BASED;
        let key = bind_two(&mut peer, window, zero_based);
        assert_eq!(can_write(&mut peer, key, address), allowed);
        let place = 64 + address as usize;
        if allowed {
            assert_eq!(region.bytes()[place..place + 4], *b"door");
        }
    }
}

#[test]
fn a_window_into_a_zero_based_region() {
    let mut peer = Conversation::new();
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND | Access::ZERO_BASED;
    let region = peer.registers_for(0xdead_0000, &[0; SIZE], access);
    assert_eq!(region.address(0), 0);
    let window = window(&mut peer, WindowKind::One);
    let key = bind_one(&mut peer, window, binding(&region));
    assert!(can_write(&mut peer, key, 64));
    assert_eq!(region.bytes()[64..68], *b"door");
}

#[test]
fn local_invalidate_closes_a_type_2_window() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::Two);
    let key = bind_two(&mut peer, window, binding(&region));
    does(&mut peer, Work::LocalInvalidate(key), Status::Success);
    assert!(!can_write(&mut peer, key, region.address(64)));
}

#[test]
fn local_invalidate_of_anything_else_fails() {
    let (mut peer, region) = with_region();
    let one = window(&mut peer, WindowKind::One);
    let bound = bind_one(&mut peer, one, binding(&region));
    for key in [bound, region.key(), Key::new(0)] {
        let (mut peer, region) = with_region();
        let one = window(&mut peer, WindowKind::One);
        assert_eq!(bind_one(&mut peer, one, binding(&region)), bound);
        does(&mut peer, Work::LocalInvalidate(key), Status::WindowBind);
        assert_eq!(peer.state(), State::Error);
    }
}

#[test]
fn a_type_2_window_answers_only_through_the_queue_pair_that_bound_it() {
    let (mut peer, region) = with_region();
    let init = peer.init();
    let other = peer.adds(init);
    let window = window(&mut peer, WindowKind::Two);
    let key = bind_two(&mut peer, window, binding(&region));
    let reth = Reth::new(region.address(64), key, 4);
    peer.says_to(other, at(0), write_only(PSN, reth, b"door"));
    peer.hears(at(0), ["nak access +0"]);
    assert_eq!(region.bytes(), [0; SIZE]);
    assert!(can_write(&mut peer, key, region.address(64)));
}

#[test]
fn a_type_1_window_answers_through_every_queue_pair_of_its_domain() {
    let (mut peer, region) = with_region();
    let init = peer.init();
    let other = peer.adds(init);
    let window = window(&mut peer, WindowKind::One);
    let key = bind_one(&mut peer, window, binding(&region));
    let reth = Reth::new(region.address(64), key, 4);
    peer.says_to(other, at(0), write_only(PSN, reth, b"door").ask());
    peer.hears(at(0), ["ack +0"]);
}

#[test]
fn another_queue_pair_can_not_invalidate_a_type_2_window() {
    let (mut peer, region) = with_region();
    let init = peer.init();
    let other = peer.adds(init);
    let window = window(&mut peer, WindowKind::Two);
    let key = bind_two(&mut peer, window, binding(&region));
    let work = Work::LocalInvalidate(key);
    let request = SendRequest::new(2, work);
    peer.device.post_send(other, request).expect("it is taken");
    peer.hears_nothing(at(0));
    peer.completes([(2, Status::WindowBind)]);
    assert!(can_write(&mut peer, key, region.address(64)));
}

#[test]
fn the_windows_of_a_queue_pair_close_when_it_is_destroyed() {
    let (mut peer, region) = with_region();
    let init = peer.init();
    let other = peer.adds(init);
    let window = window(&mut peer, WindowKind::Two);
    let work = bind_under(window, chosen(window), binding(&region));
    let request = SendRequest::new(1, work);
    peer.device.post_send(other, request).expect("it is taken");
    peer.hears_nothing(at(0));
    peer.completes([(1, Status::Success)]);
    let refused = peer.device.deregister(region.key());
    assert_eq!(refused, Err(MemoryError::WindowsBound(1)));
    peer.device.destroy_queue_pair(other).expect("it ends");
    peer.deregisters(&region);
}

#[test]
fn rebinding_a_type_1_window_moves_it_and_changes_its_key() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::One);
    let first = bind_one(&mut peer, window, binding(&region));
    let mut elsewhere = binding(&region);
    elsewhere.address = region.address(128);
    let second = bind_one(&mut peer, first, elsewhere);
    assert_ne!(first, second);
    let reth = Reth::new(region.address(128), second, 4);
    peer.says(at(0), write_only(PSN, reth, b"door").ask());
    peer.hears(at(0), ["ack +0"]);
    let stale = Reth::new(region.address(64), first, 4);
    peer.says(at(0), write_only(PSN + 1, stale, b"door").ask());
    peer.hears(at(0), ["nak access +1"]);
    // One window, one binding: the first place counts no more.
    let refused = peer.device.deregister(region.key());
    assert_eq!(refused, Err(MemoryError::WindowsBound(1)));
}

#[test]
fn binding_a_type_1_window_to_nothing_closes_it() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::One);
    let key = bind_one(&mut peer, window, binding(&region));
    let mut nothing = binding(&region);
    nothing.length = 0;
    bind_one(&mut peer, key, nothing);
    peer.deregisters(&region);
}

#[test]
fn a_type_2_window_is_bound_again_only_after_it_was_invalidated() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::Two);
    let first = bind_two(&mut peer, window, binding(&region));
    does(&mut peer, Work::LocalInvalidate(first), Status::Success);
    let second = bind_two(&mut peer, first, binding(&region));
    assert_ne!(first, second);
    assert!(can_write(&mut peer, second, region.address(64)));
}

#[test]
fn what_can_not_be_bound_ends_with_a_bind_error() {
    type Spoil = fn(&mut Conversation, &Region, &mut Binding);
    let spoilt: [Spoil; 7] = [
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
                .expect("room");
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
        for spoil in spoilt {
            let (mut peer, region) = with_region();
            let window = window(&mut peer, kind);
            let mut binding = binding(&region);
            spoil(&mut peer, &region, &mut binding);
            let key = (kind == WindowKind::Two).then(|| chosen(window));
            let work = Work::BindWindow {
                window,
                key,
                binding,
            };
            does(&mut peer, work, Status::WindowBind);
            assert_eq!(peer.state(), State::Error);
        }
    }
}

#[test]
fn a_type_2_window_is_not_bound_to_nothing() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::Two);
    let mut binding = binding(&region);
    binding.length = 0;
    let work = bind_under(window, chosen(window), binding);
    does(&mut peer, work, Status::WindowBind);
}

#[test]
fn a_window_of_another_domain_opens_nothing() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::One);
    let key = bind_one(&mut peer, window, binding(&region));
    let other = peer.device.allocate_domain().expect("a domain");
    let mut init = peer.init();
    init.domain = other;
    let stranger = peer.adds(init);
    let reth = Reth::new(region.address(64), key, 4);
    peer.says_to(stranger, at(0), write_only(PSN, reth, b"door").ask());
    peer.hears(at(0), ["nak access +0"]);
    assert!(can_write(&mut peer, key, region.address(64)));
}

#[test]
fn revoking_a_region_closes_its_windows() {
    for kind in [WindowKind::One, WindowKind::Two] {
        let (mut peer, region) = with_region();
        let window = window(&mut peer, kind);
        let key = match kind {
            WindowKind::One => bind_one(&mut peer, window, binding(&region)),
            WindowKind::Two => bind_two(&mut peer, window, binding(&region)),
        };
        let refused = peer.device.deregister(region.key());
        assert_eq!(refused, Err(MemoryError::WindowsBound(1)));
        peer.device.revoke(region.key()).expect("it ends");
        assert!(!can_write(&mut peer, key, region.address(64)));
        peer.device.free_window(window).expect("it is still there");
    }
}

#[test]
fn a_window_is_bound_in_the_way_of_its_type() {
    let spoilt: [fn(Key, Key, Binding) -> Work; 3] = [
        |one, _, binding| bind_under(one, chosen(one), binding),
        |_, two, binding| Work::BindWindow {
            window: two,
            key: None,
            binding,
        },
        // A window is no region.
        |one, two, binding| {
            let region = one;
            bind_under(two, chosen(two), Binding { region, ..binding })
        },
    ];
    for make in spoilt {
        let (mut peer, region) = with_region();
        let one = window(&mut peer, WindowKind::One);
        let two = window(&mut peer, WindowKind::Two);
        let work = make(one, two, binding(&region));
        does(&mut peer, work, Status::WindowBind);
    }
}

#[test]
fn of_the_key_given_for_a_type_2_window_only_the_low_8_bits_count() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::Two);
    let given = Key::new(!window.value());
    let work = bind_under(window, given, binding(&region));
    does(&mut peer, work, Status::Success);
    let key = peer.device.window_key(window).expect("it is a window");
    assert_eq!(key.value(), window.value() ^ 0xff);
    assert!(can_write(&mut peer, key, region.address(64)));
}

#[test]
fn a_bound_type_2_window_is_not_bound_twice() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::Two);
    let key = bind_two(&mut peer, window, binding(&region));
    let again = bind_under(key, chosen(key), binding(&region));
    does(&mut peer, again, Status::WindowBind);
}

#[test]
fn a_region_with_bound_windows_is_not_deregistered() {
    for kind in [WindowKind::One, WindowKind::Two] {
        let (mut peer, region) = with_region();
        let window = window(&mut peer, kind);
        match kind {
            WindowKind::One => bind_one(&mut peer, window, binding(&region)),
            WindowKind::Two => bind_two(&mut peer, window, binding(&region)),
        };
        let refused = peer.device.deregister(region.key());
        assert_eq!(refused, Err(MemoryError::WindowsBound(1)));
        let refused = peer.device.reregister(region.key(), None, None, None);
        assert_eq!(refused, Err(MemoryError::WindowsBound(1)));
        peer.device.free_window(window).expect("the window ends");
        peer.deregisters(&region);
    }
}

#[test]
fn the_key_of_a_freed_window_opens_nothing() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::One);
    let key = bind_one(&mut peer, window, binding(&region));
    peer.device.free_window(key).expect("the window ends");
    assert_eq!(peer.device.window_key(key), None);
    let refused = peer.device.free_window(key);
    assert_eq!(refused, Err(MemoryError::UnknownKey(key)));
    assert!(!can_write(&mut peer, key, region.address(64)));
}

#[test]
fn a_window_of_another_domain_can_not_be_bound() {
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
    does(&mut peer, work, Status::WindowBind);
}

#[test]
fn a_bind_takes_its_turn_among_sends() {
    let (mut peer, region) = with_region();
    let window = window(&mut peer, WindowKind::Two);
    peer.posts(SendRequest::new(1, Work::Send).inline(b"before"));
    let work = bind_under(window, chosen(window), binding(&region));
    peer.posts(SendRequest::new(2, work));
    peer.posts(SendRequest::new(3, Work::Send).inline(b"after"));
    peer.hears(at(0), ["send Only +0 6B ask", "send Only +1 5B ask"]);
    peer.completes([]);
    peer.says(at(1), ack(PSN));
    peer.completes([(1, Status::Success), (2, Status::Success)]);
    peer.says(at(2), ack(PSN + 1));
    peer.completes([(3, Status::Success)]);
}

#[test]
fn an_unreliable_connection_binds_windows_too() {
    let mut peer = Conversation::with(Setup {
        kind: Kind::Uc,
        ..Setup::default()
    });
    let region = peer.registers(ADDRESS, &[0; SIZE]);
    let window = window(&mut peer, WindowKind::Two);
    let key = bind_two(&mut peer, window, binding(&region));
    let reth = Reth::new(region.address(64), key, 4);
    let said = Said::new(wire::Opcode::UcWriteOnly, PSN, b"door").push(&reth);
    peer.says(at(0), said);
    assert_eq!(region.bytes()[64..68], *b"door");
}

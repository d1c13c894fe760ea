//! Making, changing and destroying the objects of a device.

mod conversation;

use std::sync::Arc;

use conversation::*;
use engine::{
    Access, AsyncEvent, Attribute, Attributes, Buffer, Config, Device, Event, Extent, Kind,
    MemoryError, ModifyError, Notify, NumberSpace, ObjectError, QueuePairInit, ReceiveRequest,
    SendRequest, State, Status, WindowKind, Work,
};
use wire::{Key, PathMtu, Qpn, Reth};

fn hello(id: u64) -> SendRequest {
    SendRequest::new(id, Work::Send).inline(b"hello")
}

#[test]
fn what_others_stand_on_is_not_destroyed() {
    let mut peer = Conversation::new();
    let (domain, queue) = (peer.domain, peer.completion_queue);
    let memory = peer.registers(0x1000, &[0; 8]);
    let device = &mut peer.device;
    let window = device.allocate_window(domain, WindowKind::One).expect("it");
    assert_eq!(device.free_domain(domain), Err(ObjectError::InUse(3)));
    // One queue pair, with its sends and with its receives.
    assert_eq!(
        device.destroy_completion_queue(queue),
        Err(ObjectError::InUse(2))
    );
    device.destroy_queue_pair(peer.number).expect("it ends");
    device.destroy_completion_queue(queue).expect("it ends");
    device.deregister(memory.key()).expect("it ends");
    assert_eq!(device.free_domain(domain), Err(ObjectError::InUse(1)));
    device.free_window(window).expect("it ends");
    device.free_domain(domain).expect("it ends");
    assert_eq!(device.free_domain(domain), Err(ObjectError::Unknown));
    assert_eq!((device.memory_count(), device.queue_pair_count()), (0, 0));
}

#[test]
fn an_xrc_domain_is_not_closed_under_its_queues() {
    let mut peer = Conversation::new();
    let xrc = peer.device.open_xrc_domain().expect("an XRC domain");
    let mut init = peer.init();
    init.kind = Kind::XrcTarget;
    init.xrc_domain = Some(xrc);
    let target = peer.device.create_queue_pair(init).expect("a target");
    let refused = peer.device.close_xrc_domain(xrc);
    assert_eq!(refused, Err(ObjectError::InUse(1)));
    peer.device.destroy_queue_pair(target).expect("it ends");
    peer.device.close_xrc_domain(xrc).expect("it ends");
}

#[test]
fn objects_that_do_not_exist_can_not_be_used() {
    let mut peer = Conversation::new();
    let gone = peer.device.allocate_domain().expect("a domain");
    peer.device.free_domain(gone).expect("it ends");
    let buffer = Buffer::zeroed(8);
    let refused = peer.device.register(gone, buffer, 0, Access::empty());
    assert_eq!(refused, Err(MemoryError::UnknownDomain));
    let init = QueuePairInit::new(Kind::Rc, gone, peer.completion_queue);
    let refused = peer.device.create_queue_pair(init);
    assert_eq!(refused, Err(ObjectError::Unknown));
    let nobody = Qpn::new(0x777);
    let refused = peer.device.destroy_queue_pair(nobody);
    assert_eq!(refused, Err(ObjectError::Unknown));
    let refused = peer.device.modify(nobody, &Attributes::default());
    assert_eq!(refused, Err(ModifyError::Unknown));
}

#[test]
fn sizes_are_limited() {
    let mut peer = Conversation::new();
    for capacity in [0, (1 << 22) + 1] {
        let refused = peer.device.create_completion_queue(capacity);
        assert!(matches!(refused, Err(ObjectError::OutOfRange { .. })));
    }
    let spoilt: [fn(&mut QueuePairInit); 5] = [
        |init| init.max_sends = (1 << 20) + 1,
        |init| init.max_receives = (1 << 20) + 1,
        |init| init.max_send_segments = 33,
        |init| init.max_receive_segments = 33,
        |init| init.max_inline = (1 << 16) + 1,
    ];
    for spoil in spoilt {
        let mut init = peer.init();
        spoil(&mut init);
        let refused = peer.device.create_queue_pair(init);
        assert!(matches!(refused, Err(ObjectError::OutOfRange { .. })));
    }
    let mut init = peer.init();
    init.kind = Kind::XrcTarget;
    let refused = peer.device.create_queue_pair(init);
    assert!(matches!(refused, Err(ObjectError::Mismatch(_))));
}

fn with_numbers(first: u32, count: u32, seed: u8) -> (Device, QueuePairInit) {
    let mut device = Device::new(Config {
        numbers: NumberSpace { first, count },
        seed: [seed; 32],
        ..Config::default()
    });
    let domain = device.allocate_domain().expect("a domain");
    let queue = device.create_completion_queue(8).expect("a queue");
    (device, QueuePairInit::new(Kind::Rc, domain, queue))
}

#[test]
fn a_device_has_half_as_many_queue_pairs_as_it_has_numbers() {
    for (first, count, most) in [(128, 64, 32), (0, 8, 3), (0xff_fff0, 16, 7), (100, 1, 1)] {
        let (mut device, init) = with_numbers(first, count, 0);
        assert_eq!(device.max_queue_pairs(), most);
        for _ in 0..most {
            let number = device.create_queue_pair(init).expect("a number").value();
            assert!((first..first + count).contains(&number));
            assert!(![0, 1, 0xff_ffff].contains(&number));
        }
        let refused = device.create_queue_pair(init);
        assert_eq!(refused, Err(ObjectError::Exhausted));
        assert_eq!(device.queue_pair_count(), most as usize);
    }
}

#[test]
fn queue_pair_numbers_are_drawn_from_the_whole_space_by_the_seed() {
    let draw = |seed| {
        let (mut device, init) = with_numbers(1 << 18, 1 << 18, seed);
        let numbers = (0..64).map(|_| device.create_queue_pair(init).expect("a number").value());
        numbers.collect::<Vec<u32>>()
    };
    let numbers = draw(1);
    assert_eq!(numbers, draw(1));
    assert_ne!(numbers, draw(2));
    let varying = numbers
        .iter()
        .fold(0, |seen, number| seen | number ^ numbers[0]);
    assert_eq!(varying, (1 << 18) - 1);
}

#[test]
fn a_number_rests_before_it_is_used_again() {
    let (mut device, init) = with_numbers(64, 64, 0);
    let mut last: Vec<u32> = Vec::new();
    for _ in 0..1000 {
        let number = device.create_queue_pair(init).expect("a number");
        // An eighth of the numbers rests.
        let recent = last.iter().rev().take(8);
        assert!(!recent.copied().any(|before| before == number.value()));
        last.push(number.value());
        device.destroy_queue_pair(number).expect("it ends");
        assert!(device.queue_pair(number).is_none());
    }
    last.sort_unstable();
    last.dedup();
    assert_eq!(last.len(), 64);
}

#[test]
fn late_packets_of_a_destroyed_queue_pair_find_nobody() {
    let mut peer = Conversation::new();
    let old = peer.number;
    peer.device.destroy_queue_pair(old).expect("it ends");
    let init = peer.init();
    let new = peer.adds(init);
    assert_ne!(new, old);
    peer.says_to(old, at(1), send_only(PSN, b"late").ask());
    peer.hears_nothing(at(1));
    assert_eq!(peer.counters().unknown_queue_pair, 1);
}

#[test]
fn destroying_a_queue_pair_forgets_its_requests_completions_and_packets() {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 64]);
    let init = peer.init();
    let other = peer.adds(init);
    let request = ReceiveRequest::new(7, [inbox.all()]);
    peer.device.post_receive(other, request).expect("room");
    peer.receives(1, &inbox);
    peer.receives(2, &inbox);
    peer.says_to(other, at(1), send_only(PSN, b"kept"));
    peer.says(at(1), send_only(PSN, b"forgotten").ask());
    peer.posts(hello(3));
    peer.device
        .destroy_queue_pair(peer.number)
        .expect("it ends");
    peer.hears_nothing(at(10_000));
    peer.completes([(7, Status::Success)]);
}

fn overrun(completions: u32) -> (Conversation, Region) {
    let mut peer = Conversation::with(Setup {
        completions,
        ..Setup::default()
    });
    let inbox = peer.registers(0x1000, &[0; 64]);
    for id in 1..=3 {
        peer.receives(id, &inbox);
    }
    (peer, inbox)
}

#[test]
fn a_completion_queue_that_overruns_raises_an_event_and_breaks_its_queue_pairs() {
    let (mut peer, _) = overrun(1);
    let bystander_queue = peer.device.create_completion_queue(8).expect("a queue");
    let mut init = peer.init();
    init.send_completions = bystander_queue;
    init.receive_completions = bystander_queue;
    let bystander = peer.adds(init);
    init.receive_completions = peer.completion_queue;
    let victim = peer.adds(init);
    peer.says(at(1), send_only(PSN, b"fits"));
    assert_eq!(peer.state(), State::ReadyToSend);
    peer.says(at(1), send_only(PSN + 1, b"overruns"));
    let queue = peer.completion_queue;
    peer.raises([AsyncEvent::CompletionQueueError(queue)]);
    assert_eq!(peer.state(), State::Error);
    let state = |number| peer.device.queue_pair(number).expect("it").state();
    assert_eq!(state(victim), State::Error);
    assert_eq!(state(bystander), State::ReadyToSend);
    // What was there before is not lost.
    peer.completes([(1, Status::Success)]);
    peer.raises([]);
}

#[test]
fn an_overrun_by_work_that_sends_nothing_breaks_its_queue_pairs_too() {
    let mut peer = Conversation::with(Setup {
        completions: 1,
        ..Setup::default()
    });
    let region = peer.registers(0x1000, &[0; 64]);
    for id in 1..=2 {
        let window = peer
            .device
            .allocate_window(peer.domain, WindowKind::One)
            .expect("a window");
        let binding = engine::Binding {
            region: region.key(),
            address: region.address(0),
            length: 8,
            access: Access::REMOTE_READ,
        };
        let work = Work::BindWindow {
            window,
            key: None,
            binding,
        };
        peer.posts(SendRequest::new(id, work));
    }
    peer.hears_nothing(at(0));
    let queue = peer.completion_queue;
    peer.raises([AsyncEvent::CompletionQueueError(queue)]);
    assert_eq!(peer.state(), State::Error);
}

#[test]
fn a_completion_queue_is_resized_but_not_below_what_waits_in_it() {
    let (mut peer, _) = overrun(2);
    peer.says(at(1), send_only(PSN, b"one"));
    peer.says(at(1), send_only(PSN + 1, b"two"));
    let queue = peer.completion_queue;
    let refused = peer.device.resize_completion_queue(queue, 1);
    assert!(matches!(refused, Err(ObjectError::Mismatch(_))));
    peer.device
        .resize_completion_queue(queue, 3)
        .expect("larger");
    peer.says(at(1), send_only(PSN + 2, b"three"));
    peer.raises([]);
    assert_eq!(peer.completions().len(), 3);
    peer.device
        .resize_completion_queue(queue, 1)
        .expect("smaller");
    let view = peer.device.completion_queue(queue).expect("it");
    assert_eq!((view.capacity(), view.len()), (1, 0));
    let refused = peer.device.resize_completion_queue(queue, 0);
    assert!(matches!(refused, Err(ObjectError::OutOfRange { .. })));
}

#[test]
fn a_watch_ends_with_one_completion_and_leaves_the_notification_alone() {
    let (mut peer, _) = overrun(8);
    let queue = peer.completion_queue;
    peer.arms(Notify::Solicited);
    peer.device.watch_completions(queue);
    peer.device.watch_completions(queue);
    peer.says(at(1), send_only(PSN, b"one"));
    assert_eq!(peer.events(), [Event::Filled(queue)]);
    peer.says(at(2), send_only(PSN + 1, b"two"));
    assert_eq!(peer.events(), []);
}

#[test]
fn a_notification_comes_once_for_what_completes_after_arming() {
    let (mut peer, _) = overrun(8);
    peer.says(at(1), send_only(PSN, b"before"));
    peer.arms(Notify::Any);
    // What is there already does not count: poll once more after arming.
    assert_eq!(peer.events(), []);
    peer.says(at(2), send_only(PSN + 1, b"after"));
    assert_eq!(peer.events(), [Event::Completion(peer.completion_queue)]);
    peer.says(at(3), send_only(PSN + 2, b"again"));
    assert_eq!(peer.events(), []);
}

fn modified(kind: Kind, state: State, attributes: Attributes) -> Result<(), ModifyError> {
    let mut peer = Conversation::with(Setup {
        kind,
        state,
        ..Setup::default()
    });
    peer.device.modify(peer.number, &attributes)
}

/// Takes one attribute away.
type Less = fn(&mut Attributes);

#[test]
fn a_modify_that_lacks_an_attribute_names_it() {
    let setup = Setup::default();
    let takes_away: [(Less, Attribute); 6] = [
        (|it| it.path = None, Attribute::PATH),
        (|it| it.path_mtu = None, Attribute::PATH_MTU),
        (|it| it.destination = None, Attribute::DESTINATION),
        (|it| it.receive_psn = None, Attribute::RECEIVE_PSN),
        (|it| it.rnr_timer = None, Attribute::RNR_TIMER),
        (
            |it| it.responder_resources = None,
            Attribute::RESPONDER_RESOURCES,
        ),
    ];
    for (take_away, missing) in takes_away {
        let mut attributes = setup.ready_to_receive(Kind::Rc);
        take_away(&mut attributes);
        let error = modified(Kind::Rc, State::Initialized, attributes);
        let (from, to) = (State::Initialized, State::ReadyToReceive);
        assert_eq!(error, Err(ModifyError::Missing { from, to, missing }));
    }
    let takes_away: [(Less, Attribute); 5] = [
        (|it| it.send_psn = None, Attribute::SEND_PSN),
        (|it| it.ack_timeout = None, Attribute::ACK_TIMEOUT),
        (|it| it.retry_count = None, Attribute::RETRY_COUNT),
        (|it| it.rnr_retry = None, Attribute::RNR_RETRY),
        (|it| it.initiator_depth = None, Attribute::INITIATOR_DEPTH),
    ];
    for (take_away, missing) in takes_away {
        let mut attributes = setup.ready_to_send(Kind::Rc);
        take_away(&mut attributes);
        let error = modified(Kind::Rc, State::ReadyToReceive, attributes);
        let (from, to) = (State::ReadyToReceive, State::ReadyToSend);
        assert_eq!(error, Err(ModifyError::Missing { from, to, missing }));
    }
}

#[test]
fn a_modify_that_makes_no_sense_says_why_and_changes_nothing() {
    let to = |state| Attributes {
        state: Some(state),
        ..Attributes::default()
    };
    let error = modified(Kind::Rc, State::Reset, to(State::ReadyToSend));
    assert!(matches!(error, Err(ModifyError::IllegalTransition { .. })));
    let believes = Attributes {
        current_state: Some(State::Initialized),
        ..to(State::Error)
    };
    let error = modified(Kind::Rc, State::ReadyToSend, believes);
    assert_eq!(error, Err(ModifyError::OtherState(State::ReadyToSend)));
    let surplus = Attributes {
        retry_count: Some(1),
        ..to(State::ReadyToSend)
    };
    let error = modified(Kind::Rc, State::ReadyToSend, surplus);
    assert!(matches!(error, Err(ModifyError::NotAllowed { .. })));
    let mut unreachable = Setup::default().ready_to_receive(Kind::Rc);
    unreachable.path = Some(engine::Address::new(gid(PEER_ADDRESS), 3));
    let error = modified(Kind::Rc, State::Initialized, unreachable);
    assert!(matches!(error, Err(ModifyError::Path(_))));
}

#[test]
fn a_queue_pair_that_has_not_begun_does_not_break() {
    for (state, then) in [
        (State::Reset, State::Reset),
        (State::Initialized, State::Error),
        (State::ReadyToSend, State::Error),
    ] {
        let mut peer = Conversation::with(Setup {
            state,
            ..Setup::default()
        });
        assert_eq!(peer.device.break_queue_pair(peer.number), Ok(()));
        assert_eq!(peer.state(), then);
    }
}

#[test]
fn values_out_of_range_are_named() {
    let setup = Setup::default();
    let out = |attribute| Err(ModifyError::OutOfRange { attribute });
    let mut attributes = setup.initialized(Kind::Rc);
    attributes.port = Some(2);
    let error = modified(Kind::Rc, State::Reset, attributes);
    assert_eq!(error, out(Attribute::PORT));
    attributes.port = Some(1);
    attributes.partition_index = Some(1);
    let error = modified(Kind::Rc, State::Reset, attributes);
    assert_eq!(error, out(Attribute::PARTITION));
    let mut attributes = setup.ready_to_send(Kind::Rc);
    attributes.retry_count = Some(8);
    let error = modified(Kind::Rc, State::ReadyToReceive, attributes);
    assert_eq!(error, out(Attribute::RETRY_COUNT));
    attributes.retry_count = Some(7);
    attributes.rnr_retry = Some(8);
    let error = modified(Kind::Rc, State::ReadyToReceive, attributes);
    assert_eq!(error, out(Attribute::RNR_RETRY));
    let mut small = Setup::default();
    small.config.active_mtu = PathMtu::Mtu1024;
    small.state = State::Initialized;
    let mut attributes = small.ready_to_receive(Kind::Rc);
    attributes.path_mtu = Some(PathMtu::Mtu2048);
    let mut peer = Conversation::with(small);
    let error = peer.device.modify(peer.number, &attributes);
    assert_eq!(error, out(Attribute::PATH_MTU));
    assert_eq!(peer.state(), State::Initialized);
}

#[test]
fn a_query_gives_back_what_was_modified() {
    let peer = Conversation::new();
    let attributes = peer
        .device
        .queue_pair(peer.number)
        .expect("it")
        .attributes();
    assert_eq!(attributes.state, Some(State::ReadyToSend));
    assert_eq!(attributes.destination, Some(PEER));
    assert_eq!(attributes.send_psn, Some(PSN));
    assert_eq!(attributes.retry_count, Some(peer.setup().retry_count));
}

#[test]
fn access_can_be_taken_back_while_running() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; 64]);
    let reth = Reth::new(memory.address(0), memory.key(), 4);
    peer.says(at(1), write_only(PSN, reth, b"then").ask());
    peer.hears(at(1), ["ack +0"]);
    peer.modifies(Attributes {
        access: Some(Access::REMOTE_READ),
        ..Attributes::default()
    });
    peer.says(at(2), write_only(PSN + 1, reth, b"now!").ask());
    peer.hears(at(2), ["nak invalid +1"]);
    assert_eq!(memory.first(4), b"then");
}

#[test]
fn device_memory_begins_at_nought_and_is_copied_in_and_out() {
    let mut peer = Conversation::new();
    let (buffer, registration) = peer
        .device
        .register_device_memory(peer.domain, 64, everything())
        .expect("device memory");
    assert_eq!((registration.address, registration.length), (0, 64));
    let reth = Reth::new(8, registration.remote_key, 5);
    peer.says(at(1), write_only(PSN, reth, b"hello").ask());
    peer.hears(at(1), ["ack +0"]);
    let mut out = [0; 5];
    buffer.read(8, &mut out);
    assert_eq!(&out, b"hello");
    buffer.write(8, b"adieu");
    peer.says(at(2), read_request(PSN + 1, reth));
    assert_eq!(peer.listens(at(2))[0].payload(), b"adieu");
}

#[test]
fn memory_is_registered_again_in_place_and_keeps_its_key() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; 64]);
    let other = Buffer::zeroed(128);
    let place = (Extent::from(Arc::clone(&other)), 0x5000);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    peer.device
        .reregister(memory.key(), None, Some(place), Some(access))
        .expect("it moves");
    let reth = Reth::new(0x5000 + 100, memory.key(), 4);
    peer.says(at(1), write_only(PSN, reth, b"here").ask());
    peer.hears(at(1), ["ack +0"]);
    assert_eq!(other.to_vec()[100..104], *b"here");
    peer.says(at(2), read_request(PSN + 1, reth));
    peer.hears(at(2), ["nak access +1"]);
}

#[test]
fn memory_that_moves_to_another_domain_leaves_the_first() {
    let mut peer = Conversation::new();
    let allocate = |peer: &mut Conversation| peer.device.allocate_domain().expect("a domain");
    let (from, to) = (allocate(&mut peer), allocate(&mut peer));
    let registration = peer
        .device
        .register(from, Buffer::zeroed(8), 0, Access::LOCAL_WRITE)
        .expect("room");
    let key = registration.local_key;
    peer.device
        .reregister(key, Some(to), None, None)
        .expect("it moves");
    assert_eq!(peer.device.free_domain(from), Ok(()));
    let refused = peer.device.free_domain(to);
    assert_eq!(refused, Err(ObjectError::InUse(1)));
    peer.device.deregister(key).expect("it ends");
    assert_eq!(peer.device.free_domain(to), Ok(()));
}

#[test]
fn registrations_that_make_no_sense_are_refused() {
    let mut peer = Conversation::new();
    let domain = peer.domain;
    let mut register = |address, access| {
        let buffer = Buffer::zeroed(64);
        peer.device.register(domain, buffer, address, access)
    };
    let refused = register(0, Access::REMOTE_WRITE);
    assert_eq!(refused, Err(MemoryError::NeedsLocalWrite));
    let refused = register(0, Access::REMOTE_ATOMIC);
    assert_eq!(refused, Err(MemoryError::NeedsLocalWrite));
    let refused = register(u64::MAX - 63, Access::empty());
    assert!(matches!(refused, Err(MemoryError::AddressOverflow { .. })));
    assert!(register(u64::MAX - 64, Access::empty()).is_ok());
    let refused = peer.device.deregister(Key::new(0));
    assert_eq!(refused, Err(MemoryError::UnknownKey(Key::new(0))));
}

// In user space all memory is pageable: on demand is how it always is.
#[test]
fn memory_registered_on_demand_is_like_any_other() {
    let mut peer = Conversation::new();
    let hints = Access::ON_DEMAND | Access::HUGE_PAGES | Access::RELAXED_ORDERING;
    let memory = peer.registers_for(0x1000, &[0; 64], everything() | hints);
    let reth = Reth::new(memory.address(0), memory.key(), 4);
    peer.says(at(1), write_only(PSN, reth, b"page").ask());
    peer.hears(at(1), ["ack +0"]);
    assert_eq!(memory.first(4), b"page");
}

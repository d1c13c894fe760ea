//! Creation, modification and destruction of the objects of a device.

mod conversation;

use std::sync::Arc;

use conversation::*;
use engine::{
    Access, AsyncEvent, Attribute, Attributes, Buffer, Config, Device, Event, Extent, MemoryError,
    ModifyError, Notify, ObjectError, QpnRange, QueuePairInit, QueuePairType, ReceiveRequest,
    SendRequest, SharedReceiveInit, State, Status, WindowKind, Work,
};
use wire::{Key, PathMtu, Qpn, Reth};

fn hello(id: u64) -> SendRequest {
    SendRequest::new(id, Work::Send).inline(b"hello")
}

#[test]
fn object_in_use_is_not_destroyed() {
    let mut peer = Conversation::new();
    let (domain, queue) = (peer.domain, peer.completion_queue);
    let memory = peer.registers(0x1000, &[0; 8]);
    let device = &mut peer.device;
    let window = device
        .allocate_window(domain, WindowKind::One)
        .expect("the object exists");
    assert_eq!(device.free_domain(domain), Err(ObjectError::InUse(3)));
    // One queue pair, which uses the queue for its sends and for its receives.
    assert_eq!(
        device.destroy_completion_queue(queue),
        Err(ObjectError::InUse(2))
    );
    device
        .destroy_queue_pair(peer.number)
        .expect("nothing uses the object");
    device
        .destroy_completion_queue(queue)
        .expect("nothing uses the object");
    device
        .deregister(memory.key())
        .expect("nothing uses the object");
    assert_eq!(device.free_domain(domain), Err(ObjectError::InUse(1)));
    device.free_window(window).expect("nothing uses the object");
    device.free_domain(domain).expect("nothing uses the object");
    assert_eq!(device.free_domain(domain), Err(ObjectError::Unknown));
    assert_eq!((device.memory_count(), device.queue_pair_count()), (0, 0));
}

#[test]
fn xrc_domain_in_use_is_not_closed() {
    let mut peer = Conversation::new();
    let xrc = peer.device.open_xrc_domain().expect("an XRC domain");
    let mut init = peer.init();
    init.kind = QueuePairType::XrcTarget;
    init.xrc_domain = Some(xrc);
    let target = peer.device.create_queue_pair(init).expect("a target");
    let rejected = peer.device.close_xrc_domain(xrc);
    assert_eq!(rejected, Err(ObjectError::InUse(1)));
    peer.device
        .destroy_queue_pair(target)
        .expect("nothing uses the object");
    peer.device
        .close_xrc_domain(xrc)
        .expect("nothing uses the object");
}

#[test]
fn objects_of_a_shared_receive_queue_are_not_destroyed() {
    let mut peer = Conversation::new();
    let device = &mut peer.device;
    let domain = device.allocate_domain().expect("a domain");
    let xrc = device.open_xrc_domain().expect("an XRC domain");
    let completions = device.create_completion_queue(4).expect("a queue");
    let init = SharedReceiveInit {
        domain,
        capacity: 4,
        max_segments: 1,
        xrc: Some((xrc, completions)),
    };
    let shared = device.create_shared_receive_queue(init).expect("a queue");
    let in_use = Err(ObjectError::InUse(1));
    assert_eq!(device.free_domain(domain), in_use);
    assert_eq!(device.close_xrc_domain(xrc), in_use);
    assert_eq!(device.destroy_completion_queue(completions), in_use);
    device
        .destroy_shared_receive_queue(shared)
        .expect("nothing uses the object");
    assert_eq!(device.free_domain(domain), Ok(()));
    assert_eq!(device.close_xrc_domain(xrc), Ok(()));
    assert_eq!(device.destroy_completion_queue(completions), Ok(()));
}

#[test]
fn objects_that_do_not_exist_cannot_be_used() {
    let mut peer = Conversation::new();
    let freed = peer.device.allocate_domain().expect("a domain");
    peer.device
        .free_domain(freed)
        .expect("nothing uses the object");
    let buffer = Buffer::zeroed(8);
    let rejected = peer.device.register(freed, buffer, 0, Access::empty());
    assert_eq!(rejected, Err(MemoryError::UnknownDomain));
    let init = QueuePairInit::new(QueuePairType::Rc, freed, peer.completion_queue);
    let rejected = peer.device.create_queue_pair(init);
    assert_eq!(rejected, Err(ObjectError::Unknown));
    let missing = Qpn::new(0x777);
    let rejected = peer.device.destroy_queue_pair(missing);
    assert_eq!(rejected, Err(ObjectError::Unknown));
    let rejected = peer.device.modify(missing, &Attributes::default());
    assert_eq!(rejected, Err(ModifyError::Unknown));
}

#[test]
fn sizes_are_limited() {
    let mut peer = Conversation::new();
    for capacity in [0, (1 << 22) + 1] {
        let rejected = peer.device.create_completion_queue(capacity);
        assert!(matches!(rejected, Err(ObjectError::OutOfRange { .. })));
    }
    let invalid: [fn(&mut QueuePairInit); 5] = [
        |init| init.max_sends = (1 << 20) + 1,
        |init| init.max_receives = (1 << 20) + 1,
        |init| init.max_send_segments = 33,
        |init| init.max_receive_segments = 33,
        |init| init.max_inline = (1 << 16) + 1,
    ];
    for make_invalid in invalid {
        let mut init = peer.init();
        make_invalid(&mut init);
        let rejected = peer.device.create_queue_pair(init);
        assert!(matches!(rejected, Err(ObjectError::OutOfRange { .. })));
    }
    let mut init = peer.init();
    init.kind = QueuePairType::XrcTarget;
    let rejected = peer.device.create_queue_pair(init);
    assert!(matches!(rejected, Err(ObjectError::Mismatch(_))));
}

fn with_numbers(first: u32, count: u32, seed: u8) -> (Device, QueuePairInit) {
    let mut device = Device::new(Config {
        numbers: QpnRange { first, count },
        seed: [seed; 32],
        ..Config::default()
    });
    let domain = device.allocate_domain().expect("a domain");
    let queue = device.create_completion_queue(8).expect("a queue");
    (device, QueuePairInit::new(QueuePairType::Rc, domain, queue))
}

#[test]
fn device_has_half_as_many_queue_pairs_as_it_has_numbers() {
    for (first, count, most) in [(128, 64, 32), (0, 8, 3), (0xff_fff0, 16, 7), (100, 1, 1)] {
        let (mut device, init) = with_numbers(first, count, 0);
        assert_eq!(device.max_queue_pairs(), most);
        for _ in 0..most {
            let number = device.create_queue_pair(init).expect("a number").value();
            assert!((first..first + count).contains(&number));
            assert!(![0, 1, 0xff_ffff].contains(&number));
        }
        let rejected = device.create_queue_pair(init);
        assert_eq!(rejected, Err(ObjectError::Exhausted));
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
fn released_number_is_quarantined_before_it_is_used_again() {
    let (mut device, init) = with_numbers(64, 64, 0);
    let mut last: Vec<u32> = Vec::new();
    for _ in 0..1000 {
        let number = device.create_queue_pair(init).expect("a number");
        // An eighth of the numbers is quarantined.
        let recent = last.iter().rev().take(8);
        assert!(!recent.copied().any(|before| before == number.value()));
        last.push(number.value());
        device
            .destroy_queue_pair(number)
            .expect("nothing uses the object");
        assert!(device.queue_pair(number).is_none());
    }
    last.sort_unstable();
    last.dedup();
    assert_eq!(last.len(), 64);
}

#[test]
fn late_packets_of_a_destroyed_queue_pair_are_dropped() {
    let mut peer = Conversation::new();
    let old = peer.number;
    peer.device
        .destroy_queue_pair(old)
        .expect("nothing uses the object");
    let init = peer.init();
    let new = peer.adds(init);
    assert_ne!(new, old);
    peer.sends_to(old, at(1), send_only(PSN, b"late").ackreq());
    peer.receives_nothing(at(1));
    assert_eq!(peer.counters().unknown_queue_pair, 1);
}

#[test]
fn destroying_a_queue_pair_discards_its_requests_completions_and_packets() {
    let mut peer = Conversation::new();
    let inbox = peer.registers(0x1000, &[0; 64]);
    let init = peer.init();
    let other = peer.adds(init);
    let request = ReceiveRequest::new(7, [inbox.all()]);
    peer.device
        .post_receive(other, request)
        .expect("the queue has room");
    peer.posts_receive(1, &inbox);
    peer.posts_receive(2, &inbox);
    peer.sends_to(other, at(1), send_only(PSN, b"kept"));
    peer.sends(at(1), send_only(PSN, b"forgotten").ackreq());
    peer.posts(hello(3));
    peer.device
        .destroy_queue_pair(peer.number)
        .expect("nothing uses the object");
    peer.receives_nothing(at(10_000));
    peer.completes([(7, Status::Success)]);
}

fn overrun(completions: u32) -> (Conversation, Region) {
    let mut peer = Conversation::with(Setup {
        completions,
        ..Setup::default()
    });
    let inbox = peer.registers(0x1000, &[0; 64]);
    for id in 1..=3 {
        peer.posts_receive(id, &inbox);
    }
    (peer, inbox)
}

#[test]
fn overrun_completion_queue_raises_an_event_and_moves_its_queue_pairs_to_error() {
    let (mut peer, _) = overrun(1);
    let other_queue = peer.device.create_completion_queue(8).expect("a queue");
    let mut init = peer.init();
    init.send_completions = other_queue;
    init.receive_completions = other_queue;
    let bystander = peer.adds(init);
    init.receive_completions = peer.completion_queue;
    let victim = peer.adds(init);
    peer.sends(at(1), send_only(PSN, b"fits"));
    assert_eq!(peer.state(), State::ReadyToSend);
    peer.sends(at(1), send_only(PSN + 1, b"overruns"));
    let queue = peer.completion_queue;
    peer.raises([AsyncEvent::CompletionQueueError(queue)]);
    assert_eq!(peer.state(), State::Error);
    let state = |number| {
        peer.device
            .queue_pair(number)
            .expect("the object exists")
            .state()
    };
    assert_eq!(state(victim), State::Error);
    assert_eq!(state(bystander), State::ReadyToSend);
    // Earlier completions are not lost.
    peer.completes([(1, Status::Success)]);
    peer.raises([]);
}

#[test]
fn overrun_by_local_work_moves_the_queue_pairs_to_error() {
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
    peer.receives_nothing(at(0));
    let queue = peer.completion_queue;
    peer.raises([AsyncEvent::CompletionQueueError(queue)]);
    assert_eq!(peer.state(), State::Error);
}

#[test]
fn completion_queue_cannot_be_resized_below_its_length() {
    let (mut peer, _) = overrun(2);
    peer.sends(at(1), send_only(PSN, b"one"));
    peer.sends(at(1), send_only(PSN + 1, b"two"));
    let queue = peer.completion_queue;
    let rejected = peer.device.resize_completion_queue(queue, 1);
    assert!(matches!(rejected, Err(ObjectError::Mismatch(_))));
    peer.device
        .resize_completion_queue(queue, 3)
        .expect("a larger size is possible");
    peer.sends(at(1), send_only(PSN + 2, b"three"));
    peer.raises([]);
    assert_eq!(peer.completions().len(), 3);
    peer.device
        .resize_completion_queue(queue, 1)
        .expect("the completions fit");
    let view = peer
        .device
        .completion_queue(queue)
        .expect("the object exists");
    assert_eq!((view.capacity(), view.len()), (1, 0));
    let rejected = peer.device.resize_completion_queue(queue, 0);
    assert!(matches!(rejected, Err(ObjectError::OutOfRange { .. })));
}

#[test]
fn watch_ends_with_one_completion_and_leaves_the_notification_alone() {
    let (mut peer, _) = overrun(8);
    let queue = peer.completion_queue;
    peer.arms(Notify::Solicited);
    peer.device.watch_completions(queue);
    peer.device.watch_completions(queue);
    peer.sends(at(1), send_only(PSN, b"one"));
    assert_eq!(peer.events(), [Event::CompletionAdded(queue)]);
    peer.sends(at(2), send_only(PSN + 1, b"two"));
    assert_eq!(peer.events(), []);
}

#[test]
fn armed_queue_notifies_once_for_a_later_completion() {
    let (mut peer, _) = overrun(8);
    peer.arms(Notify::Any);
    assert_eq!(peer.events(), []);
    peer.sends(at(1), send_only(PSN, b"after"));
    assert_eq!(peer.events(), [Event::Completion(peer.completion_queue)]);
    peer.sends(at(2), send_only(PSN + 1, b"again"));
    assert_eq!(peer.events(), []);
}

/// Some programs sleep after arming, without another poll.
#[test]
fn arming_notifies_at_once_for_a_completion_that_is_not_polled() {
    let (mut peer, _) = overrun(8);
    peer.sends(at(1), send_only(PSN, b"before"));
    peer.arms(Notify::Solicited);
    assert_eq!(peer.events(), []);
    peer.arms(Notify::Any);
    assert_eq!(peer.events(), [Event::Completion(peer.completion_queue)]);
    peer.sends(at(2), send_only(PSN + 1, b"after").solicited());
    assert_eq!(peer.events(), []);
    let queue = peer.completion_queue;
    assert!(peer.device.poll_completion(queue).is_some());
    peer.arms(Notify::Solicited);
    assert_eq!(peer.events(), [Event::Completion(queue)]);
    peer.completion();
    peer.arms(Notify::Any);
    assert_eq!(peer.events(), []);
}

fn modified(kind: QueuePairType, state: State, attributes: Attributes) -> Result<(), ModifyError> {
    let mut peer = Conversation::with(Setup {
        kind,
        state,
        ..Setup::default()
    });
    peer.device.modify(peer.number, &attributes)
}

/// Removes one attribute.
type Without = fn(&mut Attributes);

// IBA 11.2.4.2
#[test]
fn modify_without_a_required_attribute_names_it() {
    let setup = Setup::default();
    let takes_away: [(Without, Attribute); 6] = [
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
        let mut attributes = setup.ready_to_receive(QueuePairType::Rc);
        take_away(&mut attributes);
        let error = modified(QueuePairType::Rc, State::Initialized, attributes);
        let (from, to) = (State::Initialized, State::ReadyToReceive);
        assert_eq!(error, Err(ModifyError::Missing { from, to, missing }));
    }
    let takes_away: [(Without, Attribute); 5] = [
        (|it| it.send_psn = None, Attribute::SEND_PSN),
        (|it| it.ack_timeout = None, Attribute::ACK_TIMEOUT),
        (|it| it.retry_count = None, Attribute::RETRY_COUNT),
        (|it| it.rnr_retry = None, Attribute::RNR_RETRY),
        (|it| it.initiator_depth = None, Attribute::INITIATOR_DEPTH),
    ];
    for (take_away, missing) in takes_away {
        let mut attributes = setup.ready_to_send(QueuePairType::Rc);
        take_away(&mut attributes);
        let error = modified(QueuePairType::Rc, State::ReadyToReceive, attributes);
        let (from, to) = (State::ReadyToReceive, State::ReadyToSend);
        assert_eq!(error, Err(ModifyError::Missing { from, to, missing }));
    }
}

// IBA 11.2.4.2
#[test]
fn invalid_modify_is_rejected_with_a_reason_and_changes_nothing() {
    let to = |state| Attributes {
        state: Some(state),
        ..Attributes::default()
    };
    let error = modified(QueuePairType::Rc, State::Reset, to(State::ReadyToSend));
    assert!(matches!(error, Err(ModifyError::IllegalTransition { .. })));
    let believes = Attributes {
        current_state: Some(State::Initialized),
        ..to(State::Error)
    };
    let error = modified(QueuePairType::Rc, State::ReadyToSend, believes);
    assert_eq!(error, Err(ModifyError::OtherState(State::ReadyToSend)));
    let knows = Attributes {
        current_state: Some(State::Initialized),
        ..to(State::Error)
    };
    let error = modified(QueuePairType::Rc, State::Initialized, knows);
    assert!(matches!(error, Err(ModifyError::NotAllowed { .. })));
    let surplus = Attributes {
        retry_count: Some(1),
        ..to(State::ReadyToSend)
    };
    let error = modified(QueuePairType::Rc, State::ReadyToSend, surplus);
    assert!(matches!(error, Err(ModifyError::NotAllowed { .. })));
    let mut unreachable = Setup::default().ready_to_receive(QueuePairType::Rc);
    unreachable.path = Some(engine::Address::new(gid(PEER_ADDRESS), 3));
    let error = modified(QueuePairType::Rc, State::Initialized, unreachable);
    assert!(matches!(error, Err(ModifyError::Path(_))));
}

// IBA 10.3.1
#[test]
fn queue_pair_in_reset_does_not_go_to_error() {
    for (state, then) in [
        (State::Reset, State::Reset),
        (State::Initialized, State::Error),
        (State::ReadyToSend, State::Error),
    ] {
        let mut peer = Conversation::with(Setup {
            state,
            ..Setup::default()
        });
        assert_eq!(peer.device.move_to_error(peer.number), Ok(()));
        assert_eq!(peer.state(), then);
    }
}

#[test]
fn out_of_range_values_are_rejected_by_name() {
    let setup = Setup::default();
    let out = |attribute| Err(ModifyError::OutOfRange { attribute });
    let mut attributes = setup.initialized(QueuePairType::Rc);
    attributes.port = Some(2);
    let error = modified(QueuePairType::Rc, State::Reset, attributes);
    assert_eq!(error, out(Attribute::PORT));
    attributes.port = Some(1);
    attributes.partition_index = Some(1);
    let error = modified(QueuePairType::Rc, State::Reset, attributes);
    assert_eq!(error, out(Attribute::PARTITION));
    let mut attributes = setup.ready_to_send(QueuePairType::Rc);
    attributes.retry_count = Some(8);
    let error = modified(QueuePairType::Rc, State::ReadyToReceive, attributes);
    assert_eq!(error, out(Attribute::RETRY_COUNT));
    attributes.retry_count = Some(7);
    attributes.rnr_retry = Some(8);
    let error = modified(QueuePairType::Rc, State::ReadyToReceive, attributes);
    assert_eq!(error, out(Attribute::RNR_RETRY));
    let mut small = Setup::default();
    small.config.active_mtu = PathMtu::Mtu1024;
    small.state = State::Initialized;
    let mut attributes = small.ready_to_receive(QueuePairType::Rc);
    attributes.path_mtu = Some(PathMtu::Mtu2048);
    let mut peer = Conversation::with(small);
    let error = peer.device.modify(peer.number, &attributes);
    assert_eq!(error, out(Attribute::PATH_MTU));
    assert_eq!(peer.state(), State::Initialized);
}

#[test]
fn query_returns_the_modified_attributes() {
    let peer = Conversation::new();
    let attributes = peer
        .device
        .queue_pair(peer.number)
        .expect("the object exists")
        .attributes();
    assert_eq!(attributes.state, Some(State::ReadyToSend));
    assert_eq!(attributes.destination, Some(PEER));
    assert_eq!(attributes.send_psn, Some(PSN));
    assert_eq!(attributes.retry_count, Some(peer.setup().retry_count));
}

#[test]
fn psns_advance_with_packets() {
    let mut peer = Conversation::new();
    let psns = |peer: &Conversation| {
        let queue_pair = peer.device.queue_pair(peer.number);
        queue_pair.expect("the object exists").next_psns()
    };
    assert_eq!(psns(&peer), (PSN, PSN));
    let memory = peer.registers(0x1000, &[0; 64]);
    let reth = Reth::new(memory.address(0), memory.key(), 4);
    peer.sends(at(1), write_only(PSN, reth, b"then").ackreq());
    peer.receives(at(1), ["ack +0"]);
    assert_eq!(psns(&peer), (PSN + 1, PSN));
}

#[test]
fn access_can_be_removed_in_ready_to_send() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; 64]);
    let reth = Reth::new(memory.address(0), memory.key(), 4);
    peer.sends(at(1), write_only(PSN, reth, b"then").ackreq());
    peer.receives(at(1), ["ack +0"]);
    peer.modifies(Attributes {
        access: Some(Access::REMOTE_READ),
        ..Attributes::default()
    });
    peer.sends(at(2), write_only(PSN + 1, reth, b"now!").ackreq());
    peer.receives(at(2), ["nak invalid +1"]);
    assert_eq!(memory.first(4), b"then");
}

#[test]
fn device_memory_starts_at_address_0_and_is_copied_in_and_out() {
    let mut peer = Conversation::new();
    let (buffer, registration) = peer
        .device
        .register_device_memory(peer.domain, 64, all_access())
        .expect("device memory");
    assert_eq!((registration.address, registration.length), (0, 64));
    let reth = Reth::new(8, registration.remote_key, 5);
    peer.sends(at(1), write_only(PSN, reth, b"hello").ackreq());
    peer.receives(at(1), ["ack +0"]);
    let mut out = [0; 5];
    buffer.read(8, &mut out);
    assert_eq!(&out, b"hello");
    buffer.write(8, b"adieu");
    peer.sends(at(2), read_request(PSN + 1, reth));
    assert_eq!(peer.received(at(2))[0].payload(), b"adieu");
}

#[test]
fn reregistered_memory_keeps_its_key() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; 64]);
    let other = Buffer::zeroed(128);
    let place = (Extent::from(Arc::clone(&other)), 0x5000);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    peer.device
        .reregister(memory.key(), None, Some(place), Some(access))
        .expect("the region has no windows");
    let reth = Reth::new(0x5000 + 100, memory.key(), 4);
    peer.sends(at(1), write_only(PSN, reth, b"here").ackreq());
    peer.receives(at(1), ["ack +0"]);
    assert_eq!(other.to_vec()[100..104], *b"here");
    peer.sends(at(2), read_request(PSN + 1, reth));
    peer.receives(at(2), ["nak access +1"]);
}

#[test]
fn reregistering_in_another_domain_releases_the_first() {
    let mut peer = Conversation::new();
    let allocate = |peer: &mut Conversation| peer.device.allocate_domain().expect("a domain");
    let (from, to) = (allocate(&mut peer), allocate(&mut peer));
    let registration = peer
        .device
        .register(from, Buffer::zeroed(8), 0, Access::LOCAL_WRITE)
        .expect("the queue has room");
    let key = registration.local_key;
    peer.device
        .reregister(key, Some(to), None, None)
        .expect("the region has no windows");
    assert_eq!(peer.device.free_domain(from), Ok(()));
    let rejected = peer.device.free_domain(to);
    assert_eq!(rejected, Err(ObjectError::InUse(1)));
    peer.device
        .deregister(key)
        .expect("nothing uses the object");
    assert_eq!(peer.device.free_domain(to), Ok(()));
}

#[test]
fn invalid_registrations_are_rejected() {
    let mut peer = Conversation::new();
    let domain = peer.domain;
    let mut register = |address, access| {
        let buffer = Buffer::zeroed(64);
        peer.device.register(domain, buffer, address, access)
    };
    let rejected = register(0, Access::REMOTE_WRITE);
    assert_eq!(rejected, Err(MemoryError::NeedsLocalWrite));
    let rejected = register(0, Access::REMOTE_ATOMIC);
    assert_eq!(rejected, Err(MemoryError::NeedsLocalWrite));
    let rejected = register(u64::MAX - 63, Access::empty());
    assert!(matches!(rejected, Err(MemoryError::AddressOverflow { .. })));
    assert!(register(u64::MAX - 64, Access::empty()).is_ok());
    let rejected = peer.device.deregister(Key::new(0));
    assert_eq!(rejected, Err(MemoryError::UnknownKey(Key::new(0))));
}

// In user space all memory is pageable, so on-demand paging has no effect.
#[test]
fn on_demand_memory_behaves_like_other_memory() {
    let mut peer = Conversation::new();
    let hints = Access::ON_DEMAND | Access::HUGE_PAGES | Access::RELAXED_ORDERING;
    let memory = peer.registers_for(0x1000, &[0; 64], all_access() | hints);
    let reth = Reth::new(memory.address(0), memory.key(), 4);
    peer.sends(at(1), write_only(PSN, reth, b"page").ackreq());
    peer.receives(at(1), ["ack +0"]);
    assert_eq!(memory.first(4), b"page");
}

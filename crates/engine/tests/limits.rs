//! The limits of a device: each limit can be reached, and one more object is rejected.

mod conversation;

use conversation::*;
use engine::{
    Access, Address, AddressError, Attribute, Attributes, Buffer, Config, Device, Limits,
    MAX_COMPLETIONS, MAX_INLINE, MAX_MESSAGE, MAX_REQUESTS, MAX_SEGMENTS, MemoryError, ModifyError,
    MulticastError, ObjectError, PostError, ProtectionDomain, QpnRange, QueuePairInit,
    QueuePairType, ReceiveRequest, Segment, SendRequest, SharedReceiveInit, State, WindowKind,
    Work,
};
use wire::{Gid, Key};

/// Each limit has a different value, so that a mix-up is detected.
const LIMITS: Limits = Limits {
    domains: 3,
    xrc_domains: 4,
    completion_queues: 5,
    shared_receive_queues: 6,
    memory_regions: 7,
    memory_windows: 8,
    address_handles: 9,
    multicast_groups: 10,
    group_members: 11,
    group_memberships: 15,
};

fn small() -> (Device, engine::Id<ProtectionDomain>) {
    let mut device = Device::new(Config {
        gids: vec![gid(PEER_ADDRESS)],
        numbers: QpnRange {
            first: 0x100,
            count: 32,
        },
        limits: LIMITS,
        ..Config::default()
    });
    assert_eq!(*device.limits(), LIMITS);
    let domain = device.allocate_domain().expect("a domain");
    (device, domain)
}

/// Creates `max` objects, fails to create one more, and succeeds after the first is destroyed.
fn check_limit<T, E: std::fmt::Debug + PartialEq>(
    device: &mut Device,
    max: u32,
    error: E,
    make: impl Fn(&mut Device) -> Result<T, E>,
    destroy: impl Fn(&mut Device, T),
) {
    let mut made: Vec<T> = (0..max)
        .map(|number| match make(device) {
            Ok(made) => made,
            Err(error) => panic!("{number} of {max}: {error:?}"),
        })
        .collect();
    assert_eq!(make(device).err(), Some(error));
    destroy(device, made.remove(0));
    assert!(make(device).is_ok(), "destroying one makes room");
}

#[test]
fn object_counts_are_limited() {
    let (mut device, domain) = small();
    let device = &mut device;
    // One domain exists already, and every limit is counted separately.
    let full = ObjectError::Exhausted;
    let queue = device.create_completion_queue(8).expect("a queue");
    check_limit(
        device,
        LIMITS.completion_queues - 1,
        full,
        |device| device.create_completion_queue(8),
        |device, id| {
            device
                .destroy_completion_queue(id)
                .expect("nothing uses it");
        },
    );
    let init = QueuePairInit::new(QueuePairType::Rc, domain, queue);
    assert_eq!(device.max_queue_pairs(), 16);
    check_limit(
        device,
        device.max_queue_pairs(),
        full,
        |device| device.create_queue_pair(init),
        |device, number| device.destroy_queue_pair(number).expect("nothing uses it"),
    );
    let init = SharedReceiveInit {
        domain,
        capacity: 1,
        max_segments: 1,
        xrc: None,
    };
    check_limit(
        device,
        LIMITS.shared_receive_queues,
        full,
        |device| device.create_shared_receive_queue(init),
        |device, id| {
            device
                .destroy_shared_receive_queue(id)
                .expect("nothing uses it");
        },
    );
    check_limit(
        device,
        LIMITS.xrc_domains,
        full,
        Device::open_xrc_domain,
        |device, id| device.close_xrc_domain(id).expect("nothing uses it"),
    );
    check_limit(
        device,
        LIMITS.domains - 1,
        full,
        Device::allocate_domain,
        |device, id| device.free_domain(id).expect("nothing uses it"),
    );
}

#[test]
fn regions_and_windows_have_separate_limits() {
    let (mut device, domain) = small();
    let full = MemoryError::Exhausted;
    let access = Access::LOCAL_WRITE;
    check_limit(
        &mut device,
        LIMITS.memory_regions,
        full,
        |device| device.register(domain, Buffer::zeroed(8), 0, access),
        |device, region| {
            device
                .deregister(region.local_key)
                .expect("nothing uses it");
        },
    );
    check_limit(
        &mut device,
        LIMITS.memory_windows,
        full,
        |device| device.allocate_window(domain, WindowKind::Two),
        |device, window| device.free_window(window).expect("nothing uses it"),
    );
    let max = LIMITS.memory_regions + LIMITS.memory_windows;
    assert_eq!(device.memory_count(), max as usize);
}

#[test]
fn address_handles_are_limited() {
    let (mut device, _) = small();
    let address = Address::new(gid(PEER_ADDRESS), 0);
    check_limit(
        &mut device,
        LIMITS.address_handles,
        AddressError::Exhausted,
        |device| device.create_address_handle(&address),
        |device, ()| device.destroy_address_handle(),
    );
    let nowhere = Address::new(gid(PEER_ADDRESS), 5);
    let rejected = device.create_address_handle(&nowhere);
    assert_eq!(rejected, Err(AddressError::EmptySourceIndex(5)));
}

#[test]
fn multicast_groups_and_their_members_are_limited() {
    let (mut device, domain) = small();
    let queue = device.create_completion_queue(8).expect("a queue");
    let init = QueuePairInit::new(QueuePairType::Ud, domain, queue);
    let members: Vec<_> = (0..LIMITS.group_members + 1)
        .map(|_| device.create_queue_pair(init).expect("a queue pair"))
        .collect();
    let group = |number: u32| {
        let mut bytes = [0; 16];
        bytes[0] = 0xff;
        bytes[12..].copy_from_slice(&number.to_be_bytes());
        Gid::from_bytes(bytes)
    };
    let first = members[0];
    for number in 0..LIMITS.multicast_groups {
        assert_eq!(device.attach_multicast(first, group(number)), Ok(()));
    }
    let full = Err(MulticastError::Exhausted);
    let one_more = group(LIMITS.multicast_groups);
    assert_eq!(device.attach_multicast(first, one_more), full);
    for number in 0..LIMITS.multicast_groups {
        device
            .detach_multicast(first, group(number))
            .expect("the queue pair is a member");
    }
    let (last, max) = members.split_last().expect("some");
    for member in max {
        assert_eq!(device.attach_multicast(*member, group(0)), Ok(()));
    }
    assert_eq!(device.attach_multicast(*last, group(0)), full);
    assert_eq!(
        device.attach_multicast(first, group(0)),
        Ok(()),
        "joining twice is allowed"
    );
    // Eleven memberships exist; four more make fifteen.
    for member in &max[..4] {
        assert_eq!(device.attach_multicast(*member, group(1)), Ok(()));
    }
    assert_eq!(device.attach_multicast(max[5], group(1)), full);
}

#[test]
fn queue_sizes_are_limited_to_the_announced_maximum() {
    let (mut device, domain) = small();
    let queue = device.create_completion_queue(MAX_COMPLETIONS);
    let queue = queue.expect("the announced size is possible");
    let too_large = |rejected| matches!(rejected, Err(ObjectError::OutOfRange { .. }));
    let rejected = device.create_completion_queue(MAX_COMPLETIONS + 1);
    assert!(too_large(rejected.map(drop)));
    assert!(too_large(
        device.resize_completion_queue(queue, MAX_COMPLETIONS + 1)
    ));
    let largest = QueuePairInit {
        max_sends: MAX_REQUESTS,
        max_receives: MAX_REQUESTS,
        max_send_segments: MAX_SEGMENTS,
        max_receive_segments: MAX_SEGMENTS,
        max_inline: MAX_INLINE,
        ..QueuePairInit::new(QueuePairType::Rc, domain, queue)
    };
    device
        .create_queue_pair(largest)
        .expect("the announced sizes are possible");
    let invalid: [fn(&mut QueuePairInit); 5] = [
        |init| init.max_sends += 1,
        |init| init.max_receives += 1,
        |init| init.max_send_segments += 1,
        |init| init.max_receive_segments += 1,
        |init| init.max_inline += 1,
    ];
    for make_invalid in invalid {
        let mut init = largest;
        make_invalid(&mut init);
        assert!(too_large(device.create_queue_pair(init).map(drop)));
    }
    let largest = SharedReceiveInit {
        domain,
        capacity: MAX_REQUESTS,
        max_segments: MAX_SEGMENTS,
        xrc: None,
    };
    let shared = device.create_shared_receive_queue(largest);
    let shared = shared.expect("the announced sizes are possible");
    let rejected = device.resize_shared_receive_queue(shared, MAX_REQUESTS + 1);
    assert!(too_large(rejected));
    for make_invalid in [
        |init: &mut SharedReceiveInit| init.capacity += 1,
        |init: &mut SharedReceiveInit| init.max_segments += 1,
    ] {
        let mut init = largest;
        make_invalid(&mut init);
        let rejected = device.create_shared_receive_queue(init);
        assert!(too_large(rejected.map(drop)));
    }
}

#[test]
fn segments_and_inline_bytes_are_limited_by_the_queue() {
    let mut peer = Conversation::new();
    let memory = peer.registers(0x1000, &[0; 64]);
    let init = QueuePairInit {
        max_sends: 2,
        max_receives: 2,
        max_send_segments: 3,
        max_receive_segments: 4,
        max_inline: 5,
        ..peer.init()
    };
    let number = peer.adds(init);
    let device = &mut peer.device;
    let segments = |count| vec![memory.segment(0, 1); count];
    let send = |count| SendRequest::new(1, Work::Send).with(segments(count));
    let rejected = device.post_send(number, send(4));
    assert_eq!(rejected, Err(PostError::TooManySegments { max: 3 }));
    let inline = SendRequest::new(1, Work::Send).inline(b"123456");
    let rejected = device.post_send(number, inline);
    assert_eq!(rejected, Err(PostError::InlineTooLong { max: 5 }));
    let inline = SendRequest::new(1, Work::Send).inline(b"12345");
    assert_eq!(device.post_send(number, inline), Ok(()));
    assert_eq!(device.post_send(number, send(3)), Ok(()));
    assert_eq!(device.post_send(number, send(3)), Err(PostError::QueueFull));
    let receive = |count| ReceiveRequest::new(1, segments(count));
    let rejected = device.post_receive(number, receive(5));
    assert_eq!(rejected, Err(PostError::TooManySegments { max: 4 }));
    assert_eq!(device.post_receive(number, receive(4)), Ok(()));
    assert_eq!(device.post_receive(number, receive(4)), Ok(()));
    assert_eq!(
        device.post_receive(number, receive(4)),
        Err(PostError::QueueFull)
    );
}

#[test]
fn message_length_is_limited_to_2_to_the_31_bytes() {
    let mut peer = Conversation::new();
    let init = QueuePairInit {
        max_send_segments: 2,
        ..peer.init()
    };
    let number = peer.adds(init);
    let part = |length| Segment {
        address: 0,
        length,
        key: Key::new(1),
    };
    let half = (MAX_MESSAGE / 2) as u32;
    let send = |last| SendRequest::new(1, Work::Send).with([part(half), part(last)]);
    let rejected = peer.device.post_send(number, send(half + 1));
    assert_eq!(rejected, Err(PostError::MessageTooLong));
    assert_eq!(peer.device.post_send(number, send(half)), Ok(()));
}

#[test]
fn outstanding_reads_are_limited_to_the_announced_maximum() {
    let setup = Setup::default();
    let max = Config::default().max_responder_resources;
    let resources = |count| Attributes {
        responder_resources: Some(count),
        ..setup.ready_to_receive(QueuePairType::Rc)
    };
    let depth = |count| Attributes {
        initiator_depth: Some(count),
        ..setup.ready_to_send(QueuePairType::Rc)
    };
    let mut peer = Conversation::new();
    let number = peer
        .device
        .create_queue_pair(peer.init())
        .expect("a queue pair");
    let mut modify = |attributes: &Attributes| peer.device.modify(number, attributes);
    modify(&setup.initialized(QueuePairType::Rc)).expect("Init");
    let rejected = |attribute| Err(ModifyError::OutOfRange { attribute });
    assert_eq!(
        modify(&resources(max + 1)),
        rejected(Attribute::RESPONDER_RESOURCES)
    );
    assert_eq!(modify(&resources(max)), Ok(()));
    assert_eq!(
        modify(&depth(max + 1)),
        rejected(Attribute::INITIATOR_DEPTH)
    );
    assert_eq!(modify(&depth(max)), Ok(()));
    let state = peer
        .device
        .queue_pair(number)
        .expect("the queue pair exists")
        .state();
    assert_eq!(state, State::ReadyToSend);
}

//! The whole device over real sockets: two addresses of this machine.

mod support;

use std::thread;
use std::time::{Duration, Instant};

use rocinante::{
    Access, AckTimeout, AddressHandle, CompletedWork, ConnectOptions, JoinGroupError,
    MulticastError, Notify, OpenOptions, QueueKey, Request, State, Status, WindowKind,
};
use support::{ALL, ConnectedPair, End, TIMEOUT};

#[test]
fn send_reaches_the_next_receive() {
    let pair = ConnectedPair::connected("127.51.1.1", "127.51.1.2");
    let room = pair.right.memory.slice(100..200);
    pair.from_right.post_receive(7, [room]).expect("room");
    let request = Request::send_with_immediate(*b"imm!").inline(b"hello");
    pair.from_left.post_send(request.id(3)).expect("room");

    let received = pair.right.success();
    assert_eq!((received.id, received.length), (7, 5));
    assert_eq!(received.immediate, Some(*b"imm!"));
    assert_eq!(pair.right.memory.to_vec(100..105), b"hello");
    assert_eq!(pair.left.success().id, 3);
}

#[test]
fn an_unsignaled_request_has_no_completion() {
    let pair = ConnectedPair::connected("127.51.34.1", "127.51.34.2");
    let write = |id| {
        let request = Request::write(pair.right.memory.remote(0));
        request.inline(b"data").id(id)
    };
    pair.from_left
        .post_send(write(1).unsignaled())
        .expect("room");
    pair.from_left.post_send(write(2)).expect("room");
    assert_eq!(pair.left.success().id, 2);
}

#[test]
fn receives_complete_in_the_queue_that_was_chosen_for_them() {
    let end = End::at("127.51.35.1", &OpenOptions::default());
    let receives = end.context.create_completion_queue(4).expect("room");
    let builder = end.domain.queue_pair_builder(&end.completions);
    let builder = builder.receive_completions(&receives);
    // The builder and the queue pair keep it.
    drop(receives);
    let prepared = builder.create_reliable().expect("room");
    let myself = prepared.endpoint();
    let queue_pair = prepared.connect(myself).expect("a peer");
    let room = end.memory.slice(0..8);
    queue_pair.post_receive(7, [room]).expect("room");
    queue_pair
        .post_send(Request::send().inline(b"data").id(3))
        .expect("room");
    assert_eq!(end.success().id, 3, "not the receive");
}

#[test]
fn write_and_read_move_a_megabyte() {
    let pair = ConnectedPair::connected("127.51.2.1", "127.51.2.2");
    for length in [1, 4095, 4096, 4097, 65_536, 1 << 20] {
        pair.write_and_compare(length);
    }
    pair.left.memory.write(0, &[0; 4096]);
    let request = Request::read(pair.right.memory.remote(0));
    let whole = pair.left.memory.all();
    pair.from_left.post_send(request.data(whole)).expect("room");
    pair.left.success();
    assert!(pair.left.memory.to_vec(0..1 << 20) == pair.right.memory.to_vec(0..1 << 20));
}

#[test]
fn a_target_is_served_while_its_application_sleeps() {
    let pair = ConnectedPair::connected("127.51.3.1", "127.51.3.2");
    // Longer than the maximum poll back-off.
    thread::sleep(Duration::from_millis(30));
    for _ in 0..50 {
        pair.write_and_compare(10_000);
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_acknowledgement_that_waits_is_sent_before_its_queue_pair_is_destroyed() {
    // The ACK timeout is longer than the test, so no retransmission hides a missing acknowledgement.
    let connect_options = ConnectOptions {
        ack_timeout: AckTimeout::new(24).expect("a five-bit code"),
        ..ConnectOptions::default()
    };
    let [left, right] =
        ["127.51.19.1", "127.51.19.2"].map(|address| End::at(address, &OpenOptions::default()));
    for round in 0..20 {
        let (here, there) = (
            left.prepare(connect_options),
            right.prepare(connect_options),
        );
        let (our_end, their_end) = (here.endpoint(), there.endpoint());
        let from_left = here.connect(their_end).expect("a peer");
        let from_right = there.connect(our_end).expect("a peer");
        let room = right.memory.slice(0..8);
        from_right.post_receive(round, [room]).expect("room");
        from_left
            .post_send(Request::send().inline(b"last"))
            .expect("room");
        // The poll that returns the message defers its acknowledgement.
        while right.completions.poll().is_none() {}
        drop(from_right);
        left.success();
    }
}

#[test]
fn a_poll_for_no_completions_takes_none() {
    let pair = ConnectedPair::connected("127.51.20.1", "127.51.20.2");
    for id in 0..2 {
        let request = Request::write(pair.right.memory.remote(0)).inline(b"one");
        pair.from_left.post_send(request.id(id)).expect("room");
    }
    let queue = &pair.left.completions;
    let mut found = Vec::new();
    while found.is_empty() {
        assert_eq!(queue.poll_many(&mut found, 0), 0);
        assert!(found.is_empty());
        queue.poll_many(&mut found, 1);
    }
    assert_eq!(queue.poll_many(&mut found, 0), 0);
    while found.len() < 2 {
        queue.poll_many(&mut found, 16);
    }
    let ids: Vec<_> = found.iter().map(|completion| completion.id).collect();
    assert_eq!(ids, [0, 1]);
}

#[test]
fn acknowledgements_do_not_wait_for_an_idle_application() {
    // The ACK timeout is longer than the test, so no retransmission hides a missing acknowledgement.
    let connect_options = ConnectOptions {
        ack_timeout: AckTimeout::new(24).expect("a five-bit code"),
        ..ConnectOptions::default()
    };
    let pair = ConnectedPair::with(
        "127.51.13.1",
        "127.51.13.2",
        &OpenOptions::default(),
        connect_options,
    );
    let is_late = |_: &i32| {
        let room = pair.right.memory.slice(0..64);
        pair.from_right.post_receive(0, [room]).expect("room");
        let request = Request::send().inline(b"hello");
        pair.from_left.post_send(request).expect("room");
        // This end makes no further call until the peer has its acknowledgement.
        while pair.right.completions.poll().is_none() {}
        let received = Instant::now();
        pair.left.success();
        received.elapsed() > Duration::from_millis(50)
    };
    // A busy machine may make some late, but not most. What is overdue is sent again, and acknowledged as a duplicate.
    assert!((0..100).filter(is_late).count() < 50);
    let counters = pair.left.context.counters().expect("ours");
    assert!(counters.retransmitted < 50, "{counters:?}");
}

#[test]
fn atomics_change_device_memory() {
    let pair = ConnectedPair::connected("127.51.4.1", "127.51.4.2");
    let on_device = pair
        .right
        .domain
        .allocate_device_memory(128 << 10, ALL)
        .expect("room");
    on_device.write(64, &41_u64.to_ne_bytes());
    let result = pair.left.memory.slice(0..8);
    let was = || u64::from_ne_bytes(pair.left.memory.to_vec(0..8).try_into().expect("eight"));

    let add = Request::fetch_add(on_device.remote(64), 1).data(result);
    pair.from_left.post_send(add).expect("room");
    assert_eq!(pair.left.success().work, CompletedWork::FetchAdd);
    assert_eq!(was(), 41);

    let swap = Request::compare_swap(on_device.remote(64), 42, 7).data(result);
    pair.from_left.post_send(swap).expect("room");
    pair.left.success();
    assert_eq!(was(), 42);
    assert_eq!(on_device.to_vec(64..72), 7_u64.to_ne_bytes());
}

#[test]
fn a_wrong_key_ends_the_connection_on_both_sides() {
    let pair = ConnectedPair::connected("127.51.5.1", "127.51.5.2");
    let mut remote = pair.right.memory.remote(0);
    remote.key = rocinante::Key::new(remote.key.value() ^ 1);
    let request = Request::write(remote).inline(b"no");
    pair.from_left.post_send(request).expect("room");
    let completion = pair.left.completions.wait_for(TIMEOUT).expect("it ends");
    assert_eq!(completion.status, Status::RemoteAccess);
    assert_eq!(pair.from_left.state(), State::Error);
    let event = pair.right.context.wait_event(TIMEOUT);
    let number = pair.from_right.number();
    assert_eq!(event, Some(rocinante::AsyncEvent::AccessError(number)));
}

#[test]
fn unanswered_request_fails_with_status_12() {
    let connect_options = ConnectOptions {
        retry_count: 2,
        ack_timeout: AckTimeout::new(10).expect("a code"),
        ..ConnectOptions::default()
    };
    let options = OpenOptions::default();
    let pair = ConnectedPair::with("127.51.6.1", "127.51.6.2", &options, connect_options);
    let ConnectedPair {
        left,
        right,
        from_left,
        from_right,
    } = pair;
    drop((from_right, right));
    let begin = Instant::now();
    from_left
        .post_send(Request::send().inline(b"anybody?"))
        .expect("room");
    let completion = left.completions.wait_for(TIMEOUT).expect("it ends");
    assert_eq!(completion.status, Status::RetriesExhausted);
    // Three times 4.2 ms, and not for ever.
    assert!(begin.elapsed() >= Duration::from_millis(12));
    assert_eq!(left.context.counters().expect("ours").timeouts, 3);
}

#[test]
fn channel_wakes_every_waiter_and_loses_no_notification() {
    let pair = ConnectedPair::connected("127.51.7.1", "127.51.7.2");
    let channel = pair
        .right
        .context
        .create_completion_channel()
        .expect("room");
    let queue = channel.create_completion_queue(64).expect("room");
    let builder = pair.right.domain.queue_pair_builder(&queue);
    let (here, there) = (
        pair.left.prepare(ConnectOptions::default()),
        builder.create_reliable().expect("room"),
    );
    let (our_end, their_end) = (here.endpoint(), there.endpoint());
    let (here, there) = (
        here.connect(their_end).expect("a peer"),
        there.connect(our_end).expect("a peer"),
    );
    let rounds = 2000;
    thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..rounds {
                here.post_send(Request::send().inline(b"ring").id(id))
                    .expect("room");
                pair.left.success();
            }
        });
        for id in 0..8 {
            let room = pair.right.memory.slice(0..64);
            there.post_receive(id, [room]).expect("room");
        }
        let mut received = 0;
        while received < rounds {
            queue.arm(Notify::Any);
            while let Some(completion) = queue.poll() {
                assert_eq!(completion.status, Status::Success);
                received += 1;
                let room = pair.right.memory.slice(0..64);
                there.post_receive(received, [room]).expect("room");
            }
            if received < rounds {
                let token = channel.wait_for(TIMEOUT).expect("a wakeup");
                assert_eq!(token, queue.token());
            }
        }
    });
}

#[test]
fn datagrams_reach_their_queue_pair() {
    let options = OpenOptions::default();
    let (left, right) = (
        End::at("127.51.8.1", &options),
        End::at("127.51.8.2", &options),
    );
    let key = QueueKey::new(0x1234);
    let sender = left
        .domain
        .queue_pair_builder(&left.completions)
        .create_datagram(key);
    let sender = sender.expect("room");
    let receiver = right
        .domain
        .queue_pair_builder(&right.completions)
        .create_datagram(key);
    let receiver = receiver.expect("room");
    let room = right.memory.slice(0..1024);
    receiver.post_receive(1, [room]).expect("room");
    let there = receiver.endpoint();
    let handle = AddressHandle::new(&left.context, there.gid, 0, there.queue_pair, key);
    let request = Request::send().inline(b"datagram");
    sender
        .post_send(&handle.expect("an address"), request)
        .expect("room");
    left.success();
    let received = right.success();
    assert_eq!(received.length, 48);
    assert_eq!(right.memory.to_vec(40..48), b"datagram");
    let source = received.source.expect("datagrams have one");
    assert_eq!(source.queue_pair, sender.endpoint().queue_pair);
    assert_eq!(source.gid, sender.endpoint().gid);
}

#[test]
fn multicast_reaches_members_of_the_group_only() {
    let options = OpenOptions::default();
    let (left, right) = (
        End::at("127.51.10.1", &options),
        End::at("127.51.10.2", &options),
    );
    let key = QueueKey::new(0x77);
    let make = |end: &End| {
        let builder = end.domain.queue_pair_builder(&end.completions);
        let made = builder.create_datagram(key).expect("room");
        made.post_receive(1, [end.memory.slice(0..1024)])
            .expect("room");
        made
    };
    let (sender, member, stranger) = (make(&left), make(&right), make(&right));
    // Of this process alone: another run on the same machine would be heard too.
    let [.., high, low] = std::process::id().to_be_bytes();
    let group = rocinante::Gid::from(std::net::IpAddr::from([239, 51, high, low]));
    member.join(group).expect("a multicast address");
    let handle = AddressHandle::new(&left.context, group, 0, rocinante::Qpn::MULTICAST, key);
    let handle = handle.expect("an address");
    let request = Request::send().inline(b"to all");
    sender.post_send(&handle, request.clone()).expect("room");
    left.success();
    let received = right.success();
    assert_eq!(received.queue_pair, member.endpoint().queue_pair);
    assert_ne!(received.queue_pair, stranger.endpoint().queue_pair);
    assert_eq!(right.memory.to_vec(40..46), b"to all");

    member.leave(group).expect("it is in the group");
    sender.post_send(&handle, request).expect("room");
    left.success();
    let nothing = right.completions.wait_for(Duration::from_millis(50));
    assert_eq!(nothing, None);

    member.join(group).expect("a multicast address");
    member
        .post_receive(2, [right.memory.slice(0..1024)])
        .expect("room");
    sender
        .post_send(&handle, Request::send().inline(b"again"))
        .expect("room");
    left.success();
    assert_eq!(right.success().queue_pair, member.endpoint().queue_pair);

    stranger.join(group).expect("a multicast address");
    member
        .post_receive(3, [right.memory.slice(0..1024)])
        .expect("room");
    member.leave(group).expect("it is in the group");
    sender
        .post_send(&handle, Request::send().inline(b"others"))
        .expect("room");
    left.success();
    assert_eq!(right.success().queue_pair, stranger.endpoint().queue_pair);
    let nothing = right.completions.wait_for(Duration::from_millis(50));
    assert_eq!(nothing, None, "it has left");
}

/// Whether the kernel receives an IPv4 group for some socket.
fn is_received(group: [u8; 4]) -> bool {
    let groups = std::fs::read_to_string("/proc/net/igmp").expect("Linux lists them");
    groups.contains(&format!("{:08X}", u32::from_le_bytes(group)))
}

#[test]
fn the_kernel_receives_a_group_until_its_last_member_leaves_or_is_dropped() {
    let end = End::at("127.51.11.1", &OpenOptions::default());
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = [239, 52, high, low];
    let group = rocinante::Gid::from(std::net::IpAddr::from(address));
    let make = || {
        let builder = end.domain.queue_pair_builder(&end.completions);
        builder.create_datagram(QueueKey::new(0x77)).expect("room")
    };
    let (first, second) = (make(), make());
    assert!(!is_received(address));
    first.join(group).expect("a multicast address");
    second.join(group).expect("a multicast address");
    first.leave(group).expect("it is in the group");
    assert!(is_received(address), "the second is in it");
    drop(second);
    assert!(!is_received(address));
}

#[test]
fn a_queue_pair_that_could_not_join_a_group_is_not_in_it() {
    let end = End::at("127.51.11.9", &OpenOptions::default());
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = [239, 53, high, low];
    let group = rocinante::Gid::from(std::net::IpAddr::from(address));
    let make = || {
        let builder = end.domain.queue_pair_builder(&end.completions);
        builder.create_datagram(QueueKey::new(0x77)).expect("room")
    };
    let (first, second) = (make(), make());
    let taken = std::net::UdpSocket::bind((std::net::Ipv4Addr::from(address), 4791))
        .expect("nobody else has the group");
    let refused = first.join(group).expect_err("its port is taken");
    assert!(matches!(refused, JoinGroupError::Socket(_)), "{refused:?}");
    drop(taken);
    second.join(group).expect("a multicast address");
    let left = first.leave(group);
    assert_eq!(left, Err(MulticastError::NotMember(group)));
    assert!(is_received(address), "the second is in it");
}

#[test]
fn a_window_opens_a_part_of_a_region() {
    let pair = ConnectedPair::connected("127.51.9.1", "127.51.9.2");
    let window = pair
        .right
        .domain
        .allocate_memory_window(WindowKind::Two)
        .expect("room");
    let bind = Request::bind_window(&window, &pair.right.memory, 100..200, Access::REMOTE_WRITE);
    pair.from_right.post_send(bind).expect("room");
    assert_eq!(pair.right.success().work, CompletedWork::BindWindow);
    let remote = rocinante::RemoteMemory {
        key: window.remote_key(),
        ..pair.right.memory.remote(100)
    };
    pair.from_left
        .post_send(Request::write(remote).inline(b"through the window"))
        .expect("room");
    pair.left.success();
    assert_eq!(pair.right.memory.to_vec(100..118), b"through the window");
}

/// Otherwise the window's key would reach memory that its owner believes closed.
#[test]
fn dropping_a_region_closes_the_windows_bound_to_it() {
    let pair = ConnectedPair::connected("127.51.10.1", "127.51.10.2");
    let right = &pair.right;
    let region = right.domain.allocate_memory(4096, ALL).expect("room");
    let window = right
        .domain
        .allocate_memory_window(WindowKind::Two)
        .expect("room");
    let bind = Request::bind_window(&window, &region, 0..4096, Access::REMOTE_WRITE);
    pair.from_right.post_send(bind).expect("room");
    right.success();
    let remote = rocinante::RemoteMemory {
        key: window.remote_key(),
        ..region.remote(0)
    };
    drop(region);
    let late = Request::write(remote).inline(b"late");
    pair.from_left.post_send(late).expect("room");
    let completion = pair.left.completions.wait();
    assert_eq!(completion.status, Status::RemoteAccess);
}

#[test]
fn registering_more_memory_than_there_is_fails() {
    let options = OpenOptions::default();
    let end = End::at("127.51.12.1", &options);
    let refused = end.domain.allocate_memory(1 << 46, Access::LOCAL_WRITE);
    assert!(refused.is_err());
}

#[test]
fn one_extended_connection_fills_two_receive_queues() {
    let options = OpenOptions::default();
    let (left, right) = (
        End::at("127.51.11.1", &options),
        End::at("127.51.11.2", &options),
    );
    let xrc = right.context.open_xrc_domain().expect("room");
    let make = || {
        let queue = right
            .domain
            .create_xrc_receive_queue(&xrc, &right.completions, 16, 1);
        queue.expect("room")
    };
    let (first, second) = (make(), make());
    let builder = |end: &End| end.domain.queue_pair_builder(&end.completions);
    let initiator = builder(&left).create_xrc_initiator().expect("room");
    let target = builder(&right).create_xrc_target(&xrc).expect("room");
    let (our_end, their_end) = (initiator.endpoint(), target.endpoint());
    let initiator = initiator.connect(their_end).expect("a peer");
    let _target = target.connect(our_end).expect("a peer");
    first
        .post_receive(1, [right.memory.slice(0..64)])
        .expect("room");
    second
        .post_receive(2, [right.memory.slice(64..128)])
        .expect("room");
    for (queue, text) in [(&second, b"second"), (&first, b"first!")] {
        let request = Request::send().inline(text);
        initiator.post_send(queue.number(), request).expect("room");
        left.success();
    }
    assert_eq!((right.success().id, right.success().id), (2, 1));
    assert_eq!(right.memory.to_vec(64..70), b"second");
    assert_eq!(right.memory.to_vec(0..6), b"first!");
}

#[test]
fn messages_arrive_over_ipv6() {
    let options = OpenOptions::default();
    let left = End::at("::1", &options);
    let (one, two) = (
        left.prepare(ConnectOptions::default()),
        left.prepare(ConnectOptions::default()),
    );
    let (first, second) = (one.endpoint(), two.endpoint());
    let one = one.connect(second).expect("a peer");
    let _two = two.connect(first).expect("a peer");
    let request = Request::write(left.memory.remote(500)).inline(b"six");
    one.post_send(request).expect("room");
    left.success();
    assert_eq!(left.memory.to_vec(500..503), b"six");
}

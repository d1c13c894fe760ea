//! Shared receive queues, completion channels and memory windows.

use std::os::fd::AsFd;

use rocinante::{
    Access, AsyncEvent, CompletedWork, CompletionChannel, CompletionQueue, Context, MemoryRegion,
    MemoryWindow, Notify, PostError, ProtectionDomain, QueuePair, QueuePairBuilder, RemoteMemory,
    Request, Status, WindowKind,
};

use crate::device::{is_ours, is_rxe, is_siw, is_software, open, system_device};
use crate::ids;
use crate::{ALL, Pair, SIZE, TIMEOUT, pattern};

/// Two connected queue pairs of one device.
fn connect(
    domain: &ProtectionDomain,
    queues: [&CompletionQueue; 2],
    change: impl Fn(QueuePairBuilder) -> QueuePairBuilder,
) -> [QueuePair; 2] {
    let prepare = |queue| change(domain.queue_pair_builder(queue)).create_reliable();
    let [left, right] = queues.map(|queue| prepare(queue).expect("room"));
    if is_siw() {
        let (left, right, ids) = ids::connect(domain.context(), left, right);
        // The process ends after the test.
        std::mem::forget(ids);
        return [left, right];
    }
    let (left_end, right_end) = (left.endpoint(), right.endpoint());
    [(left, right_end), (right, left_end)].map(|(prepared, peer)| {
        let connected = prepared.connect(peer);
        connected.expect("a path to the same device")
    })
}

#[test]
fn queue_pairs_take_receives_from_a_shared_queue_in_order() {
    let context = open();
    let domain = context.allocate_protection_domain().expect("room");
    let sent = context.create_completion_queue(16).expect("room");
    let received = context.create_completion_queue(16).expect("room");
    let shared = domain.create_shared_receive_queue(8, 1).expect("room");
    let with_shared = |builder: QueuePairBuilder| builder.shared_receive_queue(&shared).depth(4, 0);
    let pairs = [(); 2].map(|()| connect(&domain, [&sent, &received], with_shared));
    let memory = domain.allocate_memory(SIZE, ALL).expect("memory");
    for id in 0..4_usize {
        let room = memory.slice(100 * id..100 * (id + 1));
        shared.post_receive(id as u64, [room]).expect("room");
    }
    for round in 0..4_usize {
        let [sender, _] = &pairs[round % 2];
        let message = pattern(round as u8, 50 + round);
        let request = Request::send().inline(&message);
        sender.post_send(request).expect("room");
        let completion = received.wait_for(TIMEOUT).expect("it arrives");
        assert_eq!(completion.status, Status::Success, "{completion:?}");
        assert_eq!(
            (completion.id, completion.work),
            (round as u64, CompletedWork::Receive)
        );
        let [_, receiver] = &pairs[round % 2];
        assert_eq!(completion.queue_pair, receiver.number());
        let start = 100 * round;
        assert_eq!(memory.to_vec(start..start + message.len()), message);
        let status = sent.wait_for(TIMEOUT).expect("it completes").status;
        assert_eq!(status, Status::Success);
    }
}

#[test]
fn a_queue_pair_with_a_shared_queue_takes_no_receives_of_its_own() {
    let context = open();
    let domain = context.allocate_protection_domain().expect("room");
    let queue = context.create_completion_queue(8).expect("room");
    let shared = domain.create_shared_receive_queue(4, 1).expect("room");
    let with_shared = |builder: QueuePairBuilder| builder.shared_receive_queue(&shared).depth(1, 0);
    let [one, _other] = connect(&domain, [&queue, &queue], with_shared);
    let memory = domain.allocate_memory(64, ALL).expect("memory");
    let refused: Result<(), PostError> = one.post_receive(1, [memory.all()]);
    refused.expect_err("the receive belongs into the shared queue");
}

/// Two queues at one channel, and a pair between them.
fn at_channel(context: &Context) -> (CompletionChannel, [CompletionQueue; 2]) {
    let channel = context.create_completion_channel().expect("room");
    let queues = [(); 2].map(|()| channel.create_completion_queue(8).expect("room"));
    (channel, queues)
}

#[test]
fn a_channel_names_the_queue_of_each_notification() {
    let context = open();
    let domain = context.allocate_protection_domain().expect("room");
    let (channel, [left, right]) = at_channel(&context);
    assert_ne!(left.token(), right.token());
    let [sender, receiver] = connect(&domain, [&left, &right], |builder| builder);
    let memory = domain.allocate_memory(64, ALL).expect("memory");
    receiver.post_receive(1, [memory.all()]).expect("room");
    assert!(channel.poll().is_none());
    left.arm(Notify::Any);
    right.arm(Notify::Any);
    sender
        .post_send(Request::send().inline(b"hi"))
        .expect("room");
    let mut tokens = [(); 2].map(|()| channel.wait_for(TIMEOUT).expect("a notification"));
    tokens.sort_by_key(|token| *token == right.token());
    assert_eq!(tokens, [left.token(), right.token()]);
    for queue in [&left, &right] {
        assert_eq!(queue.poll().expect("a completion").status, Status::Success);
    }
    // Neither is armed any more.
    receiver.post_receive(2, [memory.all()]).expect("room");
    sender
        .post_send(Request::send().inline(b"hi"))
        .expect("room");
    for queue in [&left, &right] {
        let completion = queue.wait_for(TIMEOUT).expect("it completes");
        assert_eq!(completion.status, Status::Success);
    }
    // A program that uses the C library may get an event without a completion at any time.
    if !is_ours() {
        assert!(channel.poll().is_none());
    }
}

/// Some programs poll, arm the queue, and sleep without another poll.
#[test]
fn arming_a_queue_that_holds_a_completion_notifies_at_once() {
    if !is_software() {
        return;
    }
    let context = open();
    let domain = context.allocate_protection_domain().expect("room");
    let (channel, [left, right]) = at_channel(&context);
    let [sender, receiver] = connect(&domain, [&left, &right], |builder| builder);
    let memory = domain.allocate_memory(64, ALL).expect("memory");
    let usual = Request::send().inline(b"hi");
    let solicited = usual.clone().solicited();
    for (id, request) in [usual, solicited].into_iter().enumerate() {
        receiver
            .post_receive(id as u64, [memory.all()])
            .expect("room");
        sender.post_send(request).expect("room");
        let sent = left.wait_for(TIMEOUT).expect("it completes");
        assert_eq!(sent.status, Status::Success);
    }
    assert_eq!(channel.poll(), None, "neither was armed");
    // The acknowledgements say that both messages have arrived.
    for (id, notify) in [(0, Notify::Any), (1, Notify::Solicited)] {
        right.arm(notify);
        assert_eq!(channel.wait_for(TIMEOUT), Some(right.token()));
        assert_eq!(right.poll().map(|completion| completion.id), Some(id));
    }
}

#[test]
fn the_descriptor_of_a_channel_becomes_readable() {
    let context = open();
    let domain = context.allocate_protection_domain().expect("room");
    let (channel, [left, right]) = at_channel(&context);
    let [sender, receiver] = connect(&domain, [&left, &right], |builder| builder);
    let memory = domain.allocate_memory(64, ALL).expect("memory");
    receiver.post_receive(1, [memory.all()]).expect("room");
    right.arm(Notify::Any);
    sender
        .post_send(Request::send().inline(b"hi"))
        .expect("room");
    let deadline = std::time::Instant::now() + TIMEOUT;
    loop {
        let mut ready = [rustix::event::PollFd::from_borrowed_fd(
            channel.as_fd(),
            rustix::event::PollFlags::IN,
        )];
        let second = rustix::event::Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut ready, Some(&second)).expect("a descriptor");
        if channel.poll() == Some(right.token()) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "it is not readable");
    }
    assert_eq!(right.poll().expect("a completion").id, 1);
}

#[test]
fn only_solicited_messages_notify_a_queue_that_waits_for_these() {
    // siw of Linux 6.1 never notifies such a queue.
    if is_siw() {
        return;
    }
    let context = open();
    let domain = context.allocate_protection_domain().expect("room");
    let (channel, [left, right]) = at_channel(&context);
    let [sender, receiver] = connect(&domain, [&left, &right], |builder| builder);
    let memory = domain.allocate_memory(64, ALL).expect("memory");
    for id in 0..2 {
        receiver.post_receive(id, [memory.all()]).expect("room");
    }
    right.arm(Notify::Solicited);
    sender
        .post_send(Request::send().inline(b"1"))
        .expect("room");
    let first = right.wait_for(TIMEOUT).expect("it arrives");
    assert_eq!((first.id, channel.poll()), (0, None));
    sender
        .post_send(Request::send().inline(b"2").solicited())
        .expect("room");
    assert_eq!(channel.wait_for(TIMEOUT), Some(right.token()));
}

#[test]
fn a_completion_queue_changes_its_size() {
    if is_siw() {
        return;
    }
    let pair = Pair::reliable();
    pair.left.completions.resize(300).expect("room");
    let refused = pair.left.completions.resize(100);
    refused.expect_err("more requests may be outstanding");
    pair.right.receive(1, 8);
    pair.left.post(Request::send().inline(b"as usual"));
    pair.left.success();
}

/// A window with rights to write, bound to a part of a region of the right side.
struct Bound {
    window: MemoryWindow,
    remote: RemoteMemory,
    /// Dropped after the window: a device of the system keeps a region as long as windows are bound to it.
    _region: MemoryRegion,
}

fn bound(pair: &Pair, kind: WindowKind) -> Bound {
    let region = pair.domain.allocate_memory(64, ALL | Access::WINDOW_BIND);
    let region = region.expect("memory");
    let window = pair.domain.allocate_memory_window(kind).expect("a window");
    let bind = Request::bind_window(&window, &region, 16..32, Access::REMOTE_WRITE);
    pair.right.post(bind.id(5));
    assert_eq!(pair.right.success().id, 5);
    let remote = RemoteMemory {
        key: window.remote_key(),
        ..region.remote(16)
    };
    pair.left
        .post(Request::write(remote).inline(b"through a window"));
    pair.left.success();
    assert_eq!(region.to_vec(16..32), b"through a window");
    Bound {
        window,
        remote,
        _region: region,
    }
}

#[test]
fn memory_with_a_bound_window_is_given_back_or_stays_registered() {
    if is_siw() {
        return;
    }
    let pair = Pair::reliable();
    let access = ALL | Access::WINDOW_BIND;
    let region = pair.domain.register(vec![7; 64], access).expect("memory");
    let window = pair.domain.allocate_memory_window(WindowKind::Two);
    let window = window.expect("a window");
    let bind = Request::bind_window(&window, &region, .., Access::REMOTE_WRITE);
    pair.right.post(bind);
    pair.right.success();
    let given_back = match region.into_inner() {
        Ok(memory) => memory,
        // A device of the system keeps memory to which a window is bound.
        Err(region) => {
            assert!(system_device().is_some());
            pair.left
                .post(Request::write(region.remote(0)).inline(b"in use"));
            pair.left.success();
            drop(window);
            let memory = region.into_inner().expect("no window is bound");
            assert_eq!(memory[..6], *b"in use");
            memory
        }
    };
    assert_eq!(given_back[6..], [7; 58]);
}

#[test]
fn a_window_of_type_2_is_written_through_and_invalidated() {
    if is_siw() {
        return;
    }
    let pair = Pair::reliable();
    let Bound { window, remote, .. } = &bound(&pair, WindowKind::Two);
    let first = window.remote_key();
    pair.right.post(Request::local_invalidate(first).id(6));
    assert_eq!(pair.right.success().id, 6);
    pair.left.post(Request::write(*remote).inline(b"too late"));
    assert_eq!(pair.left.completion().status, Status::RemoteAccess);
}

#[test]
fn a_window_of_type_1_is_written_through() {
    if is_siw() {
        return;
    }
    let pair = Pair::reliable();
    bound(&pair, WindowKind::One);
}

/// rxe checks the bounds of the region only.
#[test]
fn a_window_ends_at_its_bounds() {
    if is_siw() {
        return;
    }
    let pair = Pair::reliable();
    let bound = bound(&pair, WindowKind::Two);
    let further = RemoteMemory {
        address: bound.remote.address + 1,
        ..bound.remote
    };
    pair.left
        .post(Request::write(further).inline(b"one byte too far"));
    let expected = if is_rxe() {
        Status::Success
    } else {
        Status::RemoteAccess
    };
    assert_eq!(pair.left.completion().status, expected);
}

#[test]
fn a_send_with_invalidate_ends_a_window_of_the_peer() {
    if is_siw() {
        return;
    }
    let pair = Pair::reliable();
    let Bound { window, remote, .. } = &bound(&pair, WindowKind::Two);
    pair.right.receive(9, 64);
    let key = window.remote_key();
    pair.left
        .post(Request::send_with_invalidate(key).inline(b"done with it"));
    pair.left.success();
    let received = pair.right.success();
    assert_eq!((received.id, received.length), (9, 12));
    // rxe does not tell programs which key it was.
    let is_silent = is_rxe() && received.invalidated.is_none();
    assert!(
        is_silent || received.invalidated == Some(key),
        "{received:?}"
    );
    pair.left.post(Request::write(*remote).inline(b"too late"));
    assert_eq!(pair.left.completion().status, Status::RemoteAccess);
}

#[test]
fn a_fenced_send_has_what_an_earlier_read_brought() {
    let pair = Pair::reliable();
    let bytes = pattern(6, 8000);
    pair.right.memory.write(0, &bytes);
    let room = pair.right.memory.slice(8000..16_000);
    pair.right.queue_pair.post_receive(1, [room]).expect("room");
    let between = || pair.left.memory.slice(..8000);
    let read = Request::read(pair.right.memory.remote(0)).data(between());
    let send = Request::send().data(between()).fenced();
    pair.left
        .queue_pair
        .post_send_many([read, send])
        .expect("room");
    assert_eq!(pair.left.success().work, CompletedWork::Read);
    assert_eq!(pair.left.success().work, CompletedWork::Send);
    assert_eq!(pair.right.success().length, 8000);
    assert_eq!(pair.right.memory.to_vec(8000..16_000), bytes);
}

#[test]
fn an_event_names_the_shared_queue_that_reached_its_limit() {
    let context = open();
    let domain = context.allocate_protection_domain().expect("room");
    let sent = context.create_completion_queue(16).expect("room");
    let received = context.create_completion_queue(16).expect("room");
    let [other, shared] = [(); 2].map(|()| domain.create_shared_receive_queue(8, 1).expect("room"));
    assert_ne!(other.token(), shared.token());
    let with_shared = |builder: QueuePairBuilder| builder.shared_receive_queue(&shared);
    let [left, _right] = connect(&domain, [&sent, &received], with_shared);
    let memory = domain.allocate_memory(64, ALL).expect("memory");
    for id in 0..3 {
        shared.post_receive(id, [memory.all()]).expect("room");
    }
    shared.arm_limit(2).expect("a limit");
    let send = || {
        left.post_send(Request::send().inline(b"taken"))
            .expect("room");
        received.wait_for(TIMEOUT).expect("it arrives");
    };
    send();
    assert_eq!(context.poll_event(), None, "two are left");
    send();
    let event = context.wait_event(TIMEOUT);
    assert_eq!(event, Some(AsyncEvent::SharedReceiveLimit(shared.token())));
}

//! A handle stands for an object of the device: dropping it ends the object, and nothing is left.

mod support;

use std::panic::catch_unwind;
use std::thread;

use rocinante::{
    AddressError, AddressHandle, CompletionQueue, ConnectOptions, Connector, Context, Gid,
    Listener, OpenOptions, PostError, PreparedQueuePair, Qpn, QueueKey, Request, SetupError,
    Status, WindowKind,
};
use support::{ALL, End, TIMEOUT};

/// How many there are of everything.
fn counts(context: &Context) -> [usize; 6] {
    context
        .driver()
        .expect("ours")
        .call_without_transmit(|device| {
            [
                device.memory_count(),
                device.queue_pair_count(),
                device.domain_count(),
                device.completion_queue_count(),
                device.shared_receive_queue_count(),
                device.xrc_domain_count(),
            ]
        })
}

#[test]
fn every_handle_ends_its_object() {
    let context = Context::open_with("127.51.31.1", &OpenOptions::default()).expect("an address");
    let nothing = counts(&context);
    let plus = |more: [usize; 6]| {
        let mut all = nothing;
        for (count, more) in all.iter_mut().zip(more) {
            *count += more;
        }
        all
    };
    let domain = context.allocate_protection_domain().expect("room");
    assert_eq!(counts(&context), plus([0, 0, 1, 0, 0, 0]));
    let completions = context.create_completion_queue(16).expect("room");
    assert_eq!(counts(&context), plus([0, 0, 1, 1, 0, 0]));
    let region = domain.allocate_memory(64, ALL).expect("room");
    let window = domain
        .allocate_memory_window(WindowKind::One)
        .expect("room");
    assert_eq!(counts(&context), plus([2, 0, 1, 1, 0, 0]));
    drop(window);
    assert_eq!(counts(&context), plus([1, 0, 1, 1, 0, 0]));
    drop(region);
    let shared = domain.create_shared_receive_queue(8, 1).expect("room");
    let builder = domain
        .queue_pair_builder(&completions)
        .shared_receive_queue(&shared);
    let prepared = builder.create_reliable().expect("room");
    assert_eq!(counts(&context), plus([0, 1, 1, 1, 1, 0]));
    drop(prepared);
    assert_eq!(counts(&context), plus([0, 0, 1, 1, 1, 0]));
    drop(shared);
    let xrc_domain = context.open_xrc_domain().expect("room");
    let queue = domain.create_xrc_receive_queue(&xrc_domain, &completions, 8, 1);
    assert_eq!(counts(&context), plus([0, 0, 1, 1, 1, 1]));
    drop(queue.expect("room"));
    drop(xrc_domain);
    assert_eq!(counts(&context), plus([0, 0, 1, 1, 0, 0]));
    drop((domain, completions));
    assert_eq!(counts(&context), nothing);
}

/// What a completion queue of this capacity lacks.
fn too_small(prepared: Result<PreparedQueuePair, SetupError>) -> Option<(u32, u64)> {
    match prepared.err()? {
        SetupError::CompletionQueueTooSmall { capacity, needed } => Some((capacity, needed)),
        other => panic!("{other}"),
    }
}

#[test]
fn a_completion_queue_holds_the_completions_of_all_its_queue_pairs() {
    let context = Context::open_with("127.51.31.7", &OpenOptions::default()).expect("an address");
    let domain = context.allocate_protection_domain().expect("room");
    let completions = context.create_completion_queue(16).expect("room");
    let create = |sends, receives| {
        let builder = domain.queue_pair_builder(&completions);
        builder.depth(sends, receives).create_reliable()
    };
    assert_eq!(too_small(create(16, 16)), Some((16, 32)));
    let first = create(8, 4).expect("12 of 16");
    assert_eq!(too_small(create(4, 1)), Some((16, 17)));
    let second = create(3, 1).expect("16 of 16");
    let builder = domain.queue_pair_builder(&completions).depth(64, 64);
    let unbounded = builder.may_overrun().create_reliable();
    drop(unbounded.expect("the program bounds its requests"));
    assert!(completions.resize(15).is_err(), "16 may be outstanding");
    drop(first);
    completions.resize(4).expect("4 may be outstanding");
    assert_eq!(too_small(create(1, 0)), Some((4, 5)));
    drop(second);
    drop(create(4, 0).expect("4 of 4"));
}

#[test]
fn receives_of_a_shared_queue_count_once_for_a_completion_queue() {
    let context = Context::open_with("127.51.31.8", &OpenOptions::default()).expect("an address");
    let domain = context.allocate_protection_domain().expect("room");
    let completions = context.create_completion_queue(10).expect("room");
    let shared = domain.create_shared_receive_queue(8, 1).expect("room");
    let create = |sends| {
        let builder = domain.queue_pair_builder(&completions).depth(sends, 0);
        builder.shared_receive_queue(&shared).create_reliable()
    };
    let first = create(1).expect("9 of 10");
    let _second = create(1).expect("10 of 10");
    assert_eq!(too_small(create(1)), Some((10, 11)));
    drop(first);
    assert_eq!(too_small(create(2)), Some((10, 11)));
    drop(create(1).expect("10 of 10"));
    let xrc_domain = context.open_xrc_domain().expect("room");
    let queue = domain.create_xrc_receive_queue(&xrc_domain, &completions, 2, 1);
    assert!(queue.is_err(), "11 of 10");
}

#[test]
fn the_default_depth_fits_the_completion_queue() {
    let end = End::at("127.51.31.9", &OpenOptions::default());
    for (capacity, expected) in [(1, 0), (16, 8), (17, 8), (1000, 128)] {
        let completions = end.context.create_completion_queue(capacity).expect("room");
        let builder = end.domain.queue_pair_builder(&completions);
        let prepared = builder.create_reliable().expect("room");
        let receive = || prepared.post_receive(0, [end.memory.slice(..8)]);
        for _ in 0..expected {
            receive().expect("room");
        }
        assert_eq!(receive(), Err(PostError::QueueFull), "{capacity}");
    }
}

#[test]
fn inline_data_is_limited_by_the_program() {
    let end = End::at("127.51.31.16", &OpenOptions::default());
    let completions = end.context.create_completion_queue(16).expect("room");
    let builder = end.domain.queue_pair_builder(&completions).max_inline(16);
    let prepared = builder.create_reliable().expect("room");
    let itself = prepared.endpoint();
    let queue_pair = prepared.connect(itself).expect("a path to itself");
    let send = |length| queue_pair.post_send(Request::send().inline(&vec![7; length]));
    send(16).expect("room");
    let rejected = send(17).expect_err("it is too long");
    assert!(matches!(rejected, PostError::InlineTooLong { .. }));
}

#[test]
fn the_default_depth_uses_all_of_two_completion_queues() {
    let end = End::at("127.51.31.15", &OpenOptions::default());
    let queue = || end.context.create_completion_queue(4).expect("room");
    let (sends, receives) = (queue(), queue());
    let builder = end.domain.queue_pair_builder(&sends);
    let builder = builder.receive_completions(&receives);
    let _prepared = builder.create_reliable().expect("room");
    let other = end.context.create_completion_queue(4).expect("room");
    let one_more = |sends, receives, queues: [&CompletionQueue; 2]| {
        let builder = end.domain.queue_pair_builder(queues[0]);
        let builder = builder.receive_completions(queues[1]);
        too_small(builder.depth(sends, receives).create_reliable())
    };
    assert_eq!(one_more(1, 1, [&sends, &other]), Some((4, 5)));
    assert_eq!(one_more(1, 1, [&other, &receives]), Some((4, 5)));
    assert_eq!(one_more(1, 1, [&other, &other]), None);
}

#[test]
fn a_queue_pair_ends_with_its_handle_whatever_it_is_connected_to() {
    let end = End::at("127.51.31.2", &OpenOptions::default());
    let before = counts(&end.context);
    let (one, other) = (
        end.prepare(ConnectOptions::default()),
        end.prepare(ConnectOptions::default()),
    );
    let (to_other, to_one) = (other.endpoint(), one.endpoint());
    let pair = (
        one.connect(to_other).expect("a peer"),
        other.connect(to_one).expect("a peer"),
    );
    drop(pair);
    assert_eq!(counts(&end.context), before);
}

#[test]
fn debug_text_of_a_connection_is_short_and_names_both_addresses() {
    let listener = Listener::bind("127.51.31.6:0").expect("an address");
    let address = listener.local_address();
    let server = thread::spawn(move || {
        let request = listener.wait();
        let text = format!("{listener:?} {request:?}");
        let end = request.context().clone();
        let domain = end.allocate_protection_domain().expect("room");
        let completions = end.create_completion_queue(4).expect("room");
        let prepared = request.prepare(domain.queue_pair_builder(&completions));
        let connection = prepared.expect("room").accept(b"").expect("a client");
        assert!(connection.wait_disconnected(TIMEOUT));
        text
    });
    let connector = Connector::resolve(address).expect("a route");
    let context = connector.context().clone();
    let domain = context.allocate_protection_domain().expect("room");
    let completions = context.create_completion_queue(4).expect("room");
    let mut texts = vec![format!("{connector:?}")];
    let prepared = connector
        .prepare(domain.queue_pair_builder(&completions))
        .expect("room");
    let connection = prepared.connect(b"").expect("a server");
    texts.push(format!("{connection:?}"));
    drop(connection);
    texts.push(server.join().expect("no panic"));
    for text in texts {
        assert!(text.contains(&address.to_string()), "{text}");
        assert!(text.len() < 800, "{} bytes: {text}", text.len());
    }
}

#[test]
fn a_piece_of_a_region_lies_inside() {
    let end = End::at("127.51.31.3", &OpenOptions::default());
    let length = end.memory.len();
    assert_eq!(end.memory.slice(0..length).length as usize, length);
    let memory = std::panic::AssertUnwindSafe(&end.memory);
    assert!(catch_unwind(|| memory.slice(1..length + 1)).is_err());
    assert!(catch_unwind(|| memory.to_vec(1..length + 1)).is_err());
}

#[test]
fn a_part_of_a_region_is_any_kind_of_range() {
    let end = End::at("127.51.31.5", &OpenOptions::default());
    let memory = &end.memory;
    let length = memory.len();
    assert_eq!(memory.slice(..8), memory.slice(0..8));
    assert_eq!(memory.slice(8..), memory.slice(8..length));
    assert_eq!(memory.slice(3..=7), memory.slice(3..8));
    assert_eq!(memory.slice(..), memory.all());
    assert_eq!(memory.slice(length..).length, 0);
    memory.write(3, b"abcde");
    assert_eq!(memory.to_vec(3..=7), b"abcde");
    let memory = std::panic::AssertUnwindSafe(memory);
    assert!(catch_unwind(|| memory.slice(..=length)).is_err());
    assert!(catch_unwind(|| memory.slice(..=usize::MAX)).is_err());
}

#[test]
fn a_failed_completion_is_an_error_that_says_why() {
    let end = End::at("127.51.31.6", &OpenOptions::default());
    let (one, other) = (
        end.prepare(ConnectOptions::default()),
        end.prepare(ConnectOptions::default()),
    );
    let (to_other, to_one) = (other.endpoint(), one.endpoint());
    let one = one.connect(to_other).expect("a peer");
    let _other = other.connect(to_one).expect("a peer");
    let remote = end.memory.remote(0);
    one.post_send(Request::write(remote).inline(b"fits").id(1))
        .expect("room");
    assert_eq!(end.completions.wait().into_result().map(|it| it.id), Ok(1));
    let beyond = end.memory.remote(end.memory.len());
    one.post_send(Request::write(beyond).inline(b"does not fit").id(2))
        .expect("room");
    let error = end.completions.wait().into_result().expect_err("outside");
    assert_eq!((error.id, error.status), (2, Status::RemoteAccess));
    let text = error.to_string();
    assert!(text.starts_with("request 2 of queue pair 0x"), "{text}");
    assert!(text.ends_with(&Status::RemoteAccess.to_string()), "{text}");
}

#[test]
fn an_address_handle_is_checked_when_it_is_made() {
    let context = Context::open_with("127.51.31.4", &OpenOptions::default()).expect("an address");
    let make = |gid, index| {
        AddressHandle::new(&context, gid, index, Qpn::new(2), QueueKey::new(1)).map(drop)
    };
    let peer = context.gids()[0];
    assert_eq!(make(peer, 0), Ok(()));
    assert_eq!(make(peer, 9), Err(AddressError::EmptySourceIndex(9)));
    assert_eq!(make(Gid::default(), 0), Err(AddressError::NoDestination));
}

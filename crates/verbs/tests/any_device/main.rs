//! The safe API at any device: ours, or the one of the system that `ROCI_TEST_DEVICE` names. As tests of the package `capi`: at ours, but
//! through the layer for devices of the system, with our C library in place of the system's.
//!
//! To run it on the kernel's Soft-RoCE, copy the test program to a machine that has it: `ROCI_DEVICES=system ROCI_TEST_DEVICE=rxe0
//! any_device-… --test-threads=1`.

mod connections;
mod datagram_services;
mod datagrams;
mod device;
mod device_memory_and_xrc;
mod ids;
mod iwarp;
mod persistence;
mod queues_and_windows;

use std::thread;
use std::time::{Duration, Instant};

use rocinante::{
    Access, CompletedWork, Completion, CompletionQueue, ConnectOptions, Context, DeviceChoice,
    DeviceKind, Incoming, Key, MemoryError, MemoryRegion, OpenError, OpenOptions,
    PreparedQueuePair, ProtectionDomain, QueuePair, RemoteMemory, Request, State, Status,
    SystemRefusal,
};

use device::{is_ours, is_siw, is_software, open, system_device};
use ids::Ids;

const TIMEOUT: Duration = Duration::from_secs(20);
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);
const SIZE: usize = 16 * 1024;

/// Two connected queue pairs of one device, each with a completion queue and memory of its own.
struct Pair {
    _context: Context,
    domain: ProtectionDomain,
    left: End,
    right: End,
    /// What keeps a connection of iWARP.
    _ids: Option<Ids>,
}

struct End {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    memory: MemoryRegion,
}

impl Pair {
    fn reliable() -> Self {
        Self::new(ConnectOptions::default(), true)
    }

    fn new(options: ConnectOptions, is_reliable: bool) -> Self {
        let context = open();
        let domain = context.allocate_protection_domain().expect("room");
        let prepare = || {
            let completions = context.create_completion_queue(256).expect("room");
            let builder = domain
                .queue_pair_builder(&completions)
                .connect_options(options);
            let prepared = if is_reliable {
                builder.create_reliable()
            } else {
                builder.create_unreliable()
            };
            let prepared: PreparedQueuePair = prepared.expect("room");
            (completions, prepared)
        };
        let ((left_queue, left), (right_queue, right)) = (prepare(), prepare());
        let (left, right, ids) = if is_siw() {
            let (left, right, ids) = ids::connect(&context, left, right);
            (left, right, Some(ids))
        } else {
            let (left_end, right_end) = (left.endpoint(), right.endpoint());
            let connect = |prepared: PreparedQueuePair, peer| {
                let connected = prepared.connect(peer);
                connected.expect("a path to the same device")
            };
            (connect(left, right_end), connect(right, left_end), None)
        };
        let access = if is_siw() {
            ALL.difference(Access::REMOTE_ATOMIC)
        } else {
            ALL
        };
        let end = |completions, queue_pair| End {
            queue_pair,
            completions,
            memory: domain.allocate_memory(SIZE, access).expect("memory"),
        };
        Self {
            left: end(left_queue, left),
            right: end(right_queue, right),
            domain,
            _ids: ids,
            _context: context,
        }
    }
}

impl End {
    fn completion(&self) -> Completion {
        self.completions.wait_for(TIMEOUT).expect("it completes")
    }

    #[track_caller]
    fn success(&self) -> Completion {
        let completion = self.completion();
        assert_eq!(completion.status, Status::Success, "{completion:?}");
        completion
    }

    fn receive(&self, id: u64, length: usize) {
        let room = self.memory.slice(..length);
        self.queue_pair.post_receive(id, [room]).expect("room");
    }

    fn post(&self, request: Request) {
        self.queue_pair.post_send(request).expect("room");
    }
}

/// Bytes that differ from those of other seeds.
fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| seed.wrapping_add((at * 7) as u8))
        .collect()
}

#[test]
fn a_message_arrives_with_its_length_and_immediate_data() {
    if is_siw() {
        return;
    }
    let pair = Pair::reliable();
    let bytes = pattern(1, 5000);
    pair.left.memory.write(0, &bytes);
    pair.right.receive(7, SIZE);
    let request = Request::send_with_immediate([1, 2, 3, 4]);
    pair.left
        .post(request.data(pair.left.memory.slice(..5000)).id(8));
    let sent = pair.left.success();
    assert_eq!((sent.id, sent.work), (8, CompletedWork::Send));
    let received = pair.right.success();
    assert_eq!((received.id, received.length), (7, 5000));
    assert_eq!(received.work, CompletedWork::Receive);
    assert_eq!(received.immediate, Some([1, 2, 3, 4]));
    assert_eq!(pair.right.memory.to_vec(..5000), bytes);
}

#[test]
fn inline_data_may_be_changed_after_the_post() {
    let pair = Pair::reliable();
    pair.right.receive(0, 64);
    let mut text = *b"copied when it is posted";
    pair.left.post(Request::send().inline(&text));
    text.fill(0);
    pair.left.success();
    let received = pair.right.success();
    let received = pair.right.memory.to_vec(..received.length as usize);
    assert_eq!(received, b"copied when it is posted");
}

/// More than a library is asked for at once.
#[test]
fn all_completions_that_are_there_are_polled_up_to_the_limit() {
    const MESSAGES: u64 = 40;
    let pair = Pair::reliable();
    for id in 0..MESSAGES {
        pair.right.receive(id, 64);
    }
    for id in 0..MESSAGES {
        let request = Request::send().inline(b"one of many").id(id);
        let is_last = id == MESSAGES - 1;
        pair.left.post(if is_last {
            request
        } else {
            request.unsignaled()
        });
    }
    // All have arrived.
    assert_eq!(pair.left.success().id, MESSAGES - 1);
    let mut received = Vec::new();
    let poll = |into: &mut Vec<Completion>, limit| pair.right.completions.poll_many(into, limit);
    assert_eq!(poll(&mut received, 5), 5);
    assert_eq!(poll(&mut received, 33), 33);
    assert_eq!(poll(&mut received, 33), 2);
    assert_eq!(poll(&mut received, 33), 0);
    assert!(received.iter().map(|it| it.id).eq(0..MESSAGES));
}

#[test]
fn a_program_that_names_no_inline_size_has_256_bytes() {
    if !is_software() {
        return;
    }
    let pair = Pair::reliable();
    pair.right.receive(0, 256);
    pair.left.post(Request::send().inline(&pattern(3, 256)));
    pair.left.success();
    assert_eq!(pair.right.success().length, 256);
    // A size that it does name is no wish.
    let builder = pair.domain.queue_pair_builder(&pair.left.completions);
    let refused = builder.max_inline(1 << 20).depth(4, 4).create_reliable();
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn several_segments_make_one_message() {
    let pair = Pair::reliable();
    pair.left.memory.write(0, b"first");
    pair.left.memory.write(100, b"second");
    let (first, second) = (
        pair.right.memory.slice(..2),
        pair.right.memory.slice(50..100),
    );
    pair.right
        .queue_pair
        .post_receive(0, [first, second])
        .expect("room");
    let parts = [0..5, 100..106].map(|range| pair.left.memory.slice(range));
    pair.left.post(Request::send().segments(parts));
    pair.left.success();
    assert_eq!(pair.right.success().length, 11);
    assert_eq!(pair.right.memory.to_vec(..2), b"fi");
    assert_eq!(pair.right.memory.to_vec(50..59), b"rstsecond");
}

#[test]
fn memory_of_the_peer_is_written_and_read() {
    let pair = Pair::reliable();
    let bytes = pattern(2, 9000);
    pair.left.memory.write(0, &bytes);
    let target = pair.right.memory.remote(1000);
    pair.left
        .post(Request::write(target).data(pair.left.memory.slice(..9000)));
    assert_eq!(pair.left.success().work, CompletedWork::Write);
    assert_eq!(pair.right.memory.to_vec(1000..10_000), bytes);
    let into = pair.left.memory.slice(10_000..14_000);
    pair.left
        .post(Request::read(pair.right.memory.remote(2000)).data(into));
    let read = pair.left.success();
    assert_eq!(read.work, CompletedWork::Read);
    assert_eq!(pair.left.memory.to_vec(10_000..14_000), bytes[1000..5000]);
    assert!(pair.right.completions.poll().is_none(), "one-sided");
}

#[test]
fn a_write_with_immediate_consumes_a_receive() {
    if is_siw() {
        return;
    }
    let pair = Pair::reliable();
    pair.right.receive(5, 0);
    let request = Request::write_with_immediate(pair.right.memory.remote(0), [9; 4]);
    pair.left.post(request.inline(b"written"));
    pair.left.success();
    let received = pair.right.success();
    assert_eq!(received.work, CompletedWork::ReceiveWriteImmediate);
    assert_eq!((received.id, received.length), (5, 7));
    assert_eq!(received.immediate, Some([9; 4]));
    assert_eq!(pair.right.memory.to_vec(..7), b"written");
}

#[test]
fn atomics_return_the_previous_value() {
    if is_siw() {
        return;
    }
    let pair = Pair::reliable();
    pair.right.memory.write(8, &40_u64.to_ne_bytes());
    let remote = pair.right.memory.remote(8);
    let value = |memory: &MemoryRegion, at: usize| {
        let bytes = memory.to_vec(at..at + 8);
        u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
    };
    pair.left
        .post(Request::fetch_add(remote, 2).data(pair.left.memory.slice(..8)));
    assert_eq!(pair.left.success().work, CompletedWork::FetchAdd);
    assert_eq!(value(&pair.left.memory, 0), 40);
    assert_eq!(value(&pair.right.memory, 8), 42);
    for (compare, now) in [(41, 42), (42, 99)] {
        let request = Request::compare_swap(remote, compare, 99);
        pair.left.post(request.data(pair.left.memory.slice(..8)));
        assert_eq!(pair.left.success().work, CompletedWork::CompareSwap);
        assert_eq!(value(&pair.left.memory, 0), 42);
        assert_eq!(value(&pair.right.memory, 8), now);
    }
}

#[test]
fn an_unsignaled_request_has_no_completion() {
    let pair = Pair::reliable();
    let remote = pair.right.memory.remote(0);
    pair.left
        .post(Request::write(remote).inline(b"quiet").id(1).unsignaled());
    pair.left
        .post(Request::write(remote).inline(b"loud!").id(2));
    assert_eq!(pair.left.success().id, 2);
    assert_eq!(pair.right.memory.to_vec(..5), b"loud!");
}

#[test]
fn many_requests_complete_in_order() {
    let pair = Pair::reliable();
    for id in 0..50 {
        pair.right.receive(id, 64);
    }
    let requests = (0..50_u64).map(|id| Request::send().inline(&id.to_ne_bytes()).id(id));
    pair.left.queue_pair.post_send_many(requests).expect("room");
    for id in 0..50 {
        assert_eq!(pair.left.success().id, id);
        assert_eq!(pair.right.success().id, id);
    }
}

#[test]
fn an_unreliable_connection_sends_and_writes() {
    if is_siw() {
        return;
    }
    let pair = Pair::new(ConnectOptions::default(), false);
    pair.right.receive(0, 64);
    pair.left.post(Request::send().inline(b"unreliable"));
    pair.left.success();
    assert_eq!(pair.right.success().length, 10);
    assert_eq!(pair.right.memory.to_vec(..10), b"unreliable");
}

#[test]
fn a_wrong_key_fails_at_both_ends() {
    if is_siw() {
        return;
    }
    let pair = Pair::reliable();
    let right = pair.right.memory.remote(0);
    let wrong = RemoteMemory {
        key: Key::new(right.key.value() ^ 0x5500),
        ..right
    };
    pair.left.post(Request::write(wrong).inline(b"never").id(3));
    let completion = pair.left.completion();
    assert_eq!(
        (completion.id, completion.status),
        (3, Status::RemoteAccess)
    );
    assert_eq!(pair.left.queue_pair.state(), State::Error);
    // What is posted now is flushed.
    pair.left.post(Request::send().inline(b"late").id(4));
    let completion = pair.left.completion();
    assert_eq!((completion.id, completion.status), (4, Status::Flushed));
    assert_eq!(pair.right.memory.to_vec(..5), [0; 5]);
}

#[test]
fn memory_that_is_deregistered_is_out_of_reach() {
    if is_siw() {
        return;
    }
    let pair = Pair::reliable();
    let region = pair.domain.allocate_memory(64, ALL).expect("memory");
    let remote = region.remote(0);
    drop(region);
    pair.left.post(Request::write(remote).inline(b"gone"));
    assert_eq!(pair.left.completion().status, Status::RemoteAccess);
}

#[test]
fn a_peer_without_a_receive_fails_the_request_after_its_retries() {
    if is_siw() {
        return;
    }
    let options = ConnectOptions {
        rnr_retry: 1,
        ..ConnectOptions::default()
    };
    let pair = Pair::new(options, true);
    pair.left.post(Request::send().inline(b"nobody receives"));
    assert_eq!(pair.left.completion().status, Status::ReceiverNotReady);
}

#[test]
fn a_message_that_is_longer_than_its_receive_fails() {
    if is_siw() {
        return;
    }
    let pair = Pair::reliable();
    pair.right.receive(0, 16);
    pair.left
        .post(Request::send().data(pair.left.memory.slice(..64)));
    let statuses = (
        pair.left.completion().status,
        pair.right.completion().status,
    );
    // The kernel's rxe answers with another NAK than the specification asks for.
    let of_rxe = (Status::RemoteOperation, Status::LocalOperation);
    let is_of_rxe = system_device().is_some() && statuses == of_rxe;
    let usual = (Status::RemoteInvalidRequest, Status::LocalLength);
    assert!(is_of_rxe || statuses == usual, "{statuses:?}");
}

/// Others than ours may refuse the post.
#[test]
fn an_atomic_at_an_unaligned_address_is_rejected_by_the_peer() {
    if !is_software() {
        return;
    }
    let local = |pair: &Pair| pair.left.memory.slice(..8);
    type Make = fn(RemoteMemory) -> Incoming;
    let add: Make = |remote| Request::fetch_add(remote, 1);
    let swap: Make = |remote| Request::compare_swap(remote, 0, 1);
    for make in [add, swap] {
        let pair = Pair::reliable();
        pair.right.receive(1, 8);
        let request = make(pair.right.memory.remote(12)).data(local(&pair));
        pair.left.post(request);
        let status = pair.left.completion().status;
        assert_eq!(status, Status::RemoteInvalidRequest);
        assert_eq!(pair.right.completion().status, Status::Flushed);
        assert_eq!(pair.right.memory.to_vec(8..24), [0; 16]);
    }
}

/// Local access error: memory that the peer named is not accessible, and the receive of the immediate data can't be used.
#[test]
fn a_write_with_immediate_data_and_a_wrong_key_fails_its_receive() {
    if !is_software() {
        return;
    }
    let pair = Pair::reliable();
    pair.right.receive(1, 8);
    pair.right.receive(2, 8);
    let remote = RemoteMemory {
        key: Key::new(0),
        ..pair.right.memory.remote(0)
    };
    let request = Request::write_with_immediate(remote, [1, 2, 3, 4]);
    pair.left.post(request.data(pair.left.memory.slice(..8)));
    assert_eq!(pair.left.completion().status, Status::RemoteAccess);
    for (id, status) in [(1, Status::LocalAccess), (2, Status::Flushed)] {
        let completion = pair.right.completion();
        assert_eq!((completion.id, completion.status), (id, status));
    }
}

#[test]
fn receives_are_flushed_in_the_error_state() {
    let pair = Pair::reliable();
    pair.right.receive(1, 64);
    pair.right.receive(2, 64);
    pair.right.queue_pair.move_to_error().expect("a transition");
    for id in [1, 2] {
        let completion = pair.right.completion();
        assert_eq!((completion.id, completion.status), (id, Status::Flushed));
    }
    // siw of Linux 6.1 does not tell the state.
    assert!(is_siw() || pair.right.queue_pair.state() == State::Error);
}

#[test]
fn a_wait_ends_after_its_timeout() {
    let pair = Pair::reliable();
    let start = Instant::now();
    assert!(
        pair.left
            .completions
            .wait_for(Duration::from_millis(30))
            .is_none()
    );
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[test]
fn threads_that_wait_for_one_queue_get_a_completion_each() {
    let pair = Pair::reliable();
    for id in 0..4 {
        pair.right.receive(id, 64);
    }
    thread::scope(|scope| {
        let waits = |_| scope.spawn(|| pair.right.completions.wait_for(TIMEOUT));
        let waiting: Vec<_> = (0..4).map(waits).collect();
        // Both orders are correct; most often all of them sleep by then.
        thread::sleep(Duration::from_millis(50));
        let requests = (0..4).map(|id| Request::send().inline(b"one each").id(id));
        pair.left.queue_pair.post_send_many(requests).expect("room");
        let found = waiting.into_iter().map(|it| it.join().expect("no panic"));
        let mut ids: Vec<_> = found.map(|it| it.expect("a completion").id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3]);
    });
}

#[test]
fn memory_of_the_program_is_registered_and_given_back() {
    let pair = Pair::reliable();
    let region = pair
        .domain
        .register(b"to be sent".to_vec(), Access::empty());
    let region = region.expect("memory");
    pair.right.receive(0, 64);
    pair.left.post(Request::send().data(region.all()));
    pair.left.success();
    pair.right.success();
    assert_eq!(pair.right.memory.to_vec(..10), b"to be sent");
    let bytes = region.into_inner().expect("this is no forked child");
    assert_eq!(bytes, b"to be sent");
}

#[test]
fn objects_may_be_dropped_in_any_order() {
    let Pair {
        _context: context,
        domain,
        left,
        right,
        _ids,
    } = Pair::reliable();
    drop(context);
    drop(domain);
    let End {
        queue_pair,
        completions,
        memory,
    } = left;
    right.receive(0, 64);
    queue_pair
        .post_send(Request::send().inline(b"still there"))
        .expect("room");
    assert_eq!(right.success().length, 11);
    drop(completions);
    drop(queue_pair);
    memory.write(0, b"alive");
    assert_eq!(memory.to_vec(..5), b"alive");
}

#[test]
fn the_device_is_listed_with_its_kind() {
    // Through our library its name is also that of a software device.
    let Some(name) = system_device().filter(|_| !is_ours()) else {
        return;
    };
    let devices = rocinante::devices().expect("a list");
    let device = devices
        .iter()
        .find(|it| it.name == name)
        .expect("it is listed");
    assert!(
        matches!(device.kind, DeviceKind::System { .. }),
        "{device:?}"
    );
    let context = open();
    assert_eq!(context.device().kind, device.kind);
    assert!(context.driver().is_none());
    // A name that is not ours is not found among ours.
    let options = OpenOptions {
        devices: DeviceChoice::Software,
        ..OpenOptions::default()
    };
    let error = Context::open_with(&name, &options).expect_err("it is of the system");
    assert!(matches!(error, OpenError::Unknown { .. }), "{error}");
}

#[test]
fn what_a_device_of_the_system_does_not_offer_is_an_error() {
    if system_device().is_none() {
        return;
    }
    let context = open();
    let domain = context.allocate_protection_domain().expect("room");
    let mut region = domain.allocate_memory(64, ALL).expect("memory");
    let error = region.lend(|_| ()).expect_err("lent memory");
    assert!(
        matches!(error, MemoryError::System(SystemRefusal::NotOffered(_))),
        "{error}"
    );
}

#[test]
fn an_unknown_device_of_the_system_is_named() {
    let options = OpenOptions {
        devices: DeviceChoice::System,
        ..OpenOptions::default()
    };
    let error = Context::open_with("mlx5_77", &options).expect_err("nobody has so many");
    assert!(error.to_string().contains("`mlx5_77`"), "{error}");
}

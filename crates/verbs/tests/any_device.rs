//! The safe API at any device: ours, or the one of the system that `ROCI_TEST_DEVICE` names.
//!
//! To run it on the kernel's Soft-RoCE, copy the test program to a machine that has it: `ROCI_DEVICES=system ROCI_TEST_DEVICE=rxe0
//! any_device-… --test-threads=1`.

use std::env;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rocinante::rdma_cm::{CallError, CmError, RejectReason};
use rocinante::{
    Access, CompletedWork, Completion, CompletionQueue, ConnectError, ConnectOptions, Connection,
    ConnectionRequest, Connector, Context, DeviceChoice, DeviceKind, Key, Listener, MemoryError,
    MemoryRegion, ObjectError, OpenError, OpenOptions, PreparedConnect, PreparedQueuePair,
    ProtectionDomain, QueuePair, RemoteMemory, Request, State, Status, SystemRefusal, WindowKind,
};

const TIMEOUT: Duration = Duration::from_secs(20);
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);
const SIZE: usize = 16 * 1024;

/// The device of the system to test; `None`: a loopback address of each test's own.
fn system_device() -> Option<String> {
    env::var("ROCI_TEST_DEVICE").ok()
}

fn open() -> Context {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let name = system_device()
        .unwrap_or_else(|| format!("127.93.7.{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    Context::open(&name).expect("a device")
}

/// Two connected queue pairs of one device, each with a completion queue and memory of its own.
struct Pair {
    _context: Context,
    domain: ProtectionDomain,
    left: End,
    right: End,
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
            let completions = context.create_completion_queue(64).expect("room");
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
        let (left_end, right_end) = (left.endpoint(), right.endpoint());
        let end = |completions, prepared: PreparedQueuePair, peer| End {
            queue_pair: prepared.connect(peer).expect("a path to the same device"),
            completions,
            memory: domain.allocate_memory(SIZE, ALL).expect("memory"),
        };
        Self {
            left: end(left_queue, left, right_end),
            right: end(right_queue, right, left_end),
            domain,
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
    let request = Request::send().data(pair.left.memory.slice(..5));
    pair.left
        .post(request.data(pair.left.memory.slice(100..106)));
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
    let pair = Pair::new(ConnectOptions::default(), false);
    pair.right.receive(0, 64);
    pair.left.post(Request::send().inline(b"unreliable"));
    pair.left.success();
    assert_eq!(pair.right.success().length, 10);
    assert_eq!(pair.right.memory.to_vec(..10), b"unreliable");
}

#[test]
fn a_wrong_key_fails_at_both_ends() {
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
    let pair = Pair::reliable();
    let region = pair.domain.allocate_memory(64, ALL).expect("memory");
    let remote = region.remote(0);
    drop(region);
    pair.left.post(Request::write(remote).inline(b"gone"));
    assert_eq!(pair.left.completion().status, Status::RemoteAccess);
}

#[test]
fn a_peer_without_a_receive_fails_the_request_after_its_retries() {
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
    assert_eq!(pair.right.queue_pair.state(), State::Error);
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
    let Some(name) = system_device() else {
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
    let not_offered = |error: &ObjectError| {
        assert!(
            matches!(error, ObjectError::System(SystemRefusal::NotOffered(_))),
            "{error}"
        );
    };
    not_offered(&context.create_completion_channel().expect_err("a channel"));
    not_offered(&context.open_xrc_domain().expect_err("an XRC domain"));
    not_offered(
        &domain
            .create_shared_receive_queue(4, 1)
            .expect_err("a queue"),
    );
    let not_offered = |error: MemoryError| {
        assert!(
            matches!(error, MemoryError::System(SystemRefusal::NotOffered(_))),
            "{error}"
        );
    };
    not_offered(
        domain
            .allocate_memory_window(WindowKind::Two)
            .expect_err("a window"),
    );
    not_offered(
        domain
            .allocate_device_memory(64, ALL)
            .expect_err("device memory"),
    );
    let mut region = domain.allocate_memory(64, ALL).expect("memory");
    not_offered(region.lend(|_| ()).expect_err("lent memory"));
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

/// One side of a connection by the connection manager.
struct Side {
    connection: Connection,
    completions: CompletionQueue,
    memory: MemoryRegion,
}

/// The objects of a side before it is connected.
fn resources(context: &Context) -> (ProtectionDomain, CompletionQueue, MemoryRegion) {
    let domain = context.allocate_protection_domain().expect("room");
    let completions = context.create_completion_queue(16).expect("room");
    let memory = domain.allocate_memory(SIZE, ALL).expect("memory");
    (domain, completions, memory)
}

/// Accepts a request, with the address and the key of the memory as private data.
fn accept(request: ConnectionRequest) -> Side {
    let (domain, completions, memory) = resources(request.context());
    let prepared = request.prepare(domain.queue_pair_builder(&completions));
    let prepared = prepared.expect("a queue pair");
    prepared
        .post_receive(1, [memory.slice(..64)])
        .expect("room");
    let key = memory.remote(0).to_string();
    let connection = prepared.accept(key.as_bytes()).expect("a client");
    Side {
        connection,
        completions,
        memory,
    }
}

fn prepare(connector: Connector) -> (PreparedConnect, CompletionQueue, MemoryRegion) {
    let (domain, completions, memory) = resources(connector.context());
    let prepared = connector.prepare(domain.queue_pair_builder(&completions));
    (prepared.expect("a queue pair"), completions, memory)
}

fn connect(context: &Context, server: SocketAddr, data: &[u8]) -> Result<Side, ConnectError> {
    let (prepared, completions, memory) = prepare(Connector::resolve_on(context, server)?);
    prepared
        .post_receive(1, [memory.slice(..64)])
        .expect("room");
    Ok(Side {
        connection: prepared.connect(data)?,
        completions,
        memory,
    })
}

impl Side {
    #[track_caller]
    fn completes(&self, status: Status) -> Completion {
        let completion = self.completions.wait_for(TIMEOUT).expect("it completes");
        assert_eq!(completion.status, status, "{completion:?}");
        completion
    }
}

/// An address of the device to which others can connect.
fn address_of(context: &Context) -> IpAddr {
    let addresses = || context.device().gids.iter().map(|entry| entry.address);
    let ipv4 = addresses().find(IpAddr::is_ipv4);
    ipv4.or_else(|| addresses().next()).expect("an address")
}

fn listen(context: &Context) -> Listener {
    Listener::bind_on(context, (address_of(context), 0).into()).expect("a free port")
}

/// A client and a server that are connected.
fn connected() -> (Side, Side) {
    let context = open();
    let listener = listen(&context);
    let server = listener.local_address();
    thread::scope(|scope| {
        let accepts = scope.spawn(|| accept(listener.wait_for(TIMEOUT).expect("a request")));
        let client = connect(&context, server, b"").expect("a server");
        (client, accepts.join().expect("no panic"))
    })
}

#[test]
fn a_client_and_a_server_exchange_private_data_and_messages() {
    let context = open();
    let listener = listen(&context);
    let address = listener.local_address();
    assert_ne!(address.port(), 0);
    let server = thread::spawn(move || {
        let request = listener.wait_for(TIMEOUT).expect("a request");
        assert!(request.private_data().starts_with(b"who I am"));
        assert_eq!(request.private_data().len(), 56);
        assert_eq!(request.peer_address().ip(), address.ip());
        let side = accept(request);
        assert_eq!(side.connection.local_address(), Some(address));
        assert_eq!(side.completes(Status::Success).length, 7);
        assert_eq!(side.memory.to_vec(..7), b"written");
        assert_eq!(side.memory.to_vec(1000..1005), b"there");
        let back = Request::send().inline(b"received");
        side.connection.post_send(back).expect("room");
        side.completes(Status::Success);
        assert!(side.connection.wait_disconnected(TIMEOUT));
    });
    let client = connect(&context, address, b"who I am").expect("a server");
    assert_eq!(client.connection.peer_address(), Some(address));
    let said = String::from_utf8_lossy(client.connection.private_data()).into_owned();
    let remote: RemoteMemory = said.trim_end_matches('\0').parse().expect("a key");
    let there = RemoteMemory {
        address: remote.address + 1000,
        ..remote
    };
    let write = Request::write(there).inline(b"there");
    client.connection.post_send(write).expect("room");
    assert_eq!(client.completes(Status::Success).work, CompletedWork::Write);
    let send = Request::send().inline(b"written");
    client.connection.post_send(send).expect("room");
    // The reply may arrive before the acknowledgement.
    let both = [(); 2].map(|()| client.completes(Status::Success));
    let sent = both.iter().filter(|it| it.work == CompletedWork::Send);
    assert_eq!(sent.count(), 1);
    let received = both.iter().find(|it| it.work == CompletedWork::Receive);
    assert_eq!(received.map(|it| it.length), Some(8));
    assert_eq!(client.memory.to_vec(..8), b"received");
    drop(client);
    server.join().expect("no panic");
}

#[test]
fn reads_and_atomics_pass_over_a_connection() {
    let (client, server) = connected();
    server.memory.write(8, &40_u64.to_ne_bytes());
    let add = Request::fetch_add(server.memory.remote(8), 2).data(client.memory.slice(64..72));
    client.connection.post_send(add).expect("room");
    client.completes(Status::Success);
    let read = Request::read(server.memory.remote(8)).data(client.memory.slice(72..80));
    client.connection.post_send(read).expect("room");
    client.completes(Status::Success);
    assert_eq!(client.memory.to_vec(64..72), 40_u64.to_ne_bytes());
    assert_eq!(client.memory.to_vec(72..80), 42_u64.to_ne_bytes());
}

#[test]
fn a_rejected_client_learns_why() {
    let context = open();
    let listener = listen(&context);
    let server = listener.local_address();
    thread::scope(|scope| {
        scope.spawn(|| {
            let request = listener.wait_for(TIMEOUT).expect("a request");
            request.reject(b"not today").expect("a client");
            drop(listener.wait_for(TIMEOUT).expect("a request"));
        });
        let refused = connect(&context, server, b"").err();
        let Some(ConnectError::Rejected {
            reason,
            private_data,
            ..
        }) = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!(reason, RejectReason::Consumer);
        assert!(private_data.starts_with(b"not today"));
        // A request that is dropped is rejected, too.
        let refused = connect(&context, server, b"").err();
        assert!(
            matches!(refused, Some(ConnectError::Rejected { .. })),
            "{refused:?}"
        );
    });
}

#[test]
fn a_port_without_a_listener_is_an_error() {
    let context = open();
    let listener = listen(&context);
    let server = listener.local_address();
    drop(listener);
    let refused = connect(&context, server, b"").err();
    assert!(
        matches!(refused, Some(ConnectError::NoListener(peer)) if peer == server),
        "{refused:?}"
    );
}

#[test]
fn a_port_has_one_listener() {
    let context = open();
    let listener = listen(&context);
    let refused = Listener::bind_on(&context, listener.local_address()).err();
    assert!(matches!(refused, Some(ConnectError::Cm(_))), "{refused:?}");
}

#[test]
fn the_end_of_a_connection_is_seen_by_both_and_flushes_receives() {
    let (client, server) = connected();
    assert!(!server.connection.wait_disconnected(Duration::ZERO));
    client.connection.disconnect().expect("a connection");
    // Both have a receive that nothing arrives for.
    server.completes(Status::Flushed);
    client.completes(Status::Flushed);
    assert!(server.connection.wait_disconnected(TIMEOUT));
    assert!(client.connection.wait_disconnected(TIMEOUT));
    assert_eq!(server.connection.state(), State::Error);
    assert_eq!(client.connection.state(), State::Error);
}

#[test]
fn a_dropped_connection_ends_the_peers() {
    let (client, server) = connected();
    drop(server);
    client.completes(Status::Flushed);
    assert!(client.connection.wait_disconnected(TIMEOUT));
}

#[test]
fn a_server_that_does_not_answer_is_unreachable() {
    let context = open();
    let listener = listen(&context);
    let connector = Connector::resolve_on(&context, listener.local_address());
    let connector = connector.expect("a route");
    let (prepared, _completions, _memory) = prepare(connector.timeout(Duration::from_millis(100)));
    let refused = prepared.connect(b"").err();
    assert!(
        matches!(refused, Some(ConnectError::Unreachable(_))),
        "{refused:?}"
    );
}

#[test]
fn private_data_that_is_too_long_is_an_error() {
    let context = open();
    let listener = listen(&context);
    let refused = connect(&context, listener.local_address(), &[0; 57]).err();
    assert!(
        matches!(
            refused,
            Some(ConnectError::Cm(CmError::Call(CallError::PrivateData(_))))
        ),
        "{refused:?}"
    );
}

#[test]
fn a_queue_pair_of_another_context_is_an_error() {
    let (context, other) = (open(), open());
    let listener = listen(&context);
    let connector = Connector::resolve_on(&context, listener.local_address());
    let (domain, completions, _memory) = resources(&other);
    let builder = domain.queue_pair_builder(&completions);
    let refused = connector.expect("a route").prepare(builder).err();
    assert!(
        matches!(refused, Some(ConnectError::OtherDevice)),
        "{refused:?}"
    );
}

#[test]
fn an_address_stands_for_a_device_of_the_kind_that_is_chosen() {
    let address = address_of(&open());
    let listener = Listener::bind(SocketAddr::from((address, 0))).expect("a free port");
    let resolve = || Connector::resolve_from((address, 0).into(), listener.local_address());
    let connector = resolve().expect("a route");
    let is_system = matches!(connector.context().device().kind, DeviceKind::System { .. });
    assert_eq!(is_system, system_device().is_some());
    assert_eq!(listener.id().is_none(), is_system);
    let server = listener.local_address();
    let by_route = Connector::resolve(server).expect("a route");
    let kinds = [&connector, &by_route].map(|it| it.context().device().kind.clone());
    assert_eq!(kinds[0], kinds[1]);
    // Both have the same context, so that they can share a domain.
    let again = resolve().expect("a route");
    let (domain, completions, _memory) = resources(connector.context());
    let prepared = again.prepare(domain.queue_pair_builder(&completions));
    prepared.expect("the same device");
}

/// Polls a future in this thread until it is ready.
#[cfg(feature = "async")]
fn block_on<F: Future>(future: F) -> F::Output {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    struct Unpark(thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let start = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        assert!(start.elapsed() < TIMEOUT, "the task is not woken");
        thread::park_timeout(TIMEOUT);
    }
}

#[cfg(feature = "async")]
#[test]
fn tasks_connect_and_see_the_end() {
    let context = open();
    let listener = listen(&context);
    let server = listener.local_address();
    let accepts = thread::spawn(move || {
        block_on(async {
            let request = listener.next().await;
            let (domain, completions, memory) = resources(request.context());
            let prepared = request.prepare(domain.queue_pair_builder(&completions));
            let prepared = prepared.expect("a queue pair");
            prepared
                .post_receive(1, [memory.slice(..64)])
                .expect("room");
            let connection = prepared.accept_async(b"welcome").await.expect("a client");
            let received = completions.next().await;
            assert_eq!((received.status, received.length), (Status::Success, 5));
            connection.disconnected().await;
        });
    });
    block_on(async {
        let connector = Connector::resolve_on_async(&context, server).await;
        let (prepared, completions, _memory) = prepare(connector.expect("a route"));
        let connection = prepared.connect_async(b"").await.expect("a server");
        assert!(connection.private_data().starts_with(b"welcome"));
        let send = Request::send().inline(b"hello");
        connection.post_send(send).expect("room");
        assert_eq!(completions.next().await.status, Status::Success);
        connection.disconnect().expect("a connection");
        connection.disconnected().await;
    });
    accepts.join().expect("no panic");
}

#[cfg(feature = "async")]
#[test]
fn a_task_does_not_wait_longer_than_its_timeout() {
    let context = open();
    let listener = listen(&context);
    let start = Instant::now();
    let refused = block_on(async {
        let connector = Connector::resolve_on_async(&context, listener.local_address()).await;
        let connector = connector.expect("a route");
        let (prepared, _completions, _memory) =
            prepare(connector.timeout(Duration::from_millis(100)));
        prepared.connect_async(b"").await.err()
    });
    assert!(
        matches!(refused, Some(ConnectError::Unreachable(_))),
        "{refused:?}"
    );
    assert!(start.elapsed() >= Duration::from_millis(100));
}

#[cfg(feature = "async")]
#[test]
fn a_task_is_woken_by_a_completion() {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    struct Unpark(thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let pair = Pair::reliable();
    pair.right.receive(1, 64);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut next = pin!(pair.right.completions.next());
    assert!(next.as_mut().poll(&mut context).is_pending());
    pair.left.post(Request::send().inline(b"wake up"));
    let start = Instant::now();
    let received = loop {
        assert!(start.elapsed() < TIMEOUT, "the task is not woken");
        thread::park_timeout(TIMEOUT);
        if let Poll::Ready(completion) = next.as_mut().poll(&mut context) {
            break completion;
        }
    };
    assert_eq!((received.id, received.status), (1, Status::Success));
}

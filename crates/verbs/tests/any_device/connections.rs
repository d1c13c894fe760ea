//! Connections by the connection manager, and tasks.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rocinante::rdma_cm::{CallError, CmError, RejectReason};
use rocinante::{
    CompletedWork, Completion, CompletionQueue, ConnectError, Connection, ConnectionRequest,
    Connector, Context, DeviceKind, Listener, MemoryRegion, PreparedConnect, ProtectionDomain,
    RemoteMemory, Request, State, Status,
};

use crate::device::{is_ours, is_siw, open, system_device};
use crate::{ALL, Pair, SIZE, TIMEOUT};

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
    Listener::bind_on(context, (address_of(context), 0)).expect("a free port")
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
    let (answered, has_answered) = mpsc::channel();
    let server = thread::spawn(move || {
        let request = listener.wait_for(TIMEOUT).expect("a request");
        assert!(request.private_data().starts_with(b"who I am"));
        // iWARP tells the length of private data.
        let length = if is_siw() { 8 } else { 56 };
        assert_eq!(request.private_data().len(), length);
        assert_eq!(request.peer_address().ip(), address.ip());
        let side = accept(request);
        assert_eq!(side.connection.local_address(), Some(address));
        assert_eq!(side.completes(Status::Success).length, 7);
        assert_eq!(side.memory.to_vec(..7), b"written");
        assert_eq!(side.memory.to_vec(1000..1005), b"there");
        let back = Request::send().inline(b"received");
        side.connection.post_send(back).expect("room");
        side.completes(Status::Success);
        answered.send(()).expect("a client");
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
    // The end of the connection would flush a send that is delivered but not acknowledged yet.
    has_answered.recv_timeout(TIMEOUT).expect("an answer");
    drop(client);
    server.join().expect("no panic");
}

#[test]
fn reads_and_atomics_pass_over_a_connection() {
    let (client, server) = connected();
    let first = if is_siw() { 42_u64 } else { 40 };
    server.memory.write(8, &first.to_ne_bytes());
    if !is_siw() {
        let add = Request::fetch_add(server.memory.remote(8), 2).data(client.memory.slice(64..72));
        client.connection.post_send(add).expect("room");
        client.completes(Status::Success);
        assert_eq!(client.memory.to_vec(64..72), 40_u64.to_ne_bytes());
    }
    let read = Request::read(server.memory.remote(8)).data(client.memory.slice(72..80));
    client.connection.post_send(read).expect("room");
    client.completes(Status::Success);
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
fn a_reply_with_too_much_private_data_is_an_error() {
    let context = open();
    let listener = listen(&context);
    let server = listener.local_address();
    let accepts = || {
        let request = listener.wait_for(TIMEOUT).expect("a request");
        let (domain, completions, _memory) = resources(request.context());
        let prepared = request.prepare(domain.queue_pair_builder(&completions));
        prepared.expect("a queue pair").accept(&[0; 197]).err()
    };
    thread::scope(|scope| {
        let accepts = scope.spawn(accepts);
        let answer = connect(&context, server, b"").err();
        answer.expect("the server rejects it then");
        let refused = accepts.join().expect("no panic");
        assert!(
            matches!(
                refused,
                Some(ConnectError::Cm(CmError::Call(CallError::PrivateData(_))))
            ),
            "{refused:?}"
        );
    });
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
    if is_ours() {
        // Nobody has chosen: an address stands for a software device.
        return;
    }
    let address = address_of(&open());
    let listener = Listener::bind(SocketAddr::from((address, 0))).expect("a free port");
    let resolve = || Connector::resolve_from((address, 0).into(), listener.local_address());
    let connector = resolve().expect("a route");
    let is_system = matches!(connector.context().device().kind, DeviceKind::System { .. });
    assert_eq!(is_system, system_device().is_some());
    assert_eq!(listener.id().driver().is_none(), is_system);
    let server = listener.local_address();
    let by_route = Connector::resolve(server).expect("a route");
    let kinds = [&connector, &by_route].map(|it| it.context().device().kind.clone());
    assert_eq!(kinds[0], kinds[1]);
    // Both have the same context, so that they can share a domain.
    let again = resolve().expect("a route");
    let (domain, completions, _memory) = resources(connector.context());
    let prepared = again.prepare(domain.queue_pair_builder(&completions));
    drop(prepared.expect("the same device"));
}

/// Polls a future in this thread until it is ready.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
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

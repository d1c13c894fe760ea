//! Completions and connections awaited on a tiny executor, a thread that parks, and on that of the crate.
#![cfg(feature = "async")]

mod support;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rocinante::rdma_cm::{CmError, CmId, EventChannel, EventKind, Parameters, PortSpace};
use rocinante::{ConnectError, Connection, Connector, Listener, Qpn, QueuePair, Request, Status};
use support::{ConnectedPair, End};

/// No future here takes as long, even on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

/// By then other timers would have woken the task: the reply is repeated after four seconds.
const LATE: Duration = Duration::from_secs(3);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < LONGEST, "the task is not woken");
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park_timeout(LONGEST),
        }
    }
}

async fn echo(pair: &ConnectedPair, rounds: u64) {
    for round in 0..rounds {
        let room = pair.right.memory.slice(0..64);
        pair.from_right.post_receive(round, [room]).expect("room");
        let request = Request::send().inline(b"awaited").id(round);
        pair.from_left.post_send(request).expect("room");
        let (sent, received) = (
            pair.left.completions.next().await,
            pair.right.completions.next().await,
        );
        assert_eq!((sent.id, sent.status), (round, Status::Success));
        assert_eq!((received.id, received.status), (round, Status::Success));
    }
}

#[test]
fn awaiting_a_completion_misses_none() {
    let pair = ConnectedPair::connected("127.54.1.1", "127.54.1.2");
    block_on(echo(&pair, 500));
}

/// The thread sleeps on the sockets of one end; the device's thread serves those of the other.
#[test]
fn awaiting_a_completion_misses_none_on_the_executor_of_the_crate() {
    let pair = ConnectedPair::connected("127.54.1.16", "127.54.1.17");
    rocinante::block_on(echo(&pair, 500));
}

#[test]
fn a_future_within_a_future_runs_on_the_executor_of_the_crate() {
    let pair = ConnectedPair::connected("127.54.1.18", "127.54.1.19");
    rocinante::block_on(async {
        echo(&pair, 2).await;
        rocinante::block_on(echo(&pair, 2));
        echo(&pair, 2).await;
    });
}

/// Waits for another thread, which goes on when this task waits.
async fn await_other_thread() {
    let is_done = Arc::new(AtomicBool::new(false));
    let mut other = None;
    poll_fn(|context| {
        other.get_or_insert_with(|| {
            let (is_done, waker) = (Arc::clone(&is_done), context.waker().clone());
            thread::spawn(move || {
                // Usually the executor sleeps by then.
                thread::sleep(Duration::from_millis(5));
                is_done.store(true, Ordering::Release);
                waker.wake();
            })
        });
        if is_done.load(Ordering::Acquire) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// It parks before it knows a device, and sleeps on the sockets of one afterwards.
#[test]
fn another_thread_wakes_the_executor_of_the_crate() {
    let pair = ConnectedPair::connected("127.54.1.20", "127.54.1.21");
    rocinante::block_on(async {
        await_other_thread().await;
        echo(&pair, 1).await;
        await_other_thread().await;
    });
}

/// Ends a task when it is woken, in the thread that wakes it.
struct EndTask {
    owned: Mutex<Option<(End, QueuePair)>>,
    ended: mpsc::Sender<(Option<String>, bool)>,
}

impl Wake for EndTask {
    fn wake(self: Arc<Self>) {
        let owned = self.owned.lock().expect("no panic").take();
        let outcome = catch_unwind(AssertUnwindSafe(|| drop(owned)));
        let thread = thread::current().name().map(str::to_owned);
        let _ = self.ended.send((thread, outcome.is_ok()));
    }
}

#[test]
fn a_thread_of_the_device_may_close_the_device_when_it_wakes_a_task() {
    let ConnectedPair {
        left: _kept,
        right,
        from_left,
        from_right,
    } = ConnectedPair::connected("127.54.1.13", "127.54.1.14");
    let room = right.memory.slice(0..64);
    from_right.post_receive(1, [room]).expect("room");
    let (ended, has_ended) = mpsc::channel();
    let task = Arc::new(EndTask {
        owned: Mutex::default(),
        ended,
    });
    let waker = Waker::from(Arc::clone(&task));
    let next = pin!(right.completions.next()).poll(&mut Context::from_waker(&waker));
    assert!(next.is_pending());
    *task.owned.lock().expect("no panic") = Some((right, from_right));
    let last_words = Request::send().inline(b"the last words");
    from_left.post_send(last_words).expect("room");
    let (thread, is_closed) = has_ended.recv_timeout(LONGEST).expect("a wake-up");
    assert_eq!(thread.as_deref(), Some("roci"));
    assert!(is_closed, "dropping it panics");
}

async fn accept(listener: &Listener) -> Connection {
    let request = listener.next().await;
    let context = request.context().clone();
    let (domain, completions) = (
        context.allocate_protection_domain(),
        context.create_completion_queue(8),
    );
    let builder = domain
        .expect("room")
        .queue_pair_builder(&completions.expect("room"));
    let prepared = request.prepare(builder).expect("room");
    prepared.accept_async(b"awaited").await.expect("a client")
}

async fn connect(source: &str, address: SocketAddr) -> Connection {
    let source = source.parse().expect("an address");
    let connector = Connector::resolve_from_async(source, address).await;
    let connector = connector.expect("a route");
    let context = connector.context().clone();
    let (domain, completions) = (
        context.allocate_protection_domain(),
        context.create_completion_queue(8),
    );
    let builder = domain
        .expect("room")
        .queue_pair_builder(&completions.expect("room"));
    let prepared = connector.prepare(builder).expect("room");
    let connection = prepared.connect_async(b"").await.expect("a server");
    assert!(connection.private_data().starts_with(b"awaited"));
    connection
}

#[test]
fn both_sides_of_a_connection_can_be_awaited() {
    let listener = Listener::bind("127.54.1.3:0").expect("a port");
    let address = listener.local_address();
    let client = thread::spawn(move || {
        for _ in 0..50 {
            block_on(async {
                let connection = connect("127.54.1.4:0", address).await;
                connection.disconnect().expect("it was connected");
                connection.disconnected().await;
            });
        }
    });
    for _ in 0..50 {
        block_on(async { accept(&listener).await.disconnected().await });
    }
    client.join().expect("no panic");
}

#[test]
fn everybody_who_waits_for_the_end_of_a_connection_sees_it() {
    let listener = Listener::bind("127.54.1.11:0").expect("a port");
    let address = listener.local_address();
    let client = connect("127.54.1.12:0", address);
    let (server, client) = block_on(async { tokio::join!(accept(&listener), client) });
    let mut waiting = [(); 2].map(|()| Box::pin(server.disconnected()));
    let mut context = Context::from_waker(Waker::noop());
    for task in &mut waiting {
        assert!(task.as_mut().poll(&mut context).is_pending());
    }
    client.disconnect().expect("it was connected");
    assert!(server.wait_disconnected(LONGEST), "a thread sees it");
    for task in waiting {
        block_on(task);
    }
}

#[test]
fn awaiting_a_route_finds_the_device() {
    let peer = "127.54.1.9:7174".parse().expect("an address");
    let connector = block_on(Connector::resolve_async(peer)).expect("a route");
    assert!(connector.context().device().name.contains("lo"));
    let context = rocinante::Context::open("127.54.1.10").expect("a device");
    let on = block_on(Connector::resolve_on_async(&context, peer)).expect("a route");
    assert_eq!(on.context().device(), context.device());
}

#[test]
fn awaiting_a_route_that_does_not_exist_is_an_error() {
    // No host has the broadcast address.
    let nowhere = "255.255.255.255:7174".parse().expect("an address");
    let rejected = block_on(Connector::resolve_async(nowhere));
    assert!(
        matches!(rejected, Err(ConnectError::Cm(CmError::NoRoute { .. }))),
        "{rejected:?}"
    );
}

#[test]
fn awaiting_a_route_from_an_address_without_a_device_names_the_missing_device() {
    let context = rocinante::Context::open("127.54.1.10").expect("a device");
    let outside = "192.0.2.1:7174".parse().expect("an address");
    let rejected = block_on(Connector::resolve_on_async(&context, outside));
    let Err(ConnectError::Cm(error @ CmError::NoDeviceTowards(_))) = rejected else {
        panic!("{rejected:?}");
    };
    let text = error.to_string();
    assert!(text.contains("has a route to 192.0.2.1:"), "{text}");
}

/// A client that hears the reply and never confirms it.
fn silent_client(address: SocketAddr) -> (EventChannel, CmId) {
    let wait = Duration::from_secs(10);
    let source = "127.54.1.6:0".parse().expect("an address");
    let channel = EventChannel::new().expect("a channel");
    let silent = channel.create_id(PortSpace::Tcp);
    silent
        .resolve_address(Some(source), address, wait)
        .expect("an address of this machine");
    assert_eq!(channel.wait().kind, EventKind::AddressResolved);
    silent.resolve_route(wait).expect("a way");
    assert_eq!(channel.wait().kind, EventKind::RouteResolved);
    silent
        .connect(&Parameters::new(Qpn::new(0x77)))
        .expect("a request");
    (channel, silent)
}

#[test]
fn awaiting_a_client_that_never_confirms_ends_at_the_timeout() {
    let listener = Listener::bind("127.54.1.5:0").expect("a port");
    let (channel, _silent) = silent_client(listener.local_address());
    let request = block_on(listener.next());
    let context = request.context().clone();
    let (domain, completions) = (
        context.allocate_protection_domain(),
        context.create_completion_queue(8),
    );
    let builder = domain
        .expect("room")
        .queue_pair_builder(&completions.expect("room"));
    let timeout = Duration::from_millis(300);
    let prepared = request.prepare(builder).expect("room").timeout(timeout);
    let start = Instant::now();
    let refused = block_on(prepared.accept_async(b""));
    let took = start.elapsed();
    assert!(
        matches!(refused, Err(ConnectError::NotConfirmed { timeout: it, .. }) if it == timeout),
        "{refused:?}"
    );
    // The connection manager would wait for minutes.
    assert!(took >= timeout && took < LATE, "{took:?}");
    assert!(matches!(channel.wait().kind, EventKind::ConnectResponse(_)));
    assert!(matches!(channel.wait().kind, EventKind::Rejected { .. }));
}

#[test]
fn awaiting_a_server_that_never_answers_ends_at_the_timeout() {
    let listener = Listener::bind("127.54.1.7:0").expect("a port");
    let source = "127.54.1.8:0".parse().expect("an address");
    let connector = Connector::resolve_from(source, listener.local_address()).expect("a way");
    let context = connector.context().clone();
    let (domain, completions) = (
        context.allocate_protection_domain(),
        context.create_completion_queue(8),
    );
    let builder = domain
        .expect("room")
        .queue_pair_builder(&completions.expect("room"));
    let timeout = Duration::from_millis(300);
    let prepared = connector.timeout(timeout).prepare(builder).expect("room");
    let start = Instant::now();
    // The listener gets the request and does not answer.
    let refused = block_on(prepared.connect_async(b""));
    let took = start.elapsed();
    assert!(
        matches!(refused, Err(ConnectError::Unreachable(_))),
        "{refused:?}"
    );
    assert!(took >= timeout && took < LATE, "{took:?}");
}

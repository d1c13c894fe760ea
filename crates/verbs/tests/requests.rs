//! A future for each request: results, room, order, cancellation, deadlines and the end of a connection, on several executors.
#![cfg(feature = "async")]

mod support;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread;
use std::time::Duration;

use rocinante::{
    Connection, Connector, Context, Listener, MemoryRegion, Outstanding, PostError,
    ProtectionDomain, Request, RequestError, Requests, Status,
};
use support::{ALL, TIMEOUT};
use tokio::runtime::{Builder, Runtime};

/// Long enough for a request to be complete, if it ever is.
const MOMENT: Duration = Duration::from_millis(100);

/// One end, with a future for each request.
struct End {
    requests: Requests,
    memory: MemoryRegion,
    _domain: ProtectionDomain,
}

/// Two connected ends of this depth. With one address, both are at one device.
fn pair([left, right]: [&str; 2], depth: u32) -> (End, End) {
    let prepare = |address: &str| {
        let context = Context::open(address).expect("a loopback address");
        let domain = context.allocate_protection_domain().expect("room");
        let memory = domain.allocate_memory(1 << 16, ALL).expect("room");
        let builder = domain.requests_builder().depth(depth, depth);
        (builder.create_reliable().expect("room"), memory, domain)
    };
    let (left, right) = (prepare(left), prepare(right));
    let (here, there) = (left.0.endpoint(), right.0.endpoint());
    let connect = |(prepared, memory, domain): (rocinante::PreparedRequests, _, _), peer| End {
        requests: prepared.connect(peer).expect("a peer"),
        memory,
        _domain: domain,
    };
    (connect(left, there), connect(right, here))
}

fn number(end: &End, offset: usize) -> u64 {
    let bytes = end.memory.to_vec(offset..offset + 8);
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

fn poll_once<T>(request: &mut Outstanding<T>) -> Poll<Result<T, RequestError>> {
    pin!(request).poll(&mut TaskContext::from_waker(Waker::noop()))
}

/// One of each kind.
async fn use_all(left: &End, right: &End) -> Result<(), RequestError> {
    let (ours, theirs) = (&left.memory, &right.memory);
    ours.write(0, b"a message");
    let message = right.requests.receive(theirs.slice(..64));
    left.requests.send(ours.slice(..9)).await?;
    assert_eq!(message.await?.length, 9);
    assert_eq!(theirs.to_vec(..9), b"a message");

    left.requests.write(b"inline", theirs.remote(64)).await?;
    let parts = [ours.slice(128..130), ours.slice(130..134)];
    left.requests.read(theirs.remote(64), parts).await?;
    assert_eq!(ours.to_vec(128..134), b"inline");
    left.requests.write(parts, theirs.remote(72)).await?;
    assert_eq!(theirs.to_vec(72..78), b"inline");

    let word = theirs.remote(256);
    let before = number(right, 256);
    assert_eq!(left.requests.fetch_add(word, 5).await?, before);
    let swap = |expected, new| left.requests.compare_and_swap(word, expected, new);
    assert_eq!(swap(before, 9).await?, before + 5, "not swapped");
    assert_eq!(swap(before + 5, 9).await?, before + 5);
    assert_eq!(number(right, 256), 9);

    let message = right.requests.receive(theirs.slice(..64));
    let request = Request::write_with_immediate(theirs.remote(80), *b"seen");
    let request = request.inline(b"x").solicited().unsignaled();
    assert_eq!(
        left.requests.request(request).await?.status,
        Status::Success
    );
    assert_eq!(message.await?.immediate, Some(*b"seen"));
    Ok(())
}

#[test]
fn each_request_resolves_to_its_own_result() {
    let (left, right) = pair(["127.52.1.1", "127.52.1.2"], 16);
    for _ in 0..50 {
        rocinante::block_on(use_all(&left, &right)).expect("success");
    }
}

#[test]
fn each_request_within_one_device_resolves_to_its_own_result() {
    let (left, right) = pair(["127.52.1.3", "127.52.1.3"], 16);
    for _ in 0..50 {
        rocinante::block_on(use_all(&left, &right)).expect("success");
    }
}

#[test]
fn each_request_resolves_on_both_kinds_of_tokio() {
    let (left, right) = pair(["127.52.1.4", "127.52.1.5"], 16);
    for runtime in [current_thread(), multi_thread()] {
        for _ in 0..50 {
            runtime.block_on(use_all(&left, &right)).expect("success");
        }
    }
}

fn current_thread() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Nobody has to know how many requests the queue takes.
#[test]
fn requests_beyond_the_depth_wait_for_room_and_keep_their_order() {
    let (left, right) = pair(["127.52.1.6", "127.52.1.7"], 4);
    let place = |number: usize| right.memory.slice(8 * number..8 * number + 8);
    let messages: Vec<_> = (0..200)
        .map(|it| right.requests.receive(place(it)))
        .collect();
    let sends: Vec<_> = (0..200_u64)
        .map(|it| left.requests.send(&it.to_ne_bytes()))
        .collect();
    // The last are awaited first.
    rocinante::block_on(async {
        for request in sends.into_iter().rev() {
            request.await.expect("success");
        }
        for message in messages.into_iter().rev() {
            assert_eq!(message.await.expect("success").length, 8);
        }
    });
    for it in 0..200 {
        assert_eq!(number(&right, 8 * it), it as u64);
    }
}

#[test]
fn requests_are_waited_for_without_async() {
    let (left, right) = pair(["127.52.1.8", "127.52.1.9"], 4);
    let message = right.requests.receive(right.memory.slice(..8));
    let (to, written) = (right.memory.remote(64), b"blocking");
    left.requests.write(written, to).wait().expect("success");
    left.requests
        .send(b"end")
        .wait_for(TIMEOUT)
        .expect("success");
    assert_eq!(message.wait().expect("success").length, 3);
    assert_eq!(right.memory.to_vec(64..72), written);
    // Several threads wait at once.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let word = right.memory.remote(256);
                    left.requests.fetch_add(word, 1).wait().expect("success");
                }
            });
        }
    });
    assert_eq!(number(&right, 256), 800);
}

#[test]
fn many_tasks_share_a_connection() {
    let (left, right) = pair(["127.52.1.10", "127.52.1.11"], 4);
    let left = Arc::new(left);
    let runtime = multi_thread();
    let word = right.memory.remote(256);
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let left = Arc::clone(&left);
            runtime.spawn(async move {
                let mut seen = Vec::new();
                for _ in 0..50 {
                    seen.push(left.requests.fetch_add(word, 1).await.expect("success"));
                }
                seen
            })
        })
        .collect();
    let mut seen = runtime.block_on(async {
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.expect("no panic"));
        }
        all
    });
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..800), "each value once");
}

/// A task on one executor and a thread on another wait for requests of one connection.
#[test]
fn a_request_on_one_executor_does_not_keep_another_one_waiting() {
    let (left, right) = pair(["127.52.1.12", "127.52.1.13"], 4);
    let late = left.requests.receive(left.memory.slice(..8));
    thread::scope(|scope| {
        let waits = scope.spawn(|| current_thread().block_on(late));
        for _ in 0..200 {
            let to = right.memory.remote(0);
            left.requests.write(b"x", to).wait().expect("success");
        }
        right.requests.send(b"late").wait().expect("success");
        let received = waits.join().expect("no panic").expect("success");
        assert_eq!(received.length, 4);
    });
}

/// A SEND is outstanding until the peer has a receive.
#[test]
fn a_dropped_request_is_executed_and_keeps_nothing_from_others() {
    let (left, right) = pair(["127.52.1.14", "127.52.1.15"], 2);
    let mut polled = left.requests.send(b"polled");
    assert!(poll_once(&mut polled).is_pending());
    let unpolled = left.requests.send(b"unpolled");
    let mut waiting = left.requests.send(b"it waits for room");
    assert!(poll_once(&mut waiting).is_pending());
    let never_posted = left.requests.send(b"so does this");
    let last = left.requests.send(b"last");
    drop((polled, unpolled, waiting, never_posted));
    let receive = |at: usize| right.requests.receive(right.memory.slice(at..at + 64));
    let lengths = [0, 64, 128].map(|at| receive(at).wait().expect("success").length);
    assert_eq!(
        lengths,
        [6, 8, 4],
        "those that wait for room are not posted"
    );
    last.wait().expect("success");
    // And one that is complete.
    let to = right.memory.remote(0);
    let done = left.requests.write(b"done", to);
    left.requests.write(b"next", to).wait().expect("success");
    drop(done);
    left.requests.write(b"more", to).wait().expect("success");
}

/// Requests that are dropped must not use up the queue, although nobody takes their completions.
#[test]
fn requests_that_nobody_awaits_are_executed() {
    let (left, right) = pair(["127.52.1.16", "127.52.1.17"], 4);
    for _ in 0..100 {
        drop(left.requests.fetch_add(right.memory.remote(256), 1));
        let to = right.memory.remote(0);
        left.requests.write(b"x", to).wait().expect("success");
    }
    assert_eq!(number(&right, 256), 100);
}

#[test]
fn a_deadline_ends_the_wait_and_not_the_request() {
    let (left, right) = pair(["127.52.1.18", "127.52.1.19"], 4);
    let receive = |at: usize| right.requests.receive(right.memory.slice(at..at + 64));
    for runs_on_tokio in [false, true] {
        let late = receive(0).within(MOMENT);
        let late = if runs_on_tokio {
            current_thread().block_on(late)
        } else {
            late.wait()
        };
        assert_eq!(late, Err(RequestError::TimedOut));
    }
    let next = receive(64);
    // Two receives that timed out take two messages.
    for message in [&b"first"[..], b"second", b"the third"] {
        left.requests.send(message).wait_for(TIMEOUT).expect("room");
    }
    assert_eq!(next.wait_for(TIMEOUT).expect("a message").length, 9);
    assert_eq!(right.memory.to_vec(..6), b"second");
    let in_time = receive(0).within(TIMEOUT);
    left.requests.send(b"in time").wait().expect("success");
    assert_eq!(in_time.wait().expect("a message").length, 7);
}

/// The program's mistake is that of one request.
#[test]
fn a_request_that_is_rejected_says_so_and_others_go_on() {
    let (left, right) = pair(["127.52.1.20", "127.52.1.21"], 4);
    let long = [0; 4096];
    let rejected = left.requests.write(&long, right.memory.remote(0)).wait();
    let too_long = RequestError::Rejected(PostError::InlineTooLong { max: 256 });
    assert_eq!(rejected, Err(too_long));
    let written = left.requests.write(b"short", right.memory.remote(0));
    written.wait().expect("success");
}

#[test]
fn a_request_that_fails_says_why_and_those_behind_it_are_flushed() {
    let (left, right) = pair(["127.52.1.22", "127.52.1.23"], 4);
    let mut nowhere = right.memory.remote(0);
    nowhere.key = rocinante::Key::new(nowhere.key.value() ^ 0xff);
    let requests = [(); 12].map(|()| left.requests.write(b"x", nowhere));
    let mut results = requests.map(Outstanding::wait).into_iter();
    let first = results.next();
    assert_eq!(first, Some(Err(RequestError::Failed(Status::RemoteAccess))));
    let flushed = RequestError::Failed(Status::Flushed);
    assert!(results.all(|it| it == Err(flushed.clone())));
}

#[test]
fn dropping_the_queue_pair_fails_its_requests() {
    let (left, right) = pair(["127.52.1.24", "127.52.1.25"], 1);
    let message = left.requests.receive(left.memory.slice(..8));
    let waiting = left.requests.receive(left.memory.slice(..8));
    let waits = thread::spawn(move || message.wait());
    thread::sleep(MOMENT);
    drop(left);
    let closed = Err(RequestError::Closed);
    assert_eq!(waits.join().expect("no panic"), closed);
    assert_eq!(waiting.wait(), closed);
    drop(right);
}

/// A connection of which both ends await their requests.
async fn connection([here, there]: [&str; 2]) -> [(Connection<Requests>, MemoryRegion); 2] {
    let listener = Listener::bind((there, 0)).expect("a port");
    let server = listener.local_address();
    let accept = async {
        let request = listener.next().await;
        let domain = request.context().allocate_protection_domain();
        let domain = domain.expect("room");
        let memory = domain.allocate_memory(64, ALL).expect("room");
        let prepared = request.prepare(domain.requests_builder()).expect("room");
        let message = prepared.receive(memory.slice(..32));
        let accepted = prepared.accept_async(b"").await.expect("a client");
        assert_eq!(message.await.expect("a message").length, 5);
        (accepted, memory)
    };
    let connect = async {
        let source = std::net::SocketAddr::new(here.parse().expect("an address"), 0);
        let connector = Connector::resolve_from_async(source, server).await;
        let connector = connector.expect("a route");
        let domain = connector.context().allocate_protection_domain();
        let domain = domain.expect("room");
        let memory = domain.allocate_memory(64, ALL).expect("room");
        let prepared = connector.prepare(domain.requests_builder()).expect("room");
        let connected = prepared.connect_async(b"").await.expect("a server");
        connected.send(b"hello").await.expect("success");
        (connected, memory)
    };
    let (connected, accepted) = tokio::join!(connect, accept);
    [connected, accepted]
}

#[test]
fn the_end_of_a_peer_fails_every_request() {
    for runtime in [current_thread(), multi_thread()] {
        let [(client, memory), (server, _)] =
            runtime.block_on(connection(["127.52.1.26", "127.52.1.27"]));
        let receives = [0, 8, 16].map(|at| client.receive(memory.slice(at..at + 8)));
        // It has no receive.
        let send = client.send(b"unheard");
        let waits = runtime.spawn(async move {
            let mut results = Vec::new();
            for request in receives {
                results.push(request.await.map(|_| ()));
            }
            results.push(send.await);
            results
        });
        drop(server);
        let results = runtime.block_on(waits).expect("no panic");
        let flushed = Err(RequestError::Failed(Status::Flushed));
        assert_eq!(results, vec![flushed.clone(); 4]);
        assert_eq!(client.send(b"more").wait(), flushed);
    }
}

#[test]
fn a_connection_of_requests_shuts_down_in_good_order() {
    let runtime = current_thread();
    let [(client, _), (server, memory)] =
        runtime.block_on(connection(["127.52.1.28", "127.52.1.29"]));
    let message = server.receive(memory.slice(..8));
    let send = client.send(b"last");
    runtime.block_on(async {
        client.shutdown_async(TIMEOUT).await.expect("in time");
        assert_eq!(message.await.expect("a message").length, 4);
        send.await.expect("success");
        server.disconnected().await;
    });
}

/// The task that takes the completions of all may end at any time.
#[test]
fn a_task_that_is_cancelled_leaves_nothing_behind_that_others_wait_for() {
    let (left, right) = pair(["127.52.1.30", "127.52.1.31"], 8);
    let runtime = current_thread();
    let to = right.memory.remote(0);
    runtime.block_on(async {
        for round in 0..300 {
            let others = [(); 3].map(|()| left.requests.write(b"x", to));
            let mut cancelled = left.requests.write(b"y", to);
            let mut polls = 0;
            // Polled some times, and dropped.
            poll_fn(|context| {
                polls += 1;
                let polled = pin!(&mut cancelled).poll(context);
                if polls > round % 3 || polled.is_ready() {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            drop(cancelled);
            for other in others {
                other.await.expect("success");
            }
        }
    });
}

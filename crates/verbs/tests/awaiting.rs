//! Completions and connections awaited on a tiny executor: a thread that parks.
#![cfg(feature = "async")]

mod support;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use rocinante::{Connector, Listener, Request, Status};
use support::Couple;

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
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

async fn echo(couple: &Couple, rounds: u64) {
    for round in 0..rounds {
        let room = couple.right.memory.slice(0..64);
        couple.from_right.post_receive(round, [room]).expect("room");
        let request = Request::send().inline(b"awaited").id(round);
        couple.from_left.post(request).expect("room");
        let (sent, received) = (
            couple.left.completions.next().await,
            couple.right.completions.next().await,
        );
        assert_eq!((sent.id, sent.status), (round, Status::Success));
        assert_eq!((received.id, received.status), (round, Status::Success));
    }
}

#[test]
fn awaiting_a_completion_misses_none() {
    let couple = Couple::connected("127.54.1.1", "127.54.1.2");
    block_on(echo(&couple, 500));
}

async fn accept(listener: &Listener) {
    let request = listener.next().await;
    let context = request.context().clone();
    let (domain, completions) = (context.protection_domain(), context.completion_queue(8));
    let builder = domain
        .expect("room")
        .queue_pair(&completions.expect("room"));
    let prepared = request.prepare(builder).expect("room");
    let connection = prepared.accept_async(b"awaited").await.expect("a client");
    connection.disconnected().await;
}

async fn connect(address: SocketAddr) {
    let source = "127.54.1.4:0".parse().expect("an address");
    let connector = Connector::resolve_from(source, address).expect("a way");
    let context = connector.context().clone();
    let (domain, completions) = (context.protection_domain(), context.completion_queue(8));
    let builder = domain
        .expect("room")
        .queue_pair(&completions.expect("room"));
    let prepared = connector.prepare(builder).expect("room");
    let connection = prepared.connect_async(b"").await.expect("a server");
    assert!(connection.private_data().starts_with(b"awaited"));
    connection.disconnect().expect("it was connected");
    connection.disconnected().await;
}

#[test]
fn both_sides_of_a_connection_can_be_awaited() {
    let listener = Listener::bind("127.54.1.3:0").expect("a port");
    let address = listener.local_address();
    let client = thread::spawn(move || {
        for _ in 0..50 {
            block_on(connect(address));
        }
    });
    for _ in 0..50 {
        block_on(accept(&listener));
    }
    client.join().expect("no panic");
}

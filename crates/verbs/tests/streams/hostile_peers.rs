//! Peers that speak no stream protocol, or violate it.

use std::io::{ErrorKind, Read, Write};
use std::thread;

use rocinante::{
    Access, ConnectError, Connection, Listener, MemoryRegion, Requests, Stream, StreamOptions,
};

use crate::{TIMEOUT, listen};

/// The private data of a stream of version 1 with this many buffers of this size.
fn offer(buffers: u16, size: u32) -> Vec<u8> {
    let mut offer = b"rstm\0\x01".to_vec();
    offer.extend(buffers.to_be_bytes());
    offer.extend(size.to_be_bytes());
    offer
}

/// A message of this kind with these credits.
fn message(kind: u32, credits: u32, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &credits.to_be_bytes(), data].concat()
}

/// A client made by hand, and memory for one receive, which nobody posts again.
struct ByHand {
    connection: Connection<Requests>,
    _memory: MemoryRegion,
}

/// A server's stream with four buffers of 100 bytes, and a client made by hand that says to have two of 64.
fn with_client_by_hand(network: u8) -> (Stream, ByHand) {
    let (listener, connector) = listen(network);
    let server = thread::spawn(move || {
        let options = StreamOptions::default().buffers(4, 100);
        options.accept(listener.wait()).expect("a client")
    });
    let connector = connector();
    let domain = connector
        .context()
        .allocate_protection_domain()
        .expect("room");
    let memory = domain
        .allocate_memory(1024, Access::LOCAL_WRITE)
        .expect("room");
    let prepared = connector.prepare(domain.requests_builder()).expect("room");
    for number in 0..8 {
        drop(prepared.receive(memory.slice(128 * number..128 * (number + 1))));
    }
    let connection = prepared.connect(&offer(2, 64)).expect("a server");
    let stream = server.join().expect("no panic");
    stream.set_read_timeout(Some(TIMEOUT)).expect("not zero");
    stream.set_write_timeout(Some(TIMEOUT)).expect("not zero");
    let by_hand = ByHand {
        connection,
        _memory: memory,
    };
    (stream, by_hand)
}

/// The client sends messages, of which the last is a violation. What came before is read, and both directions fail.
fn violates(network: u8, messages: &[Vec<u8>], before: &[u8], text: &str) {
    let (mut stream, client) = with_client_by_hand(network);
    let sends: Vec<_> = messages
        .iter()
        .map(|message| client.connection.send(&message[..]))
        .collect();
    // All are there before the first is read, which would free a buffer.
    for send in sends {
        let _ = send.wait_for(TIMEOUT);
    }
    let mut read = vec![0; before.len()];
    stream.read_exact(&mut read).expect("it has arrived");
    assert_eq!(read, before);
    for _ in 0..2 {
        let error = stream.read(&mut [0]).expect_err("a violation");
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    let error = stream.write(b"hello").expect_err("a violation");
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    let error = stream.finish().expect_err("a violation");
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    assert!(client.connection.wait_disconnected(TIMEOUT), "it is told");
}

#[test]
fn a_message_without_a_whole_header_is_a_violation() {
    violates(31, &[message(0, 0, b"ok"), vec![0; 7]], b"ok", "too short");
    violates(31, &[Vec::new()], b"", "too short");
}

#[test]
fn a_message_that_exceeds_its_buffer_is_a_violation() {
    violates(32, &[message(0, 0, &[0; 93])], b"", "longer than");
}

#[test]
fn an_unknown_kind_is_a_violation() {
    violates(33, &[message(2, 0, b"x")], b"", "unknown kind");
}

#[test]
fn credits_for_nothing_are_a_violation() {
    violates(34, &[message(0, 1, b"")], b"", "frees more buffers");
    violates(34, &[message(0, u32::MAX, b"x")], b"", "frees more buffers");
    violates(34, &[message(0, 0, b"")], b"", "says nothing");
}

/// There are receives for messages without data, which it misuses.
#[test]
fn more_messages_than_buffers_are_a_violation() {
    let data = || message(0, 0, b"x");
    violates(
        35,
        &[data(), data(), data(), data(), data()],
        b"xxxx",
        "more messages",
    );
}

#[test]
fn data_after_the_end_is_a_violation() {
    let (mut stream, client) = with_client_by_hand(36);
    let messages = [message(1, 0, b""), message(0, 0, b"x")];
    let sends: Vec<_> = messages
        .iter()
        .map(|message| client.connection.send(&message[..]))
        .collect();
    assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
    assert!(stream_fails(&mut stream), "it may not go on");
    drop(sends);
    violates(36, &[message(1, 0, b"x")], b"", "end of its stream");
}

/// Writes until that fails, because reads are at the end.
fn stream_fails(stream: &mut Stream) -> bool {
    (0..3).any(|_| {
        let failed = stream.write(b"y");
        failed.is_err_and(|error| error.kind() == ErrorKind::InvalidData)
    })
}

/// As a TCP peer that never reads: the writer blocks, and its timeout ends that.
#[test]
fn a_peer_that_gives_no_credits_is_a_timeout() {
    let (mut stream, _client) = with_client_by_hand(37);
    let moment = std::time::Duration::from_millis(50);
    stream.set_write_timeout(Some(moment)).expect("not zero");
    let error = stream.write_all(&[0; 1000]).expect_err("two buffers");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

/// Accepts one client, with this private data.
fn accept_by_hand(listener: &Listener, private_data: &[u8]) {
    let request = listener.wait();
    let context = request.context().clone();
    let domain = context.allocate_protection_domain().expect("room");
    let prepared = request.prepare(domain.requests_builder()).expect("room");
    // The client may leave before the connection is confirmed.
    if let Ok(connection) = prepared.accept(private_data) {
        assert!(connection.wait_disconnected(TIMEOUT), "the client goes");
    }
}

#[test]
fn a_server_that_speaks_something_else_is_a_typed_error() {
    let (listener, connector) = listen(38);
    let mut newer = offer(4, 100);
    newer[5] = 2;
    let answers = [
        (b"welcome".to_vec(), None),
        (Vec::new(), None),
        (offer(0, 100), None),
        (offer(4, 63), None),
        (newer, Some(2)),
    ];
    thread::scope(|scope| {
        scope.spawn(|| {
            for (answer, _) in &answers {
                accept_by_hand(&listener, answer);
            }
        });
        for (_, expected) in &answers {
            let refused = StreamOptions::default().connect(connector());
            let error = refused.expect_err("no stream");
            assert!(
                matches!(error, ConnectError::NotStream { version, .. } if version == *expected),
                "{error:?}"
            );
        }
    });
}

#[test]
fn a_client_that_speaks_something_else_is_rejected_and_the_next_is_served() {
    let (listener, connector) = listen(39);
    thread::scope(|scope| {
        scope.spawn(|| {
            let connector = connector();
            let context = connector.context().clone();
            let domain = context.allocate_protection_domain().expect("room");
            let prepared = connector.prepare(domain.requests_builder()).expect("room");
            let error = prepared.connect(b"hello").expect_err("a stream");
            assert!(error.to_string().contains("only streams"), "{error}");
        });
        let error = Stream::accept(listener.wait()).expect_err("no stream");
        assert!(
            matches!(error, ConnectError::NotStream { version: None, .. }),
            "{error:?}"
        );
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            let stream = StreamOptions::default().connect(connector());
            stream.expect("a server").finish().expect("a peer");
        });
        let mut stream = Stream::accept(listener.wait()).expect("a client");
        assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
    });
}

//! Byte streams on real devices: threads, tasks of tokio, ends, failures, and peers that are none.
#![cfg(feature = "async")]

mod hostile_peers;
#[cfg(feature = "tokio")]
mod tasks;

use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rocinante::{Connector, Listener, Stream, StreamOptions};

/// No call takes as long, even on a busy machine, unless it hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Long enough for bytes to arrive, if they ever do.
const MOMENT: Duration = Duration::from_millis(100);

/// Names the server to the program that is killed.
const SERVER: &str = "ROCI_TEST_STREAM_SERVER";

/// A server's listener at an address of its own, and a connector of a client with another one.
fn listen(network: u8) -> (Listener, impl Fn() -> Connector) {
    let address = move |host: u8| SocketAddr::from(([127, 66, network, host], 0));
    let listener = Listener::bind(address(1)).expect("a loopback address");
    let server = listener.local_address();
    (listener, move || {
        Connector::resolve_from(address(2), server).expect("a route")
    })
}

/// A client and a server with these buffers.
fn pair(network: u8, options: [StreamOptions; 2]) -> (Stream, Stream) {
    let (listener, connector) = listen(network);
    let accepting = thread::spawn(move || options[1].accept(listener.wait()).expect("a client"));
    let client = options[0].connect(connector()).expect("a server");
    let server = accepting.join().expect("no panic");
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(TIMEOUT)).expect("not zero");
        stream.set_write_timeout(Some(TIMEOUT)).expect("not zero");
    }
    (client, server)
}

fn default_pair(network: u8) -> (Stream, Stream) {
    pair(network, [StreamOptions::default(); 2])
}

/// Numbers in the place of randomness: the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

fn byte(at: u64) -> u8 {
    ((at * 31) >> 3) as u8 ^ at as u8
}

fn bytes(total: u64) -> Vec<u8> {
    (0..total).map(byte).collect()
}

/// Writes bytes in parts of any size, with stops, and finishes.
fn write_parts(mut stream: &Stream, total: u64, largest: u64, seed: u64) {
    let (bytes, mut numbers) = (bytes(total), Numbers(seed));
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let length = rest.len().min(1 + numbers.below(largest) as usize);
        stream.write_all(&rest[..length]).expect("a peer");
        rest = &rest[length..];
        stop(&mut numbers);
    }
    stream.finish().expect("a peer");
}

fn read_parts(mut stream: &Stream, total: u64, largest: u64, seed: u64) {
    let (mut at, mut numbers) = (0, Numbers(seed));
    loop {
        let mut into = vec![0; 1 + numbers.below(largest) as usize];
        let length = stream.read(&mut into).expect("a peer");
        if length == 0 {
            assert_eq!(at, total);
            return;
        }
        for read in &into[..length] {
            assert_eq!(*read, byte(at), "at {at}");
            at += 1;
        }
        stop(&mut numbers);
    }
}

fn stop(numbers: &mut Numbers) {
    if numbers.below(100) == 0 {
        thread::sleep(Duration::from_micros(numbers.below(2000)));
    }
}

/// Two threads read and write at once at each end.
fn exchange((client, server): &(Stream, Stream), total: u64, largest: u64) {
    thread::scope(|scope| {
        for (number, stream) in [client, server].into_iter().enumerate() {
            let seed = number as u64;
            scope.spawn(move || write_parts(stream, total, largest, seed));
            scope.spawn(move || read_parts(stream, total, largest, seed + 7));
        }
    });
}

#[test]
fn two_threads_at_each_end_read_and_write_at_once() {
    exchange(&default_pair(1), 4 << 20, 100_000);
}

#[test]
fn a_single_small_buffer_is_enough() {
    let options = StreamOptions::default().buffers(0, 0);
    exchange(&pair(2, [options; 2]), 50_000, 300);
}

#[test]
fn ends_with_other_buffers_agree() {
    let (few, many) = (
        StreamOptions::default().buffers(2, 100),
        StreamOptions::default().buffers(100, 5000),
    );
    exchange(&pair(3, [few, many]), 200_000, 9000);
    exchange(&pair(3, [many, few]), 200_000, 9000);
}

#[test]
fn an_end_is_read_after_all_bytes_and_the_other_direction_goes_on() {
    let (mut client, mut server) = default_pair(4);
    client.write_all(b"a question").expect("a peer");
    client.finish().expect("a peer");
    client.finish().expect("it is done");
    let error = client.write(b"more").expect_err("it is finished");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
    let mut question = String::new();
    server.read_to_string(&mut question).expect("a peer");
    assert_eq!(question, "a question");
    assert_eq!(server.read(&mut [0]).expect("the end stays"), 0);
    assert_eq!(server.fill_buf().expect("the end stays"), b"");

    // Far more than the buffers hold: credits still come.
    let answer = bytes(3 << 20);
    let expected = answer.clone();
    let answering = thread::spawn(move || {
        server.write_all(&answer).expect("a peer");
        server.finish().expect("a peer");
        // What is acknowledged stays with the peer.
        drop(server);
    });
    let mut read = Vec::new();
    client.read_to_end(&mut read).expect("a peer");
    assert!(read == expected);
    answering.join().expect("no panic");
    let mut nothing = [0];
    let error = client.read_exact(&mut nothing).expect_err("the end");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
}

/// Writes until the peer's buffers are full. Returns how much.
fn fill(mut stream: &Stream) -> u64 {
    stream.set_write_timeout(Some(MOMENT)).expect("not zero");
    let mut at = 0;
    loop {
        let part: Vec<u8> = (at..at + 1000).map(byte).collect();
        match stream.write(&part) {
            Ok(length) => at += length as u64,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
                stream.set_write_timeout(Some(TIMEOUT)).expect("not zero");
                return at;
            }
        }
        assert!(at < 1 << 20, "nobody reads");
    }
}

#[test]
fn ends_that_write_without_reading_block_and_go_on_when_one_reads() {
    let options = StreamOptions::default().buffers(4, 1008);
    let (client, server) = pair(5, [options; 2]);
    let (ahead, behind) = (fill(&client), fill(&server));
    assert_eq!((ahead, behind), (4000, 4000), "as much as the buffers hold");
    let total = 100_000;
    thread::scope(|scope| {
        for (mut stream, full) in [(&client, ahead), (&server, behind)] {
            scope.spawn(move || {
                let rest: Vec<u8> = (full..total).map(byte).collect();
                stream.write_all(&rest).expect("a peer");
                stream.finish().expect("a peer");
            });
        }
        // The server goes on when the client alone reads.
        read_parts(&client, total, 5000, 1);
        read_parts(&server, total, 5000, 2);
    });
}

#[test]
fn a_read_that_times_out_can_be_repeated() {
    let (mut client, mut server) = default_pair(6);
    let error = client.set_read_timeout(Some(Duration::ZERO));
    assert_eq!(error.expect_err("zero").kind(), ErrorKind::InvalidInput);
    client.set_read_timeout(Some(MOMENT)).expect("not zero");
    for _ in 0..3 {
        let error = client.read(&mut [0; 8]).expect_err("nothing is there");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let error = client.fill_buf().expect_err("nothing is there");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
    client.set_read_timeout(None).expect("not zero");
    server.write_all(b"late").expect("a peer");
    let mut into = [0; 4];
    client.read_exact(&mut into).expect("a peer");
    assert_eq!(&into, b"late");
}

#[test]
fn lines_are_read_in_their_place() {
    let options = StreamOptions::default().buffers(3, 64);
    let (client, mut server) = pair(7, [options; 2]);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..2000 {
                let text = "x".repeat(number % 90);
                writeln!(&client, "{number} {text}").expect("a peer");
            }
            client.finish().expect("a peer");
        });
        for number in 0..2000 {
            let mut line = String::new();
            if number % 3 == 0 {
                // The same bytes, half of them copied.
                let mut first = [0; 1];
                server.read_exact(&mut first).expect("a peer");
                line.push(char::from(first[0]));
            }
            server.read_line(&mut line).expect("a peer");
            assert_eq!(line, format!("{number} {}\n", "x".repeat(number % 90)));
        }
        assert_eq!(server.fill_buf().expect("the end"), b"");
    });
}

#[test]
fn a_message_that_was_read_in_part_is_at_its_place() {
    let (mut client, mut server) = default_pair(8);
    client.write_all(b"0123456789").expect("a peer");
    let mut two = [0; 2];
    server.read_exact(&mut two).expect("a peer");
    assert_eq!(server.fill_buf().expect("a peer"), b"23456789");
    server.consume(3);
    server.read_exact(&mut two).expect("a peer");
    assert_eq!(&two, b"56");
    assert_eq!(server.fill_buf().expect("a peer"), b"789");
    server.consume(100);
    client.write_all(b"next").expect("a peer");
    assert_eq!(server.fill_buf().expect("a peer"), b"next");
}

#[test]
fn a_peer_that_drops_its_stream_is_a_reset_after_what_arrived() {
    let (mut client, mut server) = default_pair(9);
    client.write_all(b"the last words").expect("a peer");
    let mut words = [0; 14];
    server.read_exact(&mut words[..4]).expect("a peer");
    drop(client);
    server
        .read_exact(&mut words[4..])
        .expect("they have arrived");
    assert_eq!(&words, b"the last words");
    for _ in 0..2 {
        let error = server.read(&mut words).expect_err("no end was sent");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    let error = server.write(b"hello").expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
    let error = server.finish().expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
}

/// A writer that waits for room learns it, too.
#[test]
fn a_writer_that_is_blocked_learns_that_its_peer_is_gone() {
    let options = StreamOptions::default().buffers(2, 100);
    let (client, server) = pair(10, [options; 2]);
    thread::scope(|scope| {
        let writer = scope.spawn(|| (&client).write_all(&[7; 10_000]));
        thread::sleep(MOMENT);
        drop(server);
        let error = writer.join().expect("no panic").expect_err("nobody reads");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
    });
}

#[test]
#[ignore = "a program that another test starts"]
fn is_killed_with_a_stream() {
    let server: SocketAddr = std::env::var(SERVER)
        .expect("a server")
        .parse()
        .expect("an address");
    let mut stream = Stream::connect(server).expect("a server");
    stream.write_all(b"hello").expect("a peer");
    stream.read_exact(&mut [0]).expect("a peer");
    std::process::abort();
}

#[test]
fn a_process_that_is_killed_resets_its_stream() {
    let (listener, _) = listen(11);
    let program = std::env::current_exe().expect("this test");
    let mut client = Command::new(program)
        .args(["is_killed_with_a_stream", "--exact", "--ignored"])
        .env(SERVER, listener.local_address().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process");
    let mut server = Stream::accept(listener.wait()).expect("a client");
    server.set_read_timeout(Some(TIMEOUT)).expect("not zero");
    let mut hello = [0; 5];
    server.read_exact(&mut hello).expect("a peer");
    server.write_all(b"x").expect("a peer");
    let error = server.read(&mut hello).expect_err("it was killed");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    client.wait().expect("a process");
}

/// Requests and replies through a pair of threads that do nothing else, many times.
#[test]
fn short_requests_and_replies_alternate() {
    let (mut client, mut server) = default_pair(12);
    let rounds = 5000_u32;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut request = [0; 64];
            for _ in 0..rounds {
                server.read_exact(&mut request).expect("a peer");
                server.write_all(&request).expect("a peer");
            }
        });
        for round in 0..rounds {
            let request = [round as u8; 64];
            client.write_all(&request).expect("a peer");
            let mut reply = [0; 64];
            client.read_exact(&mut reply).expect("a peer");
            assert_eq!(reply, request);
        }
    });
}

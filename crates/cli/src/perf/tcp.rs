//! The same measurements over TCP.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use anyhow::Context as _;

use super::test_parameters::{Amount, TestParameters, Verb};

/// The request of a READ, in bytes.
const REQUEST: usize = 16;

/// The server's part of one measurement.
pub(super) fn serve(
    listener: &TcpListener,
    parameters: &TestParameters,
    size: usize,
) -> anyhow::Result<()> {
    let (mut stream, _) = listener
        .accept()
        .context("TCP: the client did not connect")?;
    let served = match (parameters.test.is_latency(), parameters.test.verb()) {
        (true, verb) => reply(&mut stream, parameters, lengths(verb, size)),
        (false, Verb::Read) => give(&mut stream, size),
        (false, _) => receive_until_end(&mut stream, size),
    };
    match served {
        // The client has closed the connection: the measurement ends.
        Err(error) if is_end(error.kind()) => Ok(()),
        served => served.context("TCP broke off"),
    }
}

fn is_end(kind: ErrorKind) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// The lengths of a request and of its response.
fn lengths(verb: Verb, size: usize) -> (usize, usize) {
    match verb {
        Verb::Read | Verb::Atomic => (REQUEST, size),
        Verb::Send | Verb::Write => (size, size),
    }
}

fn reply(
    stream: &mut TcpStream,
    parameters: &TestParameters,
    lengths: (usize, usize),
) -> std::io::Result<()> {
    let (mut request, reply) = (vec![0; lengths.0], vec![0; lengths.1]);
    prepare(stream, parameters)?;
    loop {
        read_exact(stream, &mut request)?;
        write_all(stream, &reply)?;
    }
}

fn give(stream: &mut TcpStream, size: usize) -> std::io::Result<()> {
    let message = vec![0; size];
    loop {
        stream.write_all(&message)?;
    }
}

fn receive_until_end(stream: &mut TcpStream, size: usize) -> std::io::Result<()> {
    let mut buffer = receive_buffer(size);
    while stream.read(&mut buffer)? > 0 {}
    stream.write_all(&[0])
}

/// A receive buffer for messages of this size.
fn receive_buffer(size: usize) -> Vec<u8> {
    vec![0; size.clamp(64 << 10, 1 << 20)]
}

/// The rate, in messages per second.
pub(super) fn bandwidth(
    server: SocketAddr,
    parameters: &TestParameters,
    size: usize,
) -> anyhow::Result<f64> {
    let mut stream = TcpStream::connect(server).context("TCP: the server can't be reached")?;
    let measured = match parameters.test.verb() {
        Verb::Read => fetch(&mut stream, parameters.amount, size),
        _ => push(&mut stream, parameters.amount, size),
    };
    measured.context("TCP broke off")
}

/// Counts messages until the amount is reached.
struct Counter {
    amount: Amount,
    begin: Instant,
    messages: u64,
}

impl Counter {
    fn new(amount: Amount) -> Self {
        Self {
            amount,
            begin: Instant::now(),
            messages: 0,
        }
    }

    fn wants_more(&self) -> bool {
        match self.amount {
            Amount::Messages(messages) => self.messages < messages,
            Amount::Seconds(seconds) => self.begin.elapsed().as_secs_f64() < seconds,
        }
    }

    fn rate(&self) -> f64 {
        self.messages as f64 / self.begin.elapsed().as_secs_f64()
    }
}

fn push(stream: &mut TcpStream, amount: Amount, size: usize) -> std::io::Result<f64> {
    let message = vec![0; size];
    let mut counter = Counter::new(amount);
    while counter.wants_more() {
        stream.write_all(&message)?;
        counter.messages += 1;
    }
    stream.shutdown(Shutdown::Write)?;
    // The peer's reply confirms that everything arrived.
    stream.read_exact(&mut [0])?;
    Ok(counter.rate())
}

fn fetch(stream: &mut TcpStream, amount: Amount, size: usize) -> std::io::Result<f64> {
    let mut buffer = receive_buffer(size);
    let mut counter = Counter::new(amount);
    let mut bytes = 0;
    while counter.wants_more() {
        bytes += stream.read(&mut buffer)? as u64;
        counter.messages = bytes / size as u64;
    }
    Ok(counter.rate())
}

/// The typical latency of an operation in nanoseconds, computed as in [`super::latency`].
pub(super) fn latency(
    server: SocketAddr,
    parameters: &TestParameters,
    size: usize,
) -> anyhow::Result<f64> {
    let mut stream = TcpStream::connect(server).context("TCP: the server can't be reached")?;
    ping(
        &mut stream,
        parameters,
        lengths(parameters.test.verb(), size),
    )
    .context("TCP broke off")
}

fn ping(
    stream: &mut TcpStream,
    parameters: &TestParameters,
    lengths: (usize, usize),
) -> std::io::Result<f64> {
    let (request, mut reply) = (vec![0; lengths.0], vec![0; lengths.1]);
    prepare(stream, parameters)?;
    let mut times = super::latency::histogram();
    let mut counter = Counter::new(parameters.amount);
    while counter.wants_more() {
        let begin = Instant::now();
        write_all(stream, &request)?;
        read_exact(stream, &mut reply)?;
        times.saturating_record(begin.elapsed().as_nanos() as u64);
        counter.messages += 1;
    }
    let ways = match parameters.test.verb() {
        Verb::Send | Verb::Write => 2.0,
        Verb::Read | Verb::Atomic => 1.0,
    };
    Ok(times.value_at_quantile(0.5) as f64 / ways)
}

/// Makes the comparison fair: without Nagle's delay, and polling if RDMA polls.
fn prepare(stream: &TcpStream, parameters: &TestParameters) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(!parameters.events)
}

fn read_exact(stream: &mut TcpStream, mut into: &mut [u8]) -> std::io::Result<()> {
    while !into.is_empty() {
        match stream.read(into) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => into = &mut into[read..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write_all(stream: &mut TcpStream, mut from: &[u8]) -> std::io::Result<()> {
    while !from.is_empty() {
        match stream.write(from) {
            Ok(written) => from = &from[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

//! A process is killed and another one takes its place at once, at the same address.

use std::io::Read;
use std::time::{Duration, Instant};

use rocinante::{
    Access, CompletionQueue, Connection, Connector, Context, Key, Listener, MemoryRegion,
    OpenOptions, RemoteMemory, Request, Shortcut, Status,
};

use crate::exits::{Peer, at, here, queue_pair};
use crate::rings::rings;

const SERVER: &str = "127.53.3.1";
const CLIENT: &str = "127.53.4.2";
const SENDER: &str = "127.53.5.1";
const TARGET: &str = "127.53.5.2";

const TIMES: usize = 20;

/// The timeout of every step, on a loaded machine.
const LONG: Duration = Duration::from_secs(30);

pub(crate) fn run() {
    for watcher in ["1", "0"] {
        a_client_that_is_killed_and_started_again_connects_at_its_first_try(watcher);
    }
    ring_of_a_dead_reader_delays_no_sender();
}

/// The server keeps what it has of the dead ones. A client tries once, and panics if that fails.
fn a_client_that_is_killed_and_started_again_connects_at_its_first_try(watcher: &str) {
    let listener = Listener::bind(at(SERVER)).expect("an address of this machine");
    let mut connections = Vec::new();
    let mut longest = Duration::ZERO;
    for time in 0..TIMES {
        let begin = Instant::now();
        let settings = [("ROCI_WATCHER", watcher)];
        let mut client = Peer::start_with("connect", "signal", CLIENT, &settings);
        let request = listener.wait_for(LONG).expect("a request");
        let (_, builder) = queue_pair(request.context());
        let prepared = request.prepare(builder).expect("room");
        let connection = prepared.accept(b"");
        let connection = connection.unwrap_or_else(|error| panic!("client {time}: {error}"));
        client.wait_for("connected");
        longest = longest.max(begin.elapsed());
        connections.push(connection);
        client.signal("-KILL");
    }
    println!("{TIMES} clients in a row, watcher {watcher}: connected after {longest:?} at most");
}

/// The child: lets its peer write, and never does anything itself.
pub(crate) fn lie_open() {
    let listener = Listener::bind(at(&here())).expect("an address of this machine");
    println!("listening");
    let request = listener.wait();
    let (domain, builder) = queue_pair(request.context());
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let memory = domain.allocate_memory(MESSAGE, access).expect("room");
    let remote = memory.remote(0);
    let mut advertisement = remote.address.to_be_bytes().to_vec();
    advertisement.extend(remote.key.value().to_be_bytes());
    let prepared = request.prepare(builder).expect("room");
    let _connection = prepared
        .accept(&advertisement)
        .expect("the parent is there");
    // Until it is killed, or its parent is gone.
    let _ = std::io::stdin().read(&mut [0]);
}

const MESSAGE: usize = 1 << 16;

/// More than a ring holds.
const OUTSTANDING: u64 = 256;

/// The sender's end of a connection to a target.
struct Line {
    connection: Connection,
    completions: CompletionQueue,
    memory: MemoryRegion,
    remote: RemoteMemory,
}

impl Line {
    fn to(context: &Context, peer: &str) -> Self {
        let connector = Connector::resolve_on(context, at(peer)).expect("a way");
        let domain = context.allocate_protection_domain().expect("room");
        let completions = context.create_completion_queue(1024).expect("room");
        let builder = domain.queue_pair_builder(&completions).depth(512, 1);
        let prepared = connector.prepare(builder).expect("room");
        let connection = prepared.connect(b"").expect("the target listens");
        let advertisement = connection.private_data();
        let remote = RemoteMemory {
            address: u64::from_be_bytes(advertisement[..8].try_into().expect("8 bytes")),
            key: Key::new(u32::from_be_bytes(
                advertisement[8..12].try_into().expect("4 bytes"),
            )),
        };
        let memory = domain
            .allocate_memory(MESSAGE, Access::LOCAL_WRITE)
            .expect("room");
        Self {
            connection,
            completions,
            memory,
            remote,
        }
    }

    fn write(&self) {
        let request = Request::write(self.remote).data(self.memory.all());
        self.connection.post_send(request).expect("room");
    }

    fn succeeds(&self) {
        let completion = self.completions.wait_for(LONG).expect("a completion");
        assert_eq!(completion.status, Status::Success);
    }
}

/// The dead ones had no watcher, and their sender goes on trying to reach them.
fn ring_of_a_dead_reader_delays_no_sender() {
    let options = OpenOptions {
        shortcut: Shortcut::Always,
        ..OpenOptions::default()
    };
    let context = Context::open_with(SENDER, &options).expect("an address of this machine");
    let settings = [("ROCI_WATCHER", "0"), ("ROCI_SHORTCUT", "1")];
    let mut lines = Vec::new();
    let mut took = Vec::new();
    for _ in 0..9 {
        let mut target = Peer::start_with("lie-open", "", TARGET, &settings);
        target.wait_for("listening");
        let rings_of_the_dead = rings();
        let begin = Instant::now();
        let line = Line::to(&context, TARGET);
        line.write();
        line.succeeds();
        took.push(begin.elapsed());
        // The first packets go over the socket, while the ring is offered.
        while rings().is_subset(&rings_of_the_dead) {
            assert!(begin.elapsed() < LONG, "packets go through memory");
            line.write();
            line.succeeds();
        }
        for _ in 0..OUTSTANDING {
            line.write();
        }
        // In the middle of it.
        line.succeeds();
        target.signal("-KILL");
        lines.push(line);
    }
    println!("connected and written beside dead readers within {took:?}");
    // The first had no dead ones beside it. A ring that delays does so each time; a machine that is
    // busy with other things does not.
    let beside_dead = &mut took[1..];
    beside_dead.sort();
    assert!(beside_dead[1] < Duration::from_millis(100), "{took:?}");
}

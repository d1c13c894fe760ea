//! A server of requests in the manner of a key-value store, beside the same over TCP.
//!
//! The server is a process with one thread, which waits with `epoll` at the descriptor of one completion channel and at the
//! sockets of TCP. The clients are connections of another such thread. Each has one request outstanding: a WRITE with
//! immediate data into the server's memory, and its reply is a WRITE with immediate data back.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use rocinante::{
    Access, CompletionChannel, CompletionQueue, Context, MemoryRegion, Notify, OpenOptions,
    PreparedQueuePair, QueuePair, RemoteMemory, Request, Status,
};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;

use crate::peer::Way;
use crate::spread::{Goal, in_turn};

const ADDRESS: &str = "127.61.0.9";
const SERVER_ADDRESS: &str = "127.61.0.10";
const ROUNDS: usize = 7;
const REQUESTS: usize = 20_000;

/// Receives of a connection: a message uses one, and the next may arrive before it is posted again.
const RECEIVES: u32 = 4;

/// The channel among the sockets, which are numbered from zero.
const CHANNEL: u64 = u64::MAX;

pub(crate) fn run(way: Way) {
    println!("requests and replies {way}, event-driven: µs each, median (min-max)");
    println!(
        "{:>24}  {:>25}  {:>25}  ratio  goal",
        "", "WRITE with immediate", "TCP"
    );
    for (clients, size, name) in [
        (1, 64, "1 client, 64 bytes"),
        (1, 64 << 10, "1 client, 64 KiB"),
        (16, 64, "16 clients, 64 bytes"),
        (16, 64 << 10, "16 clients, 64 KiB"),
    ] {
        let clients = RefCell::new(Clients::start(way, clients, size));
        let ours = || clients.borrow_mut().run_rdma();
        let theirs = || clients.borrow_mut().run_tcp();
        let (ours, theirs) = in_turn(ROUNDS, ours, theirs);
        let ratio = ours.median / theirs.median;
        let goal = match way {
            Way::Sockets => Goal::None,
            Way::Shortcut => Goal::AtMost(1.0),
        };
        let goal = goal.for_figure(ratio);
        println!("{name:>24}  {ours}  {theirs}  {ratio:5.2}  {goal}");
    }
    println!();
}

/// One side of all connections.
struct Side {
    size: usize,
    channel: CompletionChannel,
    completions: CompletionQueue,
    /// What the peer writes, for each connection, and then what it is answered with.
    memory: MemoryRegion,
    queue_pairs: Vec<QueuePair>,
    /// The peer's memory.
    remote: RemoteMemory,
    sockets: Vec<Socket>,
    events: Events,
}

/// A TCP connection, and what has arrived of the next message.
struct Socket {
    stream: TcpStream,
    message: Vec<u8>,
    filled: usize,
}

/// A side before it is connected.
struct Unconnected {
    size: usize,
    channel: CompletionChannel,
    completions: CompletionQueue,
    memory: MemoryRegion,
    prepared: Vec<PreparedQueuePair>,
}

impl Unconnected {
    fn open(address: &str, options: &OpenOptions, connections: usize, size: usize) -> Self {
        let context = Context::open_with(address, options).expect("a loopback address");
        let domain = context.allocate_protection_domain().expect("room");
        let channel = context.create_completion_channel().expect("room");
        let completions = channel.create_completion_queue(1024).expect("room");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let length = 2 * connections * size;
        let prepare = |_| {
            let builder = domain.queue_pair_builder(&completions);
            builder.depth(16, RECEIVES).create_reliable().expect("room")
        };
        Self {
            size,
            memory: domain.allocate_memory(length, access).expect("room"),
            prepared: (0..connections).map(prepare).collect(),
            channel,
            completions,
        }
    }

    fn connect(
        self,
        mut endpoint: impl FnMut() -> String,
        remote: RemoteMemory,
        streams: Vec<TcpStream>,
    ) -> Side {
        let connect = |prepared: PreparedQueuePair| {
            let connected = prepared.connect(endpoint().parse().expect("an endpoint"));
            let queue_pair = connected.expect("a peer");
            for _ in 0..RECEIVES {
                queue_pair.post_receive(0, []).expect("room");
            }
            queue_pair
        };
        let queue_pairs = self.prepared.into_iter().map(connect).collect();
        let events = Events::new();
        events.add(&self.channel, CHANNEL);
        self.completions.arm(Notify::Any);
        let socket = |stream: TcpStream| {
            stream.set_nodelay(true).expect("TCP");
            Socket {
                message: vec![1; self.size],
                filled: 0,
                stream,
            }
        };
        let sockets: Vec<_> = streams.into_iter().map(socket).collect();
        for (number, socket) in sockets.iter().enumerate() {
            events.add(&socket.stream, number as u64);
        }
        Side {
            size: self.size,
            channel: self.channel,
            completions: self.completions,
            memory: self.memory,
            queue_pairs,
            remote,
            sockets,
            events,
        }
    }
}

impl Side {
    /// Writes into the place of this connection at the peer.
    fn write(&self, connection: usize) {
        let start = (self.queue_pairs.len() + connection) * self.size;
        let source = self.memory.slice(start..start + self.size);
        let target = RemoteMemory {
            address: self.remote.address + (connection * self.size) as u64,
            ..self.remote
        };
        let number = u32::try_from(connection).expect("a few");
        let request = Request::write_with_immediate(target, number.to_be_bytes());
        let request = request.data(source).unsignaled();
        self.queue_pairs[connection]
            .post_send(request)
            .expect("room");
    }

    /// Takes the messages that wait in the completion queue, after its descriptor became readable.
    fn take_messages(&self, mut take: impl FnMut(usize)) {
        let _ = self.channel.poll();
        self.completions.arm(Notify::Any);
        while let Some(completion) = self.completions.poll() {
            assert_eq!(completion.status, Status::Success);
            let number = completion.immediate.expect("each has its connection");
            let connection = u32::from_be_bytes(number) as usize;
            let queue_pair = &self.queue_pairs[connection];
            queue_pair.post_receive(0, []).expect("room");
            take(connection);
        }
    }
}

impl Socket {
    /// Reads once. Returns whether a message is complete; `None` at the end of the connection.
    fn read(&mut self) -> Option<bool> {
        let read = self.stream.read(&mut self.message[self.filled..]).ok()?;
        self.filled += read;
        let complete = self.filled == self.message.len();
        if complete {
            self.filled = 0;
        }
        (read > 0).then_some(complete)
    }

    fn write(&mut self) {
        self.stream.write_all(&self.message).expect("it listens");
    }
}

/// The clients, in this process.
struct Clients {
    side: Side,
    _server: Server,
}

/// The server process.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Clients {
    fn start(way: Way, clients: usize, size: usize) -> Self {
        let (shortcut, variable) = way.settings();
        let options = OpenOptions {
            shortcut,
            ..OpenOptions::default()
        };
        let side = Unconnected::open(ADDRESS, &options, clients, size);
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["request-server", &clients.to_string(), &size.to_string()]);
        command.env("ROCI_SHORTCUT", variable);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = Server(command.spawn().expect("a copy of this program"));
        let mut orders = server.0.stdin.take().expect("piped");
        let mut answers = BufReader::new(server.0.stdout.take().expect("piped"));
        writeln!(orders, "{}", side.memory.remote(0)).expect("it reads");
        for prepared in &side.prepared {
            writeln!(orders, "{}", prepared.endpoint()).expect("it reads");
        }
        let address: SocketAddr = line_of(&mut answers).parse().expect("an address");
        let connect = |_| TcpStream::connect(address).expect("it listens");
        let streams = (0..clients).map(connect).collect();
        let remote = line_of(&mut answers).parse().expect("a memory");
        Self {
            side: side.connect(|| line_of(&mut answers), remote, streams),
            _server: server,
        }
    }

    fn run_rdma(&mut self) -> f64 {
        let side = &mut self.side;
        let start = Instant::now();
        let (mut sent, mut done) = (0, 0);
        for connection in 0..side.queue_pairs.len() {
            side.write(connection);
            sent += 1;
        }
        while done < REQUESTS {
            side.events.wait();
            side.take_messages(|connection| {
                done += 1;
                if sent < REQUESTS {
                    side.write(connection);
                    sent += 1;
                }
            });
        }
        start.elapsed().as_secs_f64() * 1e6 / REQUESTS as f64
    }

    fn run_tcp(&mut self) -> f64 {
        let side = &mut self.side;
        let start = Instant::now();
        let (mut sent, mut done) = (0, 0);
        for socket in &mut side.sockets {
            socket.write();
            sent += 1;
        }
        while done < REQUESTS {
            for number in side.events.wait() {
                // An event of the channel may be left.
                if number == CHANNEL {
                    side.take_messages(|_| unreachable!("all replies have come"));
                    continue;
                }
                let socket = &mut side.sockets[number as usize];
                if socket.read().expect("it answers") {
                    done += 1;
                    if sent < REQUESTS {
                        socket.write();
                        sent += 1;
                    }
                }
            }
        }
        start.elapsed().as_secs_f64() * 1e6 / REQUESTS as f64
    }
}

/// The server process.
pub(crate) fn be_server(connections: &str, size: &str) {
    let connections = connections.parse().expect("a number");
    let size = size.parse().expect("a number");
    let options = OpenOptions::from_env();
    let side = Unconnected::open(SERVER_ADDRESS, &options, connections, size);
    let listener = TcpListener::bind((SERVER_ADDRESS, 0)).expect("a port");
    println!("{}", listener.local_addr().expect("it has one"));
    println!("{}", side.memory.remote(0));
    for prepared in &side.prepared {
        println!("{}", prepared.endpoint());
    }
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    let mut line = || lines.next().expect("a line");
    let remote = line().parse().expect("a memory");
    let accept = |_| listener.accept().expect("a connection").0;
    let streams = (0..connections).map(accept).collect();
    let mut side = side.connect(line, remote, streams);
    loop {
        for number in side.events.wait() {
            if number == CHANNEL {
                side.take_messages(|connection| side.write(connection));
                continue;
            }
            let socket = &mut side.sockets[number as usize];
            match socket.read() {
                Some(true) => socket.write(),
                Some(false) => {}
                None => return,
            }
        }
    }
}

/// What an event loop waits for.
struct Events(OwnedFd);

impl Events {
    fn new() -> Self {
        Self(epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor"))
    }

    fn add(&self, descriptor: &impl AsFd, number: u64) {
        let number = epoll::EventData::new_u64(number);
        epoll::add(&self.0, descriptor, number, epoll::EventFlags::IN).expect("a descriptor");
    }

    /// The numbers of those that are readable.
    fn wait(&self) -> Vec<u64> {
        let mut ready = Vec::with_capacity(32);
        epoll::wait(&self.0, spare_capacity(&mut ready), None).expect("a descriptor");
        ready.into_iter().map(|event| event.data.u64()).collect()
    }
}

fn line_of(answers: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    answers.read_line(&mut line).expect("it answers");
    line.trim().to_owned()
}

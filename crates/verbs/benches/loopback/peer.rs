//! The other process: it reads commands as lines and answers with lines.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, OnceLock};

use driver::Notifier;
use rocinante::{
    Access, CompletionChannel, CompletionQueue, ConnectOptions, Context, Endpoint, MemoryRegion,
    Notify, OpenOptions, PathMtu, PreparedQueuePair, ProtectionDomain, QueuePair, RemoteMemory,
    Request, Shortcut, Status,
};

#[cfg(feature = "async")]
use crate::awaiting;

pub(crate) const ADDRESS: &str = "127.61.0.1";
pub(crate) const PEER_ADDRESS: &str = "127.61.0.2";
pub(crate) const MEMORY: usize = 1 << 20;
const DEPTH: u32 = 256;

/// Which way packets take from one process to the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// As between machines.
    Sockets,
    /// Through memory that both have.
    Shortcut,
}

impl Way {
    /// The option of this process, and the variable of the other one.
    pub(crate) fn settings(self) -> (Shortcut, &'static str) {
        match self {
            Way::Shortcut => (Shortcut::Auto, ""),
            Way::Sockets => (Shortcut::Never, "0"),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Sockets => "over loopback",
            Way::Shortcut => "by default, through memory (TCP and UDP over loopback)",
        })
    }
}

/// One end of an RDMA connection, with everything it stands on.
pub(crate) struct End {
    context: Context,
    pub(crate) channel: CompletionChannel,
    pub(crate) completions: CompletionQueue,
    pub(crate) memory: MemoryRegion,
    prepared: Option<PreparedQueuePair>,
    pub(crate) queue_pair: Option<QueuePair>,
    domain: ProtectionDomain,
    /// A channel as C programs have it.
    events: OnceLock<Arc<Notifier>>,
}

impl End {
    pub(crate) fn open(address: &str, options: &OpenOptions, path_mtu: Option<PathMtu>) -> Self {
        let context = Context::open_with(address, options).expect("a loopback address");
        let domain = context.allocate_protection_domain().expect("room");
        let channel = context.create_completion_channel().expect("room");
        let completions = channel.create_completion_queue(4 * DEPTH).expect("room");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = domain.allocate_memory(MEMORY, access).expect("room");
        let builder = domain.queue_pair_builder(&completions).depth(DEPTH, DEPTH);
        let builder = builder.connect_options(ConnectOptions {
            path_mtu,
            ..ConnectOptions::default()
        });
        Self {
            prepared: Some(builder.create_reliable().expect("room")),
            domain,
            channel,
            completions,
            memory,
            queue_pair: None,
            context,
            events: OnceLock::new(),
        }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        let prepared = self.prepared.as_ref();
        prepared.expect("not connected yet").endpoint()
    }

    pub(crate) fn connect(&mut self, peer: Endpoint) {
        let prepared = self.prepared.take().expect("connected once");
        self.queue_pair = Some(prepared.connect(peer).expect("a peer"));
    }

    /// More queue pairs with the same completion queue.
    fn prepare_more(&self, count: usize) -> Vec<PreparedQueuePair> {
        let prepare = |_| {
            let builder = self.domain.queue_pair_builder(&self.completions);
            let builder = builder.depth(16, 16).may_overrun();
            builder.create_reliable().expect("room")
        };
        (0..count).map(prepare).collect()
    }

    pub(crate) fn post_send(&self, request: Request) {
        let queue_pair = self.queue_pair.as_ref().expect("connected");
        queue_pair.post_send(request).expect("room");
    }

    pub(crate) fn post_receive(&self, length: usize) {
        let queue_pair = self.queue_pair.as_ref().expect("connected");
        let room = self.memory.slice(0..length);
        queue_pair.post_receive(0, [room]).expect("room");
    }

    /// Sends this number of bytes without asking for a completion.
    pub(crate) fn send(&self, length: usize) {
        let request = match length {
            0..=64 => Request::send().inline(&[1; 64][..length]),
            _ => Request::send().data(self.memory.slice(0..length)),
        };
        self.post_send(request.unsignaled());
    }

    /// Spins for the next receive; sends in between only have to be good.
    pub(crate) fn spin_for_receive(&self) {
        loop {
            if let Some(completion) = self.completions.poll() {
                assert_eq!(completion.status, Status::Success);
                if completion.work.is_receive() {
                    return;
                }
            }
        }
    }

    /// Waits for a completion, first awake and then asleep.
    pub(crate) fn wait_for_success(&self) {
        assert_eq!(self.completions.wait().status, Status::Success);
    }

    /// Spins for a completion.
    pub(crate) fn poll_for_success(&self) {
        loop {
            if let Some(completion) = self.completions.poll() {
                return assert_eq!(completion.status, Status::Success);
            }
        }
    }

    /// Sleeps for the next receive.
    pub(crate) fn sleep_for_receive(&self) {
        loop {
            self.completions.arm(Notify::Any);
            while let Some(completion) = self.completions.poll() {
                assert_eq!(completion.status, Status::Success);
                if completion.work.is_receive() {
                    return;
                }
            }
            let _ = self.channel.wait();
        }
    }

    /// Waits for the next receive at the descriptor of the channel.
    pub(crate) fn await_descriptor(&self) {
        loop {
            self.completions.arm(Notify::Any);
            while let Some(completion) = self.completions.poll() {
                assert_eq!(completion.status, Status::Success);
                if completion.work.is_receive() {
                    return;
                }
            }
            wait_readable(&self.channel);
            let _ = self.channel.poll();
        }
    }

    /// Waits for the next receive as most C programs do: at the descriptor, and then for one event, which
    /// must be there.
    pub(crate) fn await_event(&self) {
        let events = self.events.get_or_init(|| self.route_events());
        loop {
            while let Some(completion) = self.completions.poll() {
                assert_eq!(completion.status, Status::Success);
                if completion.work.is_receive() {
                    return;
                }
            }
            self.take_event(events);
        }
    }

    /// Waits for the next receive as event loops do that empty the queue before they reply.
    pub(crate) fn await_event_and_drain(&self) {
        let events = self.events.get_or_init(|| self.route_events());
        let mut has_received = false;
        while !has_received {
            self.take_event(events);
            while let Some(completion) = self.completions.poll() {
                assert_eq!(completion.status, Status::Success);
                has_received |= completion.work.is_receive();
            }
        }
    }

    /// Waits for an event at the descriptor, takes it, and arms the queue again.
    fn take_event(&self, events: &Arc<Notifier>) {
        wait_readable(&events.expose());
        let driver = self.context.driver().expect("ours");
        let event = driver.take_notification(events);
        event.expect("the descriptor was readable");
        driver.promise_packet_wakeups(events, || true);
        self.completions.arm(Notify::Any);
    }

    fn route_events(&self) -> Arc<Notifier> {
        let events = Arc::new(Notifier::new().expect("a descriptor"));
        let queue = self.completions.id().expect("ours");
        self.context
            .driver()
            .expect("ours")
            .set_notifier(queue, &events, 0);
        self.completions.arm(Notify::Any);
        events
    }
}

/// Waits until a descriptor is readable, as event loops do.
pub(crate) fn wait_readable(descriptor: &impl AsFd) {
    let interest = net::poll::Interest::readable(descriptor.as_fd());
    net::poll::wait(&[interest], None).expect("a descriptor");
}

/// The peer, as this side sees it.
pub(crate) struct Peer {
    process: Process,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub(crate) end: End,
    pub(crate) remote: RemoteMemory,
    pub(crate) tcp: TcpStream,
    pub(crate) udp: UdpSocket,
}

/// A child that does not outlive us.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Peer {
    pub(crate) fn start(way: Way) -> Self {
        Self::start_with(way, None)
    }

    /// With packets of another size.
    pub(crate) fn start_with(way: Way, path_mtu: Option<PathMtu>) -> Self {
        let (shortcut, variable) = way.settings();
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .arg("peer")
            .arg(path_mtu.map_or(0, PathMtu::code).to_string())
            .env("ROCI_SHORTCUT", variable)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let mut orders = child.stdin.take().expect("piped");
        let mut answers = BufReader::new(child.stdout.take().expect("piped"));
        let options = OpenOptions {
            shortcut,
            ..OpenOptions::default()
        };
        let mut end = End::open(ADDRESS, &options, path_mtu);
        let udp = UdpSocket::bind((ADDRESS, 0)).expect("a port");
        let ours = udp.local_addr().expect("it has one");
        writeln!(orders, "{} {ours}", end.endpoint()).expect("it listens");
        let line = next_line(&mut answers);
        let words: Vec<&str> = line.split_whitespace().collect();
        let [endpoint, at, key, tcp, theirs] = words[..] else {
            panic!("five words, not `{line}`");
        };
        end.connect(endpoint.parse().expect("an endpoint"));
        udp.connect(theirs).expect("an address");
        let tcp = TcpStream::connect(tcp).expect("it listens");
        tcp.set_nodelay(true).expect("TCP");
        let remote = RemoteMemory {
            address: at.parse().expect("an address"),
            key: rocinante::Key::new(key.parse().expect("a key")),
        };
        Self {
            process: Process(child),
            orders,
            answers,
            end,
            remote,
            tcp,
            udp,
        }
    }

    /// More connections to the same peer.
    pub(crate) fn connect_more(&mut self, count: usize) -> Vec<QueuePair> {
        writeln!(self.orders, "more {count}").expect("it listens");
        let connect = |prepared: PreparedQueuePair| {
            writeln!(self.orders, "{}", prepared.endpoint()).expect("it listens");
            let theirs = next_line(&mut self.answers);
            let connected = prepared.connect(theirs.parse().expect("an endpoint"));
            connected.expect("a peer")
        };
        let prepared = self.end.prepare_more(count).into_iter();
        prepared.map(connect).collect()
    }

    /// The number of the other process.
    pub(crate) fn process(&self) -> u32 {
        self.process.0.id()
    }

    /// Tells the peer what to be next, and waits until it is.
    pub(crate) fn be(&mut self, role: &str) {
        writeln!(self.orders, "{role}").expect("it listens");
        assert_eq!(next_line(&mut self.answers), "ready");
    }
}

fn next_line(answers: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    answers.read_line(&mut line).expect("it answers");
    line.trim().to_owned()
}

/// The peer itself.
pub(crate) fn run(path_mtu: &str) {
    let path_mtu = path_mtu.parse().ok().and_then(PathMtu::from_code);
    let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
    let mut end = End::open(PEER_ADDRESS, &OpenOptions::from_env(), path_mtu);
    let listener = TcpListener::bind((PEER_ADDRESS, 0)).expect("a port");
    let udp = UdpSocket::bind((PEER_ADDRESS, 0)).expect("a port");
    let first = lines.next().expect("an endpoint and an address");
    let (endpoint, address) = first.split_once(' ').expect("two words");
    let remote = end.memory.remote(0);
    println!(
        "{} {} {} {} {}",
        end.endpoint(),
        remote.address,
        remote.key.value(),
        listener.local_addr().expect("it has one"),
        udp.local_addr().expect("it has one"),
    );
    end.connect(endpoint.parse().expect("an endpoint"));
    let address: SocketAddr = address.parse().expect("an address");
    udp.connect(address).expect("an address");
    let (mut tcp, _) = listener.accept().expect("a connection");
    tcp.set_nodelay(true).expect("TCP");
    let mut more = Vec::new();
    while let Some(line) = lines.next() {
        let mut words = line.split_whitespace();
        let role = words.next().expect("a role");
        let mut number = || {
            words
                .next()
                .and_then(|word| word.parse().ok())
                .expect("a number")
        };
        match role {
            "target" => println!("ready"),
            "more" => more.extend(connect_more(&end, number(), &mut lines)),
            "sink" => sink(&mut tcp, number()),
            "receive" => receive(&end, number(), number()),
            "echo-spin" => echo(&end, number(), number(), End::spin_for_receive),
            "echo-sleep" => echo(&end, number(), number(), End::sleep_for_receive),
            "echo-descriptor" => echo(&end, number(), number(), End::await_descriptor),
            "echo-event" => echo(&end, number(), number(), End::await_event),
            "echo-drain" => echo(&end, number(), number(), End::await_event_and_drain),
            #[cfg(feature = "async")]
            "echo-tokio" | "echo-tokio-descriptor" | "echo-await" => {
                awaiting::echo(&end, role, number(), number());
            }
            #[cfg(feature = "async")]
            "tcp-tokio" => awaiting::echo_tcp(&tcp, number(), number()),
            "tcp-descriptor" => echo_tcp(&mut tcp, number(), number()),
            "packets" => crate::bare_packets::receive(number(), number()),
            "udp-spin" => echo_udp(&udp, number(), true),
            "udp-sleep" => echo_udp(&udp, number(), false),
            _ => panic!("what is `{role}`?"),
        }
    }
}

/// The other ends of [`Peer::connect_more`].
fn connect_more(
    end: &End,
    count: usize,
    lines: &mut impl Iterator<Item = String>,
) -> Vec<QueuePair> {
    let connect = |prepared: PreparedQueuePair| {
        let theirs = lines.next().expect("an endpoint");
        println!("{}", prepared.endpoint());
        let connected = prepared.connect(theirs.parse().expect("an endpoint"));
        connected.expect("a peer")
    };
    let prepared = end.prepare_more(count).into_iter();
    prepared.map(connect).collect()
}

/// Reads this number of bytes and answers with one.
fn sink(tcp: &mut TcpStream, bytes: usize) {
    println!("ready");
    let mut buffer = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let limit = buffer.len().min(left);
        left -= tcp.read(&mut buffer[..limit]).expect("it sends");
    }
    tcp.write_all(&[1]).expect("it listens");
}

/// Takes this number of messages of a size.
fn receive(end: &End, messages: usize, size: usize) {
    let ahead = messages.min(DEPTH as usize);
    for _ in 0..ahead {
        end.post_receive(size);
    }
    println!("ready");
    for taken in 0..messages {
        end.spin_for_receive();
        if taken + ahead < messages {
            end.post_receive(size);
        }
    }
}

fn echo(end: &End, rounds: usize, size: usize, wait: impl Fn(&End)) {
    end.post_receive(size);
    println!("ready");
    for round in 0..rounds {
        wait(end);
        if round + 1 < rounds {
            end.post_receive(size);
        }
        end.send(size);
    }
}

fn echo_tcp(tcp: &mut TcpStream, rounds: usize, size: usize) {
    println!("ready");
    let mut buffer = vec![0; size];
    for _ in 0..rounds {
        await_tcp(tcp, &mut buffer);
        tcp.write_all(&buffer).expect("it listens");
    }
}

/// Waits at the descriptor until this number of bytes has arrived.
pub(crate) fn await_tcp(tcp: &mut TcpStream, buffer: &mut [u8]) {
    let mut filled = 0;
    while filled < buffer.len() {
        wait_readable(tcp);
        filled += tcp.read(&mut buffer[filled..]).expect("it sends");
    }
}

fn echo_udp(udp: &UdpSocket, rounds: usize, spin: bool) {
    udp.set_nonblocking(spin).expect("a socket");
    println!("ready");
    let mut buffer = [0; 64];
    for _ in 0..rounds {
        receive_udp(udp, &mut buffer);
        udp.send(&buffer).expect("it listens");
    }
}

/// The next datagram, spinning if the socket does not block.
pub(crate) fn receive_udp(udp: &UdpSocket, buffer: &mut [u8]) {
    loop {
        match udp.recv(buffer) {
            Ok(_) => return,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

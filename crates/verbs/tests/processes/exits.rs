//! A process that dies is announced to its peers, however it dies and however far its connection was.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio, abort, exit};
use std::thread;
use std::time::{Duration, Instant};

use rocinante::rdma_cm::{EventChannel, EventKind, PortSpace};
use rocinante::{
    ConnectError, Connection, Connector, Context, Listener, ProtectionDomain, QueuePairBuilder,
};

use crate::child::ADDRESS;

const OURS: &str = "127.53.3.1";
const THEIRS: &str = "127.53.3.2";
const PORT: u16 = 7010;

/// Far longer than a child needs to start and to ask for a connection.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// 100 ms are promised; a loaded machine gets more.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// The ways to die: what the child does itself, or else which signal it gets.
const WAYS: [(&str, Option<&str>); 6] = [
    ("exit", None),
    ("abort", None),
    ("signal", Some("-INT")),
    ("signal", Some("-TERM")),
    ("signal", Some("-QUIT")),
    ("signal", Some("-KILL")),
];

/// A child at an address, in a role.
pub(crate) struct Peer(Child, BufReader<std::process::ChildStdout>);

impl Peer {
    fn start(role: &str, way: &str, address: &str) -> Self {
        Self::start_with(role, way, address, &[])
    }

    /// With settings in its environment.
    pub(crate) fn start_with(
        role: &str,
        way: &str,
        address: &str,
        settings: &[(&str, &str)],
    ) -> Self {
        // A shell's background job ignores SIGINT and SIGQUIT, and its children inherit that.
        let mut child = Command::new("env")
            .args(["--default-signal=INT", "--default-signal=QUIT"])
            .arg(std::env::current_exe().expect("this program"))
            .args([role, way])
            .env(ADDRESS, address)
            .envs(settings.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self(child, output)
    }

    pub(crate) fn wait_for(&mut self, wanted: &str) {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("text");
        assert_eq!(line.trim_end(), wanted);
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status();
        assert!(status.expect("there is `kill`").success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn run() {
    for (way, signal) in WAYS {
        a_client_dies(way, signal);
        a_server_dies(way, signal);
    }
    a_client_dies_before_it_is_accepted();
    a_server_dies_before_it_accepts();
}

fn a_client_dies(way: &str, signal: Option<&str>) {
    let listener = Listener::bind(at(OURS)).expect("an address of this machine");
    let mut client = Peer::start("connect", way, THEIRS);
    let request = listener.wait_for(START_TIMEOUT).expect("a request");
    let (domain, builder) = queue_pair(request.context());
    let prepared = request.prepare(builder).expect("room");
    let connection = prepared.accept(b"").expect("the client is there");
    client.wait_for("connected");
    expect_end(&connection, &client, "client", way, signal);
    drop(domain);
}

fn a_server_dies(way: &str, signal: Option<&str>) {
    let mut server = Peer::start("accept", way, THEIRS);
    server.wait_for("listening");
    let context = Context::open(OURS).expect("an address of this machine");
    let connection = connect(&context, THEIRS).expect("the server is there");
    server.wait_for("connected");
    expect_end(&connection, &server, "server", way, signal);
}

fn expect_end(connection: &Connection, peer: &Peer, role: &str, way: &str, signal: Option<&str>) {
    let begin = Instant::now();
    if let Some(signal) = signal {
        peer.signal(signal);
    }
    let way = signal.unwrap_or(way);
    assert!(
        connection.wait_disconnected(ANNOUNCEMENT_TIMEOUT),
        "nothing was heard of a {role} that died by {way}"
    );
    println!(
        "{role} died by {way}: disconnected after {:?}",
        begin.elapsed()
    );
}

fn a_client_dies_before_it_is_accepted() {
    let channel = EventChannel::new().expect("a descriptor");
    let listener = channel.create_id(PortSpace::Tcp);
    listener.bind(at(OURS)).expect("a free port");
    listener.listen(1).expect("it is bound");
    let client = Peer::start("connect", "signal", THEIRS);
    let request = channel.wait_for(START_TIMEOUT).expect("a request");
    assert!(matches!(request.kind, EventKind::ConnectRequest { .. }));
    client.signal("-KILL");
    let begin = Instant::now();
    let refusal = channel.wait_for(ANNOUNCEMENT_TIMEOUT).expect("an event");
    assert_eq!(refusal.id, request.id);
    assert!(
        matches!(refusal.kind, EventKind::Rejected { .. }),
        "{:?}",
        refusal.kind
    );
    println!(
        "client died by -KILL before it was accepted: rejected after {:?}",
        begin.elapsed()
    );
}

fn a_server_dies_before_it_accepts() {
    let mut server = Peer::start("hesitate", "signal", THEIRS);
    server.wait_for("listening");
    let client = thread::spawn(|| {
        let context = Context::open(OURS).expect("an address of this machine");
        connect(&context, THEIRS).map(drop)
    });
    server.wait_for("requested");
    server.signal("-KILL");
    let begin = Instant::now();
    let answer = client.join().expect("it does not panic");
    assert!(
        matches!(answer, Err(ConnectError::Rejected { .. })),
        "{answer:?}"
    );
    assert!(
        begin.elapsed() < ANNOUNCEMENT_TIMEOUT,
        "{:?}",
        begin.elapsed()
    );
    println!(
        "server died by -KILL before it accepted: rejected after {:?}",
        begin.elapsed()
    );
}

pub(crate) fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), PORT)
}

pub(crate) fn queue_pair(context: &Context) -> (ProtectionDomain, QueuePairBuilder) {
    let domain = context.allocate_protection_domain().expect("room");
    let completions = context.create_completion_queue(8).expect("room");
    let builder = domain.queue_pair_builder(&completions);
    (domain, builder)
}

fn connect(context: &Context, peer: &str) -> Result<Connection, ConnectError> {
    let connector = Connector::resolve_on(context, at(peer))?;
    let (_, builder) = queue_pair(context);
    connector.prepare(builder)?.connect(b"")
}

pub(crate) fn here() -> String {
    std::env::var(ADDRESS).expect("the parent says which address")
}

/// The child: connects, and dies.
pub(crate) fn connect_and_die(way: &str) {
    let context = Context::open(&here()).expect("an address of this machine");
    let _connection = connect(&context, OURS).expect("the parent listens");
    println!("connected");
    die(way);
}

/// The child: accepts one connection, and dies.
pub(crate) fn accept_and_die(way: &str) {
    let listener = Listener::bind(at(&here())).expect("an address of this machine");
    println!("listening");
    let request = listener.wait();
    let (_, builder) = queue_pair(request.context());
    let prepared = request.prepare(builder).expect("room");
    let _connection = prepared.accept(b"").expect("the parent is there");
    println!("connected");
    die(way);
}

/// The child: gets a request, and does not answer.
pub(crate) fn hesitate() {
    let listener = Listener::bind(at(&here())).expect("an address of this machine");
    println!("listening");
    let _request = listener.wait();
    println!("requested");
    die("signal");
}

fn die(way: &str) -> ! {
    match way {
        "exit" => exit(0),
        "abort" => abort(),
        _ => thread::sleep(2 * ANNOUNCEMENT_TIMEOUT),
    }
    panic!("no signal came");
}

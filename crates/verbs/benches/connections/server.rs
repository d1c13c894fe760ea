//! The side that accepts: an event-driven server, as a program with many clients is written.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rocinante::rdma_cm::{CmId, Event, EventChannel, EventKind, PortSpace, Token};
use rocinante::{CompletionQueue, ProtectionDomain, QueuePair};

const ADDRESS: &str = "127.62.0.2";

/// The server process, seen from outside.
pub(crate) struct Server {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub(crate) rdma: SocketAddr,
    pub(crate) tcp: SocketAddr,
}

impl Server {
    pub(crate) fn start() -> Self {
        let itself = std::env::current_exe().expect("a program has a path");
        let mut child = Command::new(itself)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let orders = child.stdin.take().expect("it is piped");
        let mut answers = BufReader::new(child.stdout.take().expect("it is piped"));
        let addresses = next_line(&mut answers);
        let (rdma, tcp) = addresses.split_once(' ').expect("two addresses");
        Self {
            rdma: rdma.parse().expect("an address"),
            tcp: tcp.parse().expect("an address"),
            child,
            orders,
            answers,
        }
    }

    /// Makes the server accept this number of TCP connections, and then close them.
    pub(crate) fn accept_tcp(&mut self, connections: usize) {
        writeln!(self.orders, "{connections}").expect("it listens");
    }

    pub(crate) fn wait(&mut self) {
        assert_eq!(next_line(&mut self.answers), "done");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn next_line(answers: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    answers.read_line(&mut line).expect("it answers");
    line.trim().to_owned()
}

/// The server itself.
pub(crate) fn run() {
    let listener = TcpListener::bind((ADDRESS, 0)).expect("a port");
    let channel = EventChannel::new().expect("a descriptor");
    let id = channel.create_id(PortSpace::Tcp);
    let any_port = SocketAddr::new(ADDRESS.parse().expect("an address"), 0);
    let bound = id.bind(any_port).expect("a port");
    id.listen(1024).expect("a bound id");
    println!("{bound} {}", listener.local_addr().expect("it has one"));
    std::thread::spawn(move || serve_tcp(&listener));
    let mut clients = Clients::new(&id);
    loop {
        clients.handle(channel.wait());
    }
}

fn serve_tcp(listener: &TcpListener) {
    for order in std::io::stdin().lock().lines().map_while(Result::ok) {
        let count: usize = order.parse().expect("a number");
        let open: Vec<_> = (0..count).map(|_| welcome(listener)).collect();
        drop(open);
        println!("done");
    }
    std::process::exit(0);
}

fn welcome(listener: &TcpListener) -> TcpStream {
    let (mut client, _) = listener.accept().expect("a connection");
    client.write_all(&[1]).expect("it listens");
    client
}

struct Clients {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    connected: HashMap<Token, (CmId, QueuePair)>,
}

impl Clients {
    fn new(listener: &CmId) -> Self {
        let context = rocinante::Context::from_id(listener).expect("a bound id is at a device");
        Self {
            domain: context.allocate_protection_domain().expect("room"),
            completions: context.create_completion_queue(1 << 16).expect("room"),
            connected: HashMap::new(),
        }
    }

    fn handle(&mut self, event: Event) {
        match event.kind {
            EventKind::ConnectRequest { .. } => {
                let id = event.request.expect("a request brings an id");
                self.accept(id);
            }
            EventKind::Disconnected { .. } => {
                if let Some((id, _queue_pair)) = self.connected.remove(&event.id) {
                    // The client may have given up waiting for our good-bye.
                    let _ = id.disconnect();
                }
            }
            _ => {}
        }
    }

    fn accept(&mut self, id: CmId) {
        let builder = self
            .domain
            .queue_pair_builder(&self.completions)
            .depth(4, 4);
        let prepared = builder.create_reliable().expect("room");
        let parameters = prepared.parameters(b"");
        let queue_pair = prepared.connect_by(&id).expect("a client");
        id.accept(&parameters).expect("a client");
        self.connected.insert(id.token(), (id, queue_pair));
    }
}

//! Several processes that listen at one address: every port has one owner, every request finds it,
//! and what the dead had is free.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rocinante::{ConnectError, Connector, Context, Listener};

use crate::child::ADDRESS;

const SHARED_ADDRESS: &str = "127.53.2.1";
const ELSEWHERE: &str = "127.53.2.2";
const PORTS: [u16; 3] = [7001, 7002, 7003];

/// How often each is asked. The kernel gives requests to any process, so some go the long way.
const ROUNDS: usize = 20;

struct Server {
    child: Child,
    said: String,
}

impl Server {
    fn start(port: u16) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["listen", &port.to_string()])
            .env(ADDRESS, SHARED_ADDRESS)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let output = child.stdout.take().expect("piped");
        let said = BufReader::new(output).lines().next();
        let said = said.expect("a line").expect("text");
        Self { child, said }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child: accepts every client and sends its name.
pub(crate) fn serve(port: &str) {
    let address = std::env::var(ADDRESS).expect("the parent says which address");
    let listener = match Listener::bind(format!("{address}:{port}")) {
        Ok(listener) => listener,
        Err(error) => return println!("{error}"),
    };
    println!("listening");
    let mut kept = Vec::new();
    loop {
        let request = listener.wait();
        let context = request.context().clone();
        let (domain, completions) = (
            context.allocate_protection_domain(),
            context.create_completion_queue(8),
        );
        let builder = domain
            .expect("room")
            .queue_pair_builder(&completions.expect("room"));
        let prepared = request.prepare(builder).expect("room");
        // A client that stopped waiting does not end the server.
        kept.extend(prepared.accept(port.as_bytes()));
    }
}

/// The name of the process that listens on a port.
fn ask(context: &Context, port: u16) -> Result<String, ConnectError> {
    let connector = Connector::resolve_on(context, format!("{SHARED_ADDRESS}:{port}"))?;
    let (domain, completions) = (
        context.allocate_protection_domain(),
        context.create_completion_queue(8),
    );
    let builder = domain
        .expect("room")
        .queue_pair_builder(&completions.expect("room"));
    let connection = connector.prepare(builder)?.connect(b"")?;
    let answer = String::from_utf8_lossy(connection.private_data());
    Ok(answer.trim_end_matches('\0').to_owned())
}

pub(crate) fn run() {
    let mut servers = PORTS.map(Server::start);
    for server in &servers {
        assert_eq!(server.said, "listening");
    }
    for from in [SHARED_ADDRESS, ELSEWHERE] {
        let context = Context::open(from).expect("an address of this machine");
        for port in PORTS.into_iter().cycle().take(ROUNDS * PORTS.len()) {
            let answer = ask(&context, port).expect("an answer");
            assert_eq!(answer, port.to_string());
        }
        let rejected = ask(&context, 7004);
        assert!(matches!(rejected, Err(ConnectError::NoListener(_))));
    }
    let second = Server::start(PORTS[0]);
    assert!(second.said.contains("taken"), "{}", second.said);

    let [victim, ..] = &mut servers;
    victim.child.kill().expect("our own child");
    victim.child.wait().expect("our own child");
    let heir = Server::start(PORTS[0]);
    assert_eq!(heir.said, "listening");
    let context = Context::open(ELSEWHERE).expect("an address of this machine");
    assert_eq!(ask(&context, PORTS[0]).expect("an answer"), "7001");
}

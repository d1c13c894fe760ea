//! Connecting and disconnecting by the connection manager.

use std::net::SocketAddr;
use std::time::Duration;

use rocinante::{CompletionQueue, Connection, Connector, Context, ProtectionDomain};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The side that connects.
pub(crate) struct Client {
    server: SocketAddr,
    context: Context,
    domain: ProtectionDomain,
    completions: CompletionQueue,
}

impl Client {
    pub(crate) fn of(server: SocketAddr) -> Self {
        let context = Context::open("127.62.0.1").expect("a loopback address");
        Self {
            server,
            domain: context.allocate_protection_domain().expect("room"),
            completions: context.create_completion_queue(1 << 16).expect("room"),
            context,
        }
    }

    /// Opens this number of connections, then closes them.
    pub(crate) fn round(&self, open: usize) {
        let connections: Vec<Connection> = (0..open).map(|_| self.connect()).collect();
        for connection in &connections {
            connection.disconnect().expect("it was connected");
        }
        for connection in &connections {
            assert!(connection.wait_disconnected(TIMEOUT), "no good-bye");
        }
    }

    fn connect(&self) -> Connection {
        let connector = Connector::resolve_on(&self.context, self.server).expect("a way");
        let builder = self
            .domain
            .queue_pair_builder(&self.completions)
            .depth(4, 4);
        let prepared = connector.timeout(TIMEOUT).prepare(builder).expect("room");
        prepared.connect(b"").expect("a server")
    }
}

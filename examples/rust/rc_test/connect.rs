//! Connects the two sides: over a TCP socket, or with the connection manager.
//!
//! Both exchange the same parameters: GID, queue pair number, first sequence number, and the server's
//! memory. The connection manager sends messages to queue pair 1, which are in the capture, too. They
//! carry some bytes of *private data* for the application.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::ensure;
use examples::{Exchange, PeerInfo, TIMEOUT, listen, parse_memory, println, text_of};
use rocinante::{
    Connection, Connector, Context, Key, Listener, QueuePair, QueuePairBuilder, RemoteMemory,
    Segment,
};

use crate::Mode;
use crate::mistakes::Fault;

/// The options that must be the same on both sides.
pub(crate) struct Plan(String);

impl Plan {
    pub(crate) fn new(mode: Mode, fault: Option<Fault>) -> Self {
        let mode = match mode {
            Mode::Send => "send",
            Mode::Write => "write",
        };
        let fault = fault.map_or("nothing", Fault::name);
        Self(format!("mode={mode} break={fault}"))
    }

    fn check(&self, client: &str) -> anyhow::Result<()> {
        let server = &self.0;
        ensure!(
            server == client,
            "the client has `{client}` and the server `{server}`: give both the same options"
        );
        Ok(())
    }
}

/// Memory that the peer may access, and its length.
type Memory = (RemoteMemory, usize);

/// What a server offers to its client.
pub(crate) struct Offer {
    /// The port to listen on.
    pub(crate) port: u16,
    pub(crate) plan: Plan,
    /// The memory that the client may write.
    pub(crate) memory: Memory,
    /// The buffer for a SEND of the client, if there is to be one.
    pub(crate) receive: Option<Segment>,
}

/// A connected queue pair, and a way to tell the peer that this side is done.
pub(crate) enum Link {
    Tcp {
        queue_pair: QueuePair,
        exchange: Exchange,
        memory: Memory,
    },
    Cm {
        connection: Connection,
        memory: Memory,
    },
}

impl Link {
    pub(crate) fn accept_by_tcp(
        queue_pair: QueuePairBuilder,
        offered: &Offer,
    ) -> anyhow::Result<Self> {
        let listener = listen(offered.port)?;
        let port = listener.local_addr()?.port();
        println!("server  waits for a client on TCP port {port}");
        let mut exchange = Exchange::over(listener.accept()?.0)?;
        offered.plan.check(&exchange.receive()?)?;

        let prepared = queue_pair.create_reliable()?;
        if let Some(buffer) = offered.receive {
            prepared.post_receive(1, [buffer])?;
        }
        let client = exchange.receive_peer()?;
        let server = PeerInfo {
            endpoint: prepared.endpoint(),
            memory: offered.memory.0,
            length: offered.memory.1,
        };
        println!("client  {client}\nserver  {server}");
        // Connect before replying: the client may send as soon as it has the reply.
        let queue_pair = prepared.connect(client.endpoint)?;
        exchange.send(server)?;
        Ok(Self::Tcp {
            queue_pair,
            exchange,
            memory: (client.memory, client.length),
        })
    }

    pub(crate) fn connect_by_tcp(
        queue_pair: QueuePairBuilder,
        server: SocketAddr,
        plan: &Plan,
    ) -> anyhow::Result<Self> {
        let mut exchange = Exchange::connect(server)?;
        exchange.send(&plan.0)?;
        let prepared = queue_pair.create_reliable()?;
        let client = PeerInfo {
            endpoint: prepared.endpoint(),
            // The server does not access memory of the client.
            memory: RemoteMemory {
                address: 0,
                key: Key::new(0),
            },
            length: 0,
        };
        exchange.send(client)?;
        let server = exchange.receive_peer()?;
        println!("client  {client}\nserver  {server}");
        Ok(Self::Tcp {
            queue_pair: prepared.connect(server.endpoint)?,
            exchange,
            memory: (server.memory, server.length),
        })
    }

    pub(crate) fn accept_by_cm(
        context: &Context,
        queue_pair: QueuePairBuilder,
        offered: &Offer,
    ) -> anyhow::Result<Self> {
        let any = (Ipv4Addr::UNSPECIFIED, offered.port);
        let listener = Listener::bind_on(context, any)?;
        let port = listener.local_address().port();
        println!("server  waits for a client on port {port} of the connection manager");
        let request = listener.wait();
        offered.plan.check(&text_of(request.private_data()))?;
        println!("client  {} asks for a connection", request.peer_address());
        let prepared = request.prepare(queue_pair)?;
        if let Some(buffer) = offered.receive {
            prepared.post_receive(1, [buffer])?;
        }
        let memory = offered.memory;
        let connection = prepared.accept(to_text(memory).as_bytes())?;
        Ok(Self::Cm { connection, memory })
    }

    pub(crate) fn connect_by_cm(
        context: &Context,
        queue_pair: QueuePairBuilder,
        server: SocketAddr,
        plan: &Plan,
    ) -> anyhow::Result<Self> {
        let prepared = Connector::resolve_on(context, server)?.prepare(queue_pair)?;
        let connection = prepared.connect(plan.0.as_bytes())?;
        let reply = text_of(connection.private_data());
        println!("server  accepts: {reply}");
        let memory = parse_memory(&reply)?;
        Ok(Self::Cm { connection, memory })
    }

    pub(crate) fn queue_pair(&self) -> &QueuePair {
        match self {
            Link::Tcp { queue_pair, .. } => queue_pair,
            Link::Cm { connection, .. } => connection,
        }
    }

    /// The peer's memory.
    pub(crate) fn memory(&self) -> Memory {
        match self {
            Link::Tcp { memory, .. } | Link::Cm { memory, .. } => *memory,
        }
    }

    /// Tells the peer that this side is done.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        match self {
            Link::Tcp { exchange, .. } => exchange.send("done"),
            Link::Cm { connection, .. } => {
                connection.disconnect()?;
                // A program that ends now would not see the server's answer.
                ensure!(
                    connection.wait_disconnected(TIMEOUT),
                    "the server did not answer the disconnect"
                );
                Ok(())
            }
        }
    }

    /// Whether the peer is done.
    pub(crate) fn is_over(&self) -> anyhow::Result<bool> {
        match self {
            Link::Tcp { exchange, .. } => exchange.has_news(),
            Link::Cm { connection, .. } => Ok(connection.wait_disconnected(Duration::ZERO)),
        }
    }

    /// Waits until the peer is done.
    pub(crate) fn wait_for_the_end(&mut self) -> anyhow::Result<()> {
        match self {
            Link::Tcp { exchange, .. } => exchange.receive().map(drop),
            Link::Cm { connection, .. } => {
                ensure!(
                    connection.wait_disconnected(TIMEOUT),
                    "the client did not disconnect"
                );
                // Answer it.
                Ok(connection.disconnect()?)
            }
        }
    }
}

/// Private data, as text that every language can read.
fn to_text((RemoteMemory { address, key }, length): Memory) -> String {
    format!(
        "rkey={:#x} address={address:#x} length={length}",
        key.value()
    )
}

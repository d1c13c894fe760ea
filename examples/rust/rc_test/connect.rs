//! How the two ends find each other: over a TCP socket of their own, or by the connection manager.
//!
//! Both carry the same facts: GID, queue pair number, first sequence number, and where the server's
//! memory is. The connection manager does it with messages to queue pair 1, which are in the
//! capture too, and leaves an application a few bytes of *private data* for the rest.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::ensure;
use examples::{Exchange, Introduction, PATIENCE, listen, memory_of, text_of};
use rocinante::{
    Builder, Connection, Connector, Context, Key, Listener, QueuePair, Remote, Segment,
};

use crate::Mode;
use crate::fault::Fault;

/// What both ends must want.
pub(crate) struct Plan(String);

impl Plan {
    pub(crate) fn new(mode: Mode, fault: Option<Fault>) -> Self {
        let mode = match mode {
            Mode::Send => "send",
            Mode::Write => "write",
        };
        let fault = fault.map_or("nothing", Fault::word);
        Self(format!("mode={mode} break={fault}"))
    }

    fn check(&self, client: &str) -> anyhow::Result<()> {
        let server = &self.0;
        ensure!(
            server == client,
            "the client wants `{client}` and the server `{server}`: give both the same options"
        );
        Ok(())
    }
}

/// Memory that the peer may use, and how much.
type Memory = (Remote, usize);

/// What a server has for its client.
pub(crate) struct Invitation {
    /// Where it waits.
    pub(crate) port: u16,
    pub(crate) plan: Plan,
    /// What the client may write to.
    pub(crate) memory: Memory,
    /// Where a message of the client's goes, if one is to come.
    pub(crate) receive: Option<Segment>,
}

/// A connected queue pair, and a way to say that all is done.
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
        queue_pair: Builder,
        invitation: &Invitation,
    ) -> anyhow::Result<Self> {
        let listener = listen(invitation.port)?;
        let port = listener.local_addr()?.port();
        println!("server  waits for a client at TCP port {port}");
        let mut exchange = Exchange::over(listener.accept()?.0)?;
        invitation.plan.check(&exchange.hear()?)?;

        let prepared = queue_pair.reliable()?;
        if let Some(room) = invitation.receive {
            prepared.post_receive(1, [room])?;
        }
        let client: Introduction = exchange.hear()?.parse()?;
        let server = Introduction {
            endpoint: prepared.endpoint(),
            memory: invitation.memory.0,
            length: invitation.memory.1,
        };
        println!("client  {client}\nserver  {server}");
        // First ready, then known: a peer may send as soon as it knows us.
        let queue_pair = prepared.connect(client.endpoint)?;
        exchange.say(server)?;
        Ok(Self::Tcp {
            queue_pair,
            exchange,
            memory: (client.memory, client.length),
        })
    }

    pub(crate) fn connect_by_tcp(
        queue_pair: Builder,
        server: SocketAddr,
        plan: &Plan,
    ) -> anyhow::Result<Self> {
        let mut exchange = Exchange::call(server)?;
        exchange.say(&plan.0)?;
        let prepared = queue_pair.reliable()?;
        let client = Introduction {
            endpoint: prepared.endpoint(),
            // The server asks for nothing of ours.
            memory: Remote {
                address: 0,
                key: Key::new(0),
            },
            length: 0,
        };
        exchange.say(client)?;
        let server: Introduction = exchange.hear()?.parse()?;
        println!("client  {client}\nserver  {server}");
        Ok(Self::Tcp {
            queue_pair: prepared.connect(server.endpoint)?,
            exchange,
            memory: (server.memory, server.length),
        })
    }

    pub(crate) fn accept_by_cm(
        context: &Context,
        queue_pair: Builder,
        invitation: &Invitation,
    ) -> anyhow::Result<Self> {
        let any = (Ipv4Addr::UNSPECIFIED, invitation.port);
        let listener = Listener::bind_on(context, any.into())?;
        let port = listener.local_address().port();
        println!("server  waits for a client at port {port} of the connection manager");
        let request = listener.wait();
        invitation.plan.check(&text_of(request.private_data()))?;
        println!("client  {} asks for a connection", request.peer_address());
        let prepared = request.prepare(queue_pair)?;
        if let Some(room) = invitation.receive {
            prepared.post_receive(1, [room])?;
        }
        let memory = invitation.memory;
        let connection = prepared.accept(to_text(memory).as_bytes())?;
        Ok(Self::Cm { connection, memory })
    }

    pub(crate) fn connect_by_cm(
        context: &Context,
        queue_pair: Builder,
        server: SocketAddr,
        plan: &Plan,
    ) -> anyhow::Result<Self> {
        let prepared = Connector::resolve_on(context, server)?.prepare(queue_pair)?;
        let connection = prepared.connect(plan.0.as_bytes())?;
        let said = text_of(connection.private_data());
        println!("server  accepts: {said}");
        let memory = memory_of(&said)?;
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

    /// Tells the peer that all is done.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        match self {
            Link::Tcp { exchange, .. } => exchange.say("done"),
            Link::Cm { connection, .. } => Ok(connection.disconnect()?),
        }
    }

    /// Waits until the peer says that all is done.
    pub(crate) fn wait_for_the_end(&mut self) -> anyhow::Result<()> {
        match self {
            Link::Tcp { exchange, .. } => exchange.hear().map(drop),
            Link::Cm { connection, .. } => {
                ensure!(
                    connection.wait_disconnected(PATIENCE),
                    "the client is gone without a word"
                );
                Ok(())
            }
        }
    }
}

/// Private data, as text that every language can read.
fn to_text((Remote { address, key }, length): Memory) -> String {
    format!(
        "rkey={:#x} address={address:#x} length={length}",
        key.value()
    )
}

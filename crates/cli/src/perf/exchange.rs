//! The messages of client and server over TCP, and the TCP connection.

use std::io::BufReader;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::flow::Flow;
use super::plan::Plan;
use super::queue_pairs::Side;
use crate::exchange::Exchange;

/// A way to the other side.
pub(super) type Control = Exchange<BufReader<TcpStream>, TcpStream>;

/// Changes when the messages do.
pub(super) const VERSION: u32 = 1;

/// The client's first word.
#[derive(Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    pub(super) plan: Plan,
    pub(super) active_mtu: usize,
}

/// The server's answer.
#[derive(Serialize, Deserialize)]
pub(super) enum Welcome {
    Here(Side),
    Rejected(String),
}

/// What the client wants next.
#[derive(Serialize, Deserialize)]
pub(super) enum Order {
    /// Take part in a measurement with messages of this size.
    Rdma { size: usize },
    /// Take part in a measurement of TCP; answered with a port.
    Tcp { size: usize },
    /// That was all.
    Finish,
}

/// The client is through with what it ordered.
#[derive(Serialize, Deserialize)]
pub(super) struct Through;

/// What the server saw of a measurement.
#[derive(Serialize, Deserialize)]
pub(super) enum Tally {
    /// It counted messages.
    Counted(Flow),
    /// It had nothing to count.
    Done,
    /// It could not take part, for this reason.
    Failed(String),
}

/// Waits for clients at this address, or at all of them.
pub(super) fn listen(address: Option<IpAddr>, port: u16) -> anyhow::Result<TcpListener> {
    let everywhere = || {
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            // Without IPv6 in the kernel.
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
    };
    let listener = match address {
        Some(address) => TcpListener::bind((address, port)),
        None => everywhere(),
    };
    listener.map_err(|error| {
        anyhow!("TCP port {port} is not available: {error}; choose another with -p")
    })
}

/// Goes to a server; the addresses of both ends.
pub(super) fn connect(
    server: &str,
    port: u16,
) -> anyhow::Result<(Control, SocketAddr, SocketAddr)> {
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    let addresses = (server.trim_matches(['[', ']']), port)
        .to_socket_addrs()
        .map_err(|_| {
            anyhow!("`{server}` is neither an address nor a known host name; check the spelling")
        })?;
    let mut rejection = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return over(stream),
            Err(error) => rejection = Some(error),
        }
    }
    match rejection {
        Some(error) => bail!(
            "no server answers at {server}, TCP port {port} ({error}); start the same command \
             without an address there first"
        ),
        None => bail!("`{server}` has no address; check the spelling"),
    }
}

/// A way over a connection, with the addresses of both ends.
pub(super) fn over(stream: TcpStream) -> anyhow::Result<(Control, SocketAddr, SocketAddr)> {
    let describe = || {
        stream.set_nodelay(true)?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok::<_, std::io::Error>((reader, stream.local_addr()?, stream.peer_addr()?))
    };
    let (reader, local, peer) = describe().context("the connection broke at once; try again")?;
    Ok((
        Exchange::new(reader, stream),
        canonical(local),
        canonical(peer),
    ))
}

/// IPv4 peers of an IPv6 socket are IPv4 peers.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

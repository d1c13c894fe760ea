//! The TCP connection of client and server, and its messages.

use std::io::BufReader;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::queue_pairs::Side;
use super::test_parameters::TestParameters;
use super::throughput::MessageCounts;
use crate::json_channel::JsonChannel;

/// The control connection to the peer.
pub(super) type Control = JsonChannel<BufReader<TcpStream>, TcpStream>;

/// The version of the messages and of the layout of the memory. It changes with them.
pub(super) const VERSION: u32 = 2;

/// The client's first message.
#[derive(Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    pub(super) parameters: TestParameters,
    pub(super) active_mtu: usize,
}

/// The server's reply.
#[derive(Serialize, Deserialize)]
pub(super) enum Welcome {
    Here(Side),
    Rejected(String),
}

/// The client's next order.
#[derive(Serialize, Deserialize)]
pub(super) enum Order {
    /// Measure RDMA with messages of this size.
    Rdma { size: usize },
    /// Measure TCP. The server answers with a port.
    Tcp { size: usize },
    /// No more orders.
    Finish,
}

/// The client has finished its part of the order.
#[derive(Serialize, Deserialize)]
pub(super) struct Through;

/// The server's result of a measurement.
#[derive(Serialize, Deserialize)]
pub(super) enum Tally {
    /// The messages that it counted.
    Counted(MessageCounts),
    /// There was nothing to count.
    Done,
    /// It failed, for this reason.
    Failed(String),
}

/// Listens for clients at this address, or at all addresses.
pub(super) fn listen(address: Option<IpAddr>, port: u16) -> anyhow::Result<TcpListener> {
    let everywhere = || {
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            // The kernel has no IPv6.
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

/// Connects to a server. Also returns the addresses of both ends.
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

/// The control connection over a TCP stream, and the addresses of both ends.
pub(super) fn over(stream: TcpStream) -> anyhow::Result<(Control, SocketAddr, SocketAddr)> {
    let describe = || {
        stream.set_nodelay(true)?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok::<_, std::io::Error>((reader, stream.local_addr()?, stream.peer_addr()?))
    };
    let (reader, local, peer) = describe().context("the connection broke at once; try again")?;
    Ok((
        JsonChannel::new(reader, stream),
        canonical(local),
        canonical(peer),
    ))
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

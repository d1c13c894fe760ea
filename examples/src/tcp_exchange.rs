//! Exchanges connection parameters over TCP.
//!
//! This is not RDMA. A queue pair needs its peer's GID, number and first sequence number before it
//! can do anything. An application without the connection manager exchanges them by other means, for
//! example over a TCP socket.

use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rocinante::{Endpoint, Gid, Key, Psn, Qpn, RemoteMemory};

/// The connection parameters of one side. They are sent as one line of text, the same in all languages.
#[derive(Debug, Clone, Copy)]
pub struct PeerInfo {
    /// The queue pair.
    pub endpoint: Endpoint,
    /// Memory that the peer may access: its address and its rkey.
    pub memory: RemoteMemory,
    /// The length of this memory in bytes.
    pub length: usize,
}

impl fmt::Display for PeerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint {
            gid,
            queue_pair,
            psn,
        } = self.endpoint;
        write!(
            f,
            "gid={gid} qpn={:#x} psn={:#x} rkey={:#x} address={:#x} length={}",
            queue_pair.value(),
            psn.value(),
            self.memory.key.value(),
            self.memory.address,
            self.length
        )
    }
}

impl FromStr for PeerInfo {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let (memory, length) = parse_memory(line)?;
        Ok(Self {
            endpoint: Endpoint {
                gid: field(line, "gid")?.parse()?,
                queue_pair: Qpn::new(number(line, "qpn")? as u32),
                psn: Psn::new(number(line, "psn")? as u32),
            },
            memory,
            length,
        })
    }
}

/// Parses the peer's memory: address, key and length.
pub fn parse_memory(line: &str) -> anyhow::Result<(RemoteMemory, usize)> {
    let memory = RemoteMemory {
        address: number(line, "address")?,
        key: Key::new(number(line, "rkey")? as u32),
    };
    Ok((memory, field(line, "length")?.parse()?))
}

fn field<'l>(line: &'l str, name: &str) -> anyhow::Result<&'l str> {
    let mut words = line.split_whitespace();
    words
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .with_context(|| format!("the peer sent `{line}`, without {name}"))
}

fn number(line: &str, name: &str) -> anyhow::Result<u64> {
    let text = field(line, name)?;
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).with_context(|| format!("`{text}` is not a hexadecimal number"))
}

/// Listens on a TCP port, over IPv6 and IPv4.
pub fn listen(port: u16) -> anyhow::Result<TcpListener> {
    let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
    both.or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
        .with_context(|| format!("can't listen on TCP port {port}: is another server running?"))
}

/// A TCP connection that carries lines of text.
pub struct Exchange {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Exchange {
    /// Uses this connection.
    pub fn over(stream: TcpStream) -> anyhow::Result<Self> {
        Ok(Self {
            writer: stream.try_clone()?,
            reader: BufReader::new(stream),
        })
    }

    /// Connects to a server. Retries for 10 seconds, because the server may still be starting.
    pub fn connect(server: SocketAddr) -> anyhow::Result<Self> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match TcpStream::connect(server) {
                Ok(stream) => return Self::over(stream),
                Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(50)),
                Err(error) => {
                    bail!("can't connect to {server} ({error}): start the server first")
                }
            }
        }
    }

    /// Sends a line.
    pub fn send(&mut self, line: impl fmt::Display) -> anyhow::Result<()> {
        // One write makes one segment. Two would be delayed by Nagle's algorithm.
        let sent = self.writer.write_all(format!("{line}\n").as_bytes());
        sent.context(CLOSED)
    }

    /// Receives the connection parameters of the peer.
    pub fn receive_peer(&mut self) -> anyhow::Result<PeerInfo> {
        let peer: PeerInfo = self.receive()?.parse()?;
        let ends = [self.writer.peer_addr()?, self.writer.local_addr()?];
        check_reach(peer.endpoint.gid, ends.map(|end| end.ip().to_canonical()))?;
        Ok(peer)
    }

    /// Whether the peer has sent a line that is not received yet, or has closed the connection.
    pub fn has_news(&self) -> anyhow::Result<bool> {
        if !self.reader.buffer().is_empty() {
            return Ok(true);
        }
        let stream = self.reader.get_ref();
        stream.set_nonblocking(true)?;
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        Ok(!peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock))
    }

    /// Receives a line.
    pub fn receive(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).context(CLOSED)? == 0 {
            bail!(CLOSED);
        }
        Ok(line.trim_end().to_owned())
    }
}

/// Fails if the device of a peer has an address of loopback, but the peer is on another machine.
fn check_reach(gid: Gid, [peer, local]: [IpAddr; 2]) -> anyhow::Result<()> {
    let is_here = peer.is_loopback() || peer == local;
    let is_loopback = gid.ip().is_some_and(|address| address.is_loopback());
    ensure!(
        is_here || !is_loopback,
        "the peer at {peer} uses the GID {gid}, an address of loopback, which only its own machine can reach: start it with \
         --device (`roci devices` there lists the devices)"
    );
    Ok(())
}

/// A peer that closes the connection with unread data resets it: the next send or receive then fails
/// instead of returning no data. Both cases get this message.
const CLOSED: &str = "the peer closed the connection: see its own output for the reason";

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides of a connection.
    fn both_sides() -> (Exchange, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let ours = Exchange::connect(listener.local_addr().expect("it is bound"));
        (
            ours.expect("it listens"),
            listener.accept().expect("it connected").0,
        )
    }

    #[test]
    fn a_loopback_gid_of_another_machine_is_refused() {
        let check = |gid: &str, peer: &str, local: &str| {
            let address = |text: &str| text.parse().expect("an address");
            check_reach(gid.parse().expect("a GID"), [address(peer), address(local)])
        };
        let refused = check("127.0.0.1", "10.77.0.2", "10.77.0.1");
        assert!(refused.is_err_and(|error| error.to_string().contains("--device")));
        for (gid, peer, local) in [
            ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
            ("127.0.0.2", "10.77.0.1", "10.77.0.1"),
            ("10.77.0.2", "10.77.0.2", "10.77.0.1"),
        ] {
            assert!(check(gid, peer, local).is_ok(), "{gid} {peer} {local}");
        }
    }

    #[test]
    fn a_line_and_a_closed_connection_are_news() {
        let (ours, theirs) = both_sides();
        assert!(!ours.has_news().expect("a socket"));
        drop(theirs);
        // Waits for the end of the stream.
        ours.writer.peek(&mut [0]).expect("the end");
        assert!(ours.has_news().expect("a socket"));
        let (ours, theirs) = both_sides();
        let mut theirs = Exchange::over(theirs).expect("a socket");
        theirs.send("done").expect("it is still there");
        ours.writer.peek(&mut [0]).expect("the line");
        assert!(ours.has_news().expect("a socket"));
    }

    #[track_caller]
    fn assert_closed<T: fmt::Debug>(result: anyhow::Result<T>) {
        let error = result.expect_err("the peer is gone");
        assert!(
            error.to_string().contains("closed the connection"),
            "{error:#}"
        );
    }

    #[test]
    fn a_closed_connection_is_reported() {
        let (mut ours, theirs) = both_sides();
        drop(theirs);
        assert_closed(ours.receive());
    }

    #[test]
    fn a_reset_connection_is_reported_as_closed() {
        let (mut ours, theirs) = both_sides();
        ours.send("words").expect("it is still there");
        // The data has arrived. Closing with unread data resets the connection.
        theirs.peek(&mut [0]).expect("the data");
        drop(theirs);
        assert_closed(ours.receive());
        assert_closed(ours.send("more words"));
    }
}

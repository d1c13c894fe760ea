//! Two ends tell each other where they are, over TCP.
//!
//! Nothing of this is RDMA. A queue pair has to be told its peer's GID, number and first sequence
//! number before it can do anything, and an application that has no connection manager carries
//! them over by some other means: a TCP socket, a file, a word across the room.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rocinante::{Endpoint, Key, Psn, Qpn, Remote};

/// Everything that a peer must know. It travels as one line of text, the same in all languages.
#[derive(Debug, Clone, Copy)]
pub struct Introduction {
    /// The queue pair.
    pub endpoint: Endpoint,
    /// Memory that the peer may use: its address and the key to it.
    pub memory: Remote,
    /// How much memory.
    pub length: usize,
}

impl fmt::Display for Introduction {
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

impl FromStr for Introduction {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let (memory, length) = memory_of(line)?;
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

/// Where a peer's memory is and how much there is, from its words.
pub fn memory_of(line: &str) -> anyhow::Result<(Remote, usize)> {
    let memory = Remote {
        address: number(line, "address")?,
        key: Key::new(number(line, "rkey")? as u32),
    };
    Ok((memory, field(line, "length")?.parse()?))
}

fn field<'l>(line: &'l str, name: &str) -> anyhow::Result<&'l str> {
    let mut words = line.split_whitespace();
    words
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .with_context(|| format!("the other end says `{line}`, without {name}"))
}

fn number(line: &str, name: &str) -> anyhow::Result<u64> {
    let text = field(line, name)?;
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).with_context(|| format!("`{text}` is no hexadecimal number"))
}

/// Waits for clients at a TCP port, over IPv6 and IPv4.
pub fn listen(port: u16) -> anyhow::Result<TcpListener> {
    let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
    both.or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
        .with_context(|| format!("TCP port {port} can't be had: is another server running?"))
}

/// A TCP connection on which both ends say lines.
pub struct Exchange {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Exchange {
    /// Over this connection.
    pub fn over(stream: TcpStream) -> anyhow::Result<Self> {
        Ok(Self {
            writer: stream.try_clone()?,
            reader: BufReader::new(stream),
        })
    }

    /// Calls a server, which may still be starting.
    pub fn call(server: SocketAddr) -> anyhow::Result<Self> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match TcpStream::connect(server) {
                Ok(stream) => return Self::over(stream),
                Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(50)),
                Err(error) => {
                    bail!("nobody answers at {server} ({error}): start the server first")
                }
            }
        }
    }

    /// Says a line.
    pub fn say(&mut self, line: impl fmt::Display) -> anyhow::Result<()> {
        // One write, one segment: halves of a line would wait for each other.
        let said = self.writer.write_all(format!("{line}\n").as_bytes());
        said.context(HUNG_UP)
    }

    /// Hears a line.
    pub fn hear(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).context(HUNG_UP)? == 0 {
            bail!(HUNG_UP);
        }
        Ok(line.trim_end().to_owned())
    }
}

/// Who hangs up with words of ours unread resets the connection: the next line we say or hear then
/// fails, instead of being empty. It means the same to us.
const HUNG_UP: &str = "the other end hung up: its own words say why";

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ends of a connection.
    fn both_ends() -> (Exchange, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let ours = Exchange::call(listener.local_addr().expect("it is bound"));
        (
            ours.expect("it listens"),
            listener.accept().expect("it called").0,
        )
    }

    #[track_caller]
    fn hung_up<T: fmt::Debug>(result: anyhow::Result<T>) {
        let error = result.expect_err("the other end is gone");
        assert!(error.to_string().contains("hung up"), "{error:#}");
    }

    #[test]
    fn an_end_that_hangs_up_is_named() {
        let (mut ours, theirs) = both_ends();
        drop(theirs);
        hung_up(ours.hear());
    }

    #[test]
    fn an_end_that_hangs_up_without_listening_is_named_too() {
        let (mut ours, theirs) = both_ends();
        ours.say("words").expect("it is still there");
        // They have arrived: closing with them unread resets the connection.
        theirs.peek(&mut [0]).expect("the words");
        drop(theirs);
        hung_up(ours.hear());
        hung_up(ours.say("more words"));
    }
}

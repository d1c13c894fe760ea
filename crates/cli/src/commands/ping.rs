//! `roci ping`: pings like rping, with the same messages and options.
//!
//! For each ping the client advertises a buffer. The server reads it by RDMA READ and sends a "go ahead". Then the
//! client advertises a second buffer. The server writes the data there by RDMA WRITE and sends another "go ahead".
//! So one ping uses SEND, READ and WRITE.

mod advertisement;
mod client;
mod connect_errors;
mod interrupt;
mod server;
mod session;
mod times;

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{ArgGroup, Args};

/// The maximum size of a ping.
const LARGEST: usize = 64 * 1024;

/// The minimum size: the number of the ping must fit.
const SMALLEST: usize = 26;

/// The options of `roci ping`.
#[derive(Args)]
#[command(args_override_self = true)]
#[command(group = ArgGroup::new("side").required(true).args(["server", "client"]))]
#[command(after_help = "\
The peer may also be rping, on RDMA hardware or the kernel's Soft-RoCE. A client without -C pings
until Ctrl-C. It exits with 1 if the server ends or dies before that. A server without -P exits
when its client disconnects.

Examples:
  roci ping -s                             wait for a client on all addresses
  roci ping -c -a 10.0.0.7 -v -C 10        ping ten times and print the data
  roci ping -c -a 10.0.0.7 -t              print round-trip times until Ctrl-C
  roci ping -c -a fe80::7%eth0 -V -S 64K   64 KiB in each direction, compared
  roci ping -s -P -a ::1 -p 9000           serve any number of clients on one address")]
pub(crate) struct Options {
    /// Wait for a client
    #[arg(short, long)]
    server: bool,
    /// Ping a server
    #[arg(short, long, requires = "address")]
    client: bool,
    /// The server's address or name; without it, a server listens on all addresses
    #[arg(short, long, value_name = "ADDR")]
    address: Option<String>,
    /// The server's port
    #[arg(short, long, default_value_t = 7174)]
    port: u16,
    /// Local address to ping from
    #[arg(short = 'I', long, value_name = "ADDR")]
    source: Option<String>,
    /// Print the data of each ping
    #[arg(short, long)]
    verbose: bool,
    /// Print the round-trip time of each ping, and a summary
    #[arg(short, long, conflicts_with = "server")]
    times: bool,
    /// Compare the received data with the sent data
    #[arg(short = 'V', long)]
    validate: bool,
    /// Number of pings; 0 is unlimited
    #[arg(short = 'C', long, default_value_t = 0)]
    count: u32,
    /// Size of a ping in bytes, from 26 to 64K
    #[arg(short = 'S', long, default_value = "64", value_parser = parse_size)]
    size: usize,
    /// Serve several clients, until Ctrl-C
    #[arg(short = 'P', long)]
    persistent: bool,
    /// Print each step
    #[arg(short, long)]
    debug: bool,
    /// Accepted for compatibility with rping, without effect
    #[arg(short = 'q', long)]
    own_queue_pair: bool,
}

/// Runs the client or the server.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    interrupt::watch()?;
    if options.server {
        server::run(options)?;
    } else {
        client::run(options)?;
    }
    Ok(interrupt::exit_code())
}

impl Options {
    /// The server's address and port.
    fn server_address(&self) -> anyhow::Result<SocketAddr> {
        let like = self.source_address()?.map(|source| source.ip());
        match &self.address {
            Some(name) => resolve(name, self.port, like),
            // This includes all IPv4 addresses.
            None => Ok((Ipv6Addr::UNSPECIFIED, self.port).into()),
        }
    }

    /// The local address, if given.
    fn source_address(&self) -> anyhow::Result<Option<SocketAddr>> {
        let source = self.source.as_deref();
        source.map(|name| resolve(name, 0, None)).transpose()
    }
}

/// The address of a name; if it has several, one of the same family as `other`.
fn resolve(name: &str, port: u16, other: Option<IpAddr>) -> anyhow::Result<SocketAddr> {
    let found = (name, port).to_socket_addrs();
    let found: Vec<SocketAddr> = found.map(Iterator::collect).unwrap_or_default();
    let fits = |it: &&SocketAddr| other.is_none_or(|other| other.is_ipv4() == it.is_ipv4());
    let best = found.iter().find(fits).or(found.first());
    best.copied().with_context(|| {
        format!("`{name}` is neither an address nor a known host name; check the spelling")
    })
}

fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => (text, 1),
    };
    let size = digits.parse::<usize>().ok();
    size.and_then(|size| size.checked_mul(factor))
        .filter(|size| (SMALLEST..=LARGEST).contains(size))
        .ok_or_else(|| format!("give a number from {SMALLEST} to 64K"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_rping_and_64_kib() {
        for (text, size) in [("26", 26), ("65535", 65535), ("64K", LARGEST), ("1k", 1024)] {
            assert_eq!(parse_size(text), Ok(size));
        }
        for wrong in ["25", "65537", "65K", "", "K", "-64", "many"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_need_no_brackets() {
        let resolved = |name| resolve(name, 7174, None).expect("an address").to_string();
        assert_eq!(resolved("127.0.0.9"), "127.0.0.9:7174");
        assert_eq!(resolved("::1"), "[::1]:7174");
        assert_eq!(resolved("::0"), "[::]:7174");
    }
}

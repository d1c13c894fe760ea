//! The link between the two sides: a tap device in a network namespace without other interfaces.

use std::fmt;
use std::net::SocketAddr;
use std::process::Command;

use super::system_programs;

pub(crate) const TAP: &str = "tap0";

/// A second tap, for commands to a machine without serial ports.
pub(crate) const CONTROL_TAP: &str = "tap1";

/// The TCP port of the first command channel of the kernel peer.
pub(crate) const FIRST_CONTROL_PORT: u16 = 7001;

/// The largest MTU of any row. The machine starts with it.
pub(crate) const LARGEST_MTU: u32 = 9000;

/// The length of the tap's transmit queue. A whole window of small packets fits: the emulated machine reads slowly.
const TRANSMIT_QUEUE: &str = "10000";

/// Which internet protocol a row uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
}

/// The two ends of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Kernel,
    Ours,
}

impl Side {
    pub(crate) fn address(self, family: Family) -> &'static str {
        match (self, family) {
            (Side::Ours, Family::Ipv4) => "10.211.0.1",
            (Side::Kernel, Family::Ipv4) => "10.211.0.2",
            (Side::Ours, Family::Ipv6) => "fd00:211::1",
            (Side::Kernel, Family::Ipv6) => "fd00:211::2",
        }
    }

    /// The address and the length of its network's prefix.
    pub(crate) fn with_prefix(self, family: Family) -> String {
        let prefix = match family {
            Family::Ipv4 => 24,
            Family::Ipv6 => 64,
        };
        format!("{}/{prefix}", self.address(family))
    }

    /// The address on the link for commands, with its prefix length.
    pub(crate) fn control_address(self) -> String {
        match self {
            Side::Ours => "10.212.0.1/24".into(),
            Side::Kernel => "10.212.0.2/24".into(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
        })
    }
}

/// The arguments of the machine's first process, on the kernel's command line.
pub(crate) fn addresses() -> String {
    let (ipv4, ipv6) = (
        Side::Kernel.with_prefix(Family::Ipv4),
        Side::Kernel.with_prefix(Family::Ipv6),
    );
    format!("peer.ipv4={ipv4} peer.ipv6={ipv6} peer.mtu={LARGEST_MTU}")
}

/// The address at which the kernel peer takes commands.
pub(crate) fn control_address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 212, 0, 2], port))
}

/// Creates the link. The kernel removes it with the namespace.
pub(crate) fn create_link() -> Result<(), String> {
    ip("link set lo up")?;
    ip(&format!("tuntap add dev {TAP} mode tap"))?;
    let queue = format!("txqueuelen {TRANSMIT_QUEUE}");
    ip(&format!("link set {TAP} mtu {LARGEST_MTU} {queue} up"))?;
    let (ipv4, ipv6) = (
        Side::Ours.with_prefix(Family::Ipv4),
        Side::Ours.with_prefix(Family::Ipv6),
    );
    ip(&format!("addr add {ipv4} dev {TAP}"))?;
    ip(&format!("addr add {ipv6} dev {TAP} nodad"))
}

/// Creates the link for commands.
pub(crate) fn create_control_link() -> Result<(), String> {
    ip(&format!("tuntap add dev {CONTROL_TAP} mode tap"))?;
    ip(&format!("link set {CONTROL_TAP} up"))?;
    let address = Side::Ours.control_address();
    ip(&format!("addr add {address} dev {CONTROL_TAP}"))
}

/// Sets the MTU of our end of the link.
pub(crate) fn set_mtu(mtu: u32) -> Result<(), String> {
    ip(&format!("link set {TAP} mtu {mtu}"))
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip")
        .env("PATH", system_programs::search_path())
        .args(words.split_whitespace())
        .output()
        .map_err(|error| format!("ip can't be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(format!("`ip {words}` failed: {}", reason.trim()))
}

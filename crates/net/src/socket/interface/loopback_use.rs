//! Whether the loopback interface may be bypassed.
//!
//! Packets between two local addresses pass through loopback, where other programs capture, delay or drop them.
//! If none does, packets can be handed over in memory without a visible difference.

use std::fs;
use std::io;

use super::netlink;

/// The loopback interface has this index in every network namespace.
const LOOPBACK: u32 = 1;

/// Lists the packet sockets of this thread's network namespace, with the interface of each.
const PACKET_SOCKETS: &str = "/proc/thread-self/net/packet";

/// Why packets must pass through the loopback interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopbackUse {
    /// A packet socket, such as that of tcpdump, captures there.
    Captured,
    /// A queueing discipline, such as netem, shapes it.
    Shaped,
    /// The system does not tell.
    Unknown,
}

/// Why packets must pass through the loopback interface; `None` if they need not.
#[must_use]
pub fn loopback_use() -> Option<LoopbackUse> {
    let Ok(sockets) = fs::read_to_string(PACKET_SOCKETS) else {
        return Some(LoopbackUse::Unknown);
    };
    if sockets.lines().skip(1).any(captures_loopback) {
        return Some(LoopbackUse::Captured);
    }
    match is_shaped() {
        Ok(false) => None,
        Ok(true) => Some(LoopbackUse::Shaped),
        Err(_) => Some(LoopbackUse::Unknown),
    }
}

/// Whether a line describes a socket that receives packets of loopback: `sk RefCnt Type Proto Iface R …`, where
/// interface 0 is every interface, and protocol 0 none.
fn captures_loopback(line: &str) -> bool {
    let mut fields = line.split_ascii_whitespace().skip(3);
    let protocol = fields.next().map(|text| u16::from_str_radix(text, 16));
    let interface = fields.next().map(str::parse::<u32>);
    match (protocol, interface) {
        (Some(Ok(0)), Some(Ok(_))) => false,
        (Some(Ok(_)), Some(Ok(interface))) => interface == 0 || interface == LOOPBACK,
        // An unknown format.
        _ => true,
    }
}

/// Loopback has no queueing discipline of its own: the kernel lists only those that were added.
fn is_shaped() -> io::Result<bool> {
    let disciplines = netlink::queueing_disciplines()?;
    Ok(disciplines
        .iter()
        .any(|(interface, kind)| *interface == LOOPBACK && kind != "noqueue"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::seccomp::{Forbidden, forbid};

    #[test]
    fn packet_socket_on_loopback_or_on_every_interface_captures_it() {
        let line = |protocol: &str, interface: u32| {
            captures_loopback(&format!(
                "ffff8e2cc2ab5000 3      3    {protocol}   {interface}     1 0      0      24713"
            ))
        };
        assert!(line("0003", 0), "tcpdump -i any");
        assert!(line("0003", 1), "tcpdump -i lo");
        assert!(line("0800", 1), "one protocol");
        assert!(!line("0003", 2), "another interface");
        assert!(!line("0000", 1), "a socket that is not bound");
    }

    #[test]
    fn unknown_format_counts_as_captured() {
        assert!(captures_loopback("a new header"));
    }

    #[test]
    fn queueing_disciplines_can_be_listed() {
        netlink::queueing_disciplines().expect("netlink answers");
    }

    #[test]
    fn packets_pass_through_loopback_if_the_system_does_not_tell_who_uses_it() {
        let asked = std::thread::spawn(|| {
            forbid(Forbidden {
                call: libc::SYS_socket,
                argument: 0,
                value: libc::AF_NETLINK,
                errno: libc::EPERM,
            });
            loopback_use()
        });
        let found = asked.join().expect("no panic");
        assert_ne!(found, None);
    }
}

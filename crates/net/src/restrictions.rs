//! Features that this system forbids, as a container's system call filter may, and what happens
//! instead.
//!
//! Everything works without these features, but differently. A program that meets such a restriction
//! reports it on stderr, once. [`restriction_check`](crate::restriction_check) tests for each of them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{stderr, sys};

/// What is forbidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restriction {
    /// `socket(AF_INET6)`, on a machine with IPv6 addresses.
    Ipv6,
    /// `setsockopt(SO_REUSEPORT)`.
    SharedPorts,
    /// `setsockopt(SO_ATTACH_REUSEPORT_CBPF)`.
    Steering,
    /// `memfd_create`.
    MemoryFiles,
    /// `recvmmsg`.
    ReceiveBatches,
}

impl Restriction {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Ipv6,
        Self::SharedPorts,
        Self::Steering,
        Self::MemoryFiles,
        Self::ReceiveBatches,
    ];

    /// What is forbidden, and what happens instead.
    #[must_use]
    pub fn consequence(self) -> &'static str {
        match self {
            Self::Ipv6 => "IPv6 sockets are forbidden here: devices have only IPv4 addresses",
            Self::SharedPorts | Self::Steering => {
                "sharing a port is forbidden here: one context at a time can have an address"
            }
            Self::MemoryFiles => {
                "files in memory are forbidden here: peers get no notice when a process dies, and \
                 packets do not go through shared memory"
            }
            Self::ReceiveBatches => {
                "receiving several packets in one system call is forbidden here: each takes a call of its own, \
                 so bandwidth is lower"
            }
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::Ipv6 => "allow socket(AF_INET6) if peers need IPv6",
            Self::SharedPorts => {
                "give each program its own address, or allow setsockopt(SO_REUSEPORT)"
            }
            Self::Steering => {
                "give each program its own address, or allow setsockopt(SO_ATTACH_REUSEPORT_CBPF)"
            }
            Self::MemoryFiles => "disconnect before a program ends, or allow memfd_create",
            Self::ReceiveBatches => "allow recvmmsg",
        }
    }
}

/// Whether each restriction was reported, in the order of [`Restriction::ALL`].
static REPORTED: [AtomicBool; Restriction::ALL.len()] =
    [const { AtomicBool::new(false) }; Restriction::ALL.len()];

/// Reports on stderr what happens instead, once per process.
pub(crate) fn report(restriction: Restriction) {
    if !REPORTED[restriction as usize].swap(true, Ordering::Relaxed) {
        stderr::print(format_args!(
            "{}; {}",
            restriction.consequence(),
            restriction.advice()
        ));
    }
}

/// Reports the restriction if it is the cause of this error.
pub(crate) fn report_if_forbidden(restriction: Restriction, error: &io::Error) {
    if sys::is_forbidden(error) {
        report(restriction);
    }
}

#[cfg(test)]
pub(crate) fn was_reported(restriction: Restriction) -> bool {
    REPORTED[restriction as usize].load(Ordering::Relaxed)
}

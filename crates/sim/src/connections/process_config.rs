//! The address of a process, and its numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use cm::IdRange;
use engine::QpnRange;
use wire::cm::PortSpace;

/// The service that a client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// A reliable connection.
    Reliable,
    /// An unreliable connection.
    Unreliable,
    /// A datagram service.
    Datagram,
}

impl Service {
    pub(super) fn space(self) -> PortSpace {
        match self {
            Service::Reliable => PortSpace::Tcp,
            Service::Unreliable => PortSpace::Infiniband,
            Service::Datagram => PortSpace::Udp,
        }
    }

    pub(super) fn kind(self) -> cm::ServiceType {
        match self {
            Service::Reliable => cm::ServiceType::ReliableConnection,
            Service::Unreliable => cm::ServiceType::UnreliableConnection,
            Service::Datagram => cm::ServiceType::Datagram,
        }
    }

    pub(super) fn transport(self) -> engine::QueuePairType {
        match self {
            Service::Reliable => engine::QueuePairType::Rc,
            Service::Unreliable => engine::QueuePairType::Uc,
            Service::Datagram => engine::QueuePairType::Ud,
        }
    }
}

/// The configuration of one process. The last process may share the address of the first: then it has
/// its own range of the communication ids, other ports and other queue pair numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessConfig {
    pub(super) number: usize,
    pub(super) shares_first: bool,
    pub(super) ipv6: bool,
    /// The number of queue pair numbers, a power of two. Half may be in use at a time.
    pub(super) numbers: u32,
}

impl ProcessConfig {
    /// The device's GUID. Processes that share an address share it.
    pub(super) fn guid(self) -> u64 {
        1 + if self.shares_first {
            0
        } else {
            self.number as u64
        }
    }

    pub(super) fn address(self) -> IpAddr {
        let device = self.guid() as u8;
        if self.ipv6 {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, device.into()).into()
        } else {
            Ipv4Addr::new(10, 0, 0, device).into()
        }
    }

    pub(super) fn id_range(self) -> IdRange {
        IdRange::new(4, u32::from(self.shares_first)).expect("one bit fits into four")
    }

    pub(super) fn port(self) -> u16 {
        7000 + u16::from(self.shares_first)
    }

    /// The same on every host, so that a queue pair number alone is ambiguous.
    pub(super) fn numbers(self) -> QpnRange {
        // With few numbers, they are soon reused.
        let count = self.numbers;
        QpnRange {
            first: 16 + u32::from(self.shares_first) * count,
            count,
        }
    }

    pub(super) fn number_range(self) -> Range<u32> {
        let QpnRange { first, count } = self.numbers();
        first..first + count
    }
}

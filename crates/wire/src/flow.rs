//! Which way a datagram goes, and what IPv4 says about its fragments.

use std::fmt;
use std::net::IpAddr;

/// The UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// From whom to whom a datagram goes.
///
/// Both addresses are of the same family; an IPv4 address mapped into IPv6 is not an IPv4 address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Flow {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// The UDP port it comes from.
    pub source_port: u16,
    /// The UDP port it goes to, usually [`ROCE_PORT`].
    pub destination_port: u16,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{} > {}.{}",
            self.source, self.source_port, self.destination, self.destination_port
        )
    }
}

/// What the IPv4 header of a packet said about fragments. IPv6 says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fragmentation {
    /// The identification field.
    pub identification: u16,
    /// Whether routers were told not to fragment.
    pub dont_fragment: bool,
}

impl Fragmentation {
    const DONT_FRAGMENT: u16 = 0x4000;

    /// What an unconnected UDP socket sends: identification 0, not to be fragmented.
    pub const NONE: Fragmentation = Fragmentation {
        identification: 0,
        dont_fragment: true,
    };

    /// The four bytes of the IPv4 header that hold it.
    pub const fn bytes(self) -> [u8; 4] {
        let identification = self.identification.to_be_bytes();
        let flags = if self.dont_fragment {
            Self::DONT_FRAGMENT.to_be_bytes()
        } else {
            [0, 0]
        };
        [identification[0], identification[1], flags[0], flags[1]]
    }

    /// Reads the four bytes; none if they belong to a fragment or have the reserved bit set.
    pub const fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
        let [id_high, id_low, flags_high, flags_low] = bytes;
        let dont_fragment = match u16::from_be_bytes([flags_high, flags_low]) {
            Self::DONT_FRAGMENT => true,
            0 => false,
            _ => return None,
        };
        Some(Fragmentation {
            identification: u16::from_be_bytes([id_high, id_low]),
            dont_fragment,
        })
    }
}

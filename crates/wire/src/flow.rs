//! The addresses, ports and IP fields of a datagram.

use std::fmt;
use std::net::IpAddr;

/// CA17-20: the UDP destination port is the one that IANA assigned to RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// The addresses and UDP ports of a datagram.
///
/// Both addresses have the same family. An IPv4-mapped IPv6 address counts as IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Flow {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The UDP source port.
    pub source_port: u16,
    /// The UDP destination port, usually [`ROCE_PORT`].
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

/// The addresses, UDP ports and IP fields of a sent or received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Route {
    /// The addresses and UDP ports. The ICRC covers them.
    pub flow: Flow,
    /// The IP traffic class (IPv4 ToS); 0 if a received datagram's is unknown.
    pub traffic_class: u8,
    /// The IP hop limit (IPv4 TTL). To send, 0 stands for
    /// [`DEFAULT_HOP_LIMIT`](Self::DEFAULT_HOP_LIMIT), because a packet with 0 could not arrive.
    pub hop_limit: u8,
}

impl Route {
    /// The hop limit of packets that set no other.
    pub const DEFAULT_HOP_LIMIT: u8 = 64;

    /// The bits of the traffic class in which routers mark congestion (ECN, RFC 3168). All are set in a marked packet (CE).
    const CONGESTION_BITS: u8 = 0b11;

    /// ECT(0): routers may mark the packet.
    const MARKS_ALLOWED: u8 = 0b10;

    /// A datagram of this flow, with the default values of the other fields.
    #[must_use]
    pub const fn new(flow: Flow) -> Self {
        Self {
            flow,
            traffic_class: 0,
            hop_limit: Self::DEFAULT_HOP_LIMIT,
        }
    }

    /// The same, for packets that routers may mark instead of dropping them when they are congested, or for others.
    #[must_use]
    pub const fn with_marks_allowed(self, allowed: bool) -> Self {
        let rest = self.traffic_class & !Self::CONGESTION_BITS;
        let bits = if allowed { Self::MARKS_ALLOWED } else { 0 };
        Self {
            traffic_class: rest | bits,
            ..self
        }
    }

    /// Whether routers may mark the packet, or have.
    #[must_use]
    pub const fn allows_marks(&self) -> bool {
        self.traffic_class & Self::CONGESTION_BITS != 0
    }

    /// The same, for a packet that a congested router has marked.
    #[must_use]
    pub const fn marked(self) -> Self {
        Self {
            traffic_class: self.traffic_class | Self::CONGESTION_BITS,
            ..self
        }
    }

    /// Whether a congested router has marked the packet.
    #[inline]
    #[must_use]
    pub const fn is_marked(&self) -> bool {
        self.traffic_class & Self::CONGESTION_BITS == Self::CONGESTION_BITS
    }
}

/// The fragmentation fields of a packet's IPv4 header. IPv6 has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fragmentation {
    /// The identification field.
    pub identification: u16,
    /// Whether the don't-fragment flag is set.
    pub dont_fragment: bool,
}

impl Fragmentation {
    const DONT_FRAGMENT: u16 = 0x4000;

    /// What an unconnected UDP socket sends: identification 0, don't-fragment set.
    pub const NONE: Fragmentation = Fragmentation {
        identification: 0,
        dont_fragment: true,
    };

    /// The four bytes of the IPv4 header that hold these fields.
    pub const fn bytes(self) -> [u8; 4] {
        let identification = self.identification.to_be_bytes();
        let flags = if self.dont_fragment {
            Self::DONT_FRAGMENT.to_be_bytes()
        } else {
            [0, 0]
        };
        [identification[0], identification[1], flags[0], flags[1]]
    }

    /// Reads the four bytes. Returns `None` for a fragment and if the reserved bit is set.
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn congestion_bits_leave_the_rest_of_the_traffic_class() {
        let route = Route {
            traffic_class: 0x69,
            ..Route::new(Flow {
                source: Ipv4Addr::LOCALHOST.into(),
                destination: Ipv4Addr::LOCALHOST.into(),
                source_port: 0xc000,
                destination_port: ROCE_PORT,
            })
        };
        let allowed = route.with_marks_allowed(true);
        assert_eq!((allowed.traffic_class, allowed.is_marked()), (0x6a, false));
        let marked = allowed.marked();
        assert_eq!((marked.traffic_class, marked.is_marked()), (0x6b, true));
        let plain = marked.with_marks_allowed(false);
        assert_eq!((plain.traffic_class, plain.allows_marks()), (0x68, false));
    }
}

//! The identifiers and durations of connection management.

use std::fmt;
use std::time::Duration;

use super::field::Number;

/// The number by which one side names a connection. Each side chooses its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CommunicationId(u32);

impl CommunicationId {
    /// Wraps an identifier.
    pub const fn new(value: u32) -> Self {
        CommunicationId(value)
    }

    /// All 32 bits.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for CommunicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl Number for CommunicationId {
    fn from_number(number: u64) -> Self {
        CommunicationId(number as u32)
    }

    fn number(&self) -> u64 {
        self.0.into()
    }
}

/// The service that a listener listens for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ServiceId(u64);

/// The port spaces that `rdma_cm` maps into service IDs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum PortSpace {
    /// Connected queue pairs.
    Tcp = 0x0106,
    /// Datagram queue pairs.
    Udp = 0x0111,
    /// Queue pairs of any type, addressed by native InfiniBand addresses (`RDMA_PS_IB`).
    Infiniband = 0x013f,
}

impl ServiceId {
    /// Wraps an identifier.
    pub const fn new(value: u64) -> Self {
        ServiceId(value)
    }

    /// The service ID of a port, as `rdma_cm` forms it.
    pub const fn of_port(space: PortSpace, port: u16) -> Self {
        ServiceId((space as u64) << 16 | port as u64)
    }

    /// All 64 bits.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The port of this service ID, if `rdma_cm` formed it.
    pub const fn port(self) -> Option<(PortSpace, u16)> {
        let space = match self.0 >> 16 {
            0x0106 => PortSpace::Tcp,
            0x0111 => PortSpace::Udp,
            0x013f => PortSpace::Infiniband,
            _ => return None,
        };
        Some((space, self.0 as u16))
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port() {
            Some((PortSpace::Tcp, port)) => write!(f, "tcp/{port}"),
            Some((PortSpace::Udp, port)) => write!(f, "udp/{port}"),
            Some((PortSpace::Infiniband, port)) => write!(f, "ib/{port}"),
            None => write!(f, "{:#018x}", self.0),
        }
    }
}

impl Number for ServiceId {
    fn from_number(number: u64) -> Self {
        ServiceId(number)
    }

    fn number(&self) -> u64 {
        self.0
    }
}

/// How long a side waits for a response, or may take to answer: 4.096 µs · 2^code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timeout(u8);

impl Timeout {
    const CODES: u8 = 32;

    /// Takes a five-bit code.
    pub const fn new(code: u8) -> Option<Self> {
        if code < Self::CODES {
            Some(Timeout(code))
        } else {
            None
        }
    }

    /// The five-bit code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The duration. Unlike [`AckTimeout`](crate::AckTimeout), code 0 is finite.
    pub const fn interval(self) -> Duration {
        Duration::from_nanos(4096 << self.0)
    }
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.interval())
    }
}

impl Number for Timeout {
    fn from_number(number: u64) -> Self {
        Timeout(number as u8 % Self::CODES)
    }

    fn number(&self) -> u64 {
        self.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_id_encodes_port_space_and_port() {
        let service = ServiceId::of_port(PortSpace::Tcp, 7174);
        assert_eq!(service.value(), 0x0000_0000_0106_1c06);
        assert_eq!(service.port(), Some((PortSpace::Tcp, 7174)));
        assert_eq!(service.to_string(), "tcp/7174");
        let udp = ServiceId::of_port(PortSpace::Udp, 1);
        assert_eq!(udp.value(), 0x0111_0001);
        assert_eq!(udp.to_string(), "udp/1");
    }

    #[test]
    fn service_id_outside_rdma_cm_has_no_port() {
        let service = ServiceId::new(0x1000_0000_0106_1c06);
        assert_eq!(service.port(), None);
        assert_eq!(service.to_string(), "0x1000000001061c06");
    }

    #[test]
    fn each_timeout_code_doubles_the_interval() {
        let timeout = Timeout::new(20).unwrap();
        assert_eq!(timeout.interval(), Duration::from_nanos(4_294_967_296));
        assert_eq!(Timeout::new(32), None);
    }
}

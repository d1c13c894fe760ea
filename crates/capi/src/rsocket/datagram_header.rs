//! The headers of datagram sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use wire::Qpn;

/// The maximum length of a message, with its header.
pub(super) const MAX_MESSAGE: usize = 2048;

/// The maximum length of a message over UDP, whose header is longer.
pub(super) const MAX_UDP_MESSAGE: usize = MAX_MESSAGE + FIXED + 16;

const TAG: u32 = 0x5555_5555;

/// The operation of a message over UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UdpOperation {
    /// Carries data, because the sender does not know our queue pair.
    Data = 0,
    /// Only tells the number of a queue pair.
    Control = 7,
}

/// The header of a message over UDP: it names the sender's queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UdpHeader {
    pub(super) operation: UdpOperation,
    pub(super) queue_pair: Qpn,
    pub(super) address: IpAddr,
}

impl UdpHeader {
    pub(super) fn emit(&self) -> Vec<u8> {
        let (version, address) = parts(self.address);
        let length = FIXED + address.len();
        let mut bytes = Vec::with_capacity(length);
        bytes.extend(TAG.to_be_bytes());
        bytes.extend([version, self.operation as u8, length as u8, 0]);
        bytes.extend(self.queue_pair.value().to_be_bytes());
        bytes.extend(address);
        bytes
    }

    /// The header and the data after it; `None` if it is not valid.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED>()?;
        let [t0, t1, t2, t3, version, operation, length, _, _, q1, q2, q3] = *fixed;
        if u32::from_be_bytes([t0, t1, t2, t3]) != TAG {
            return None;
        }
        let (address, data) = address_of(version, rest)?;
        if usize::from(length) != bytes.len() - data.len() {
            return None;
        }
        let operation = match operation {
            0 => UdpOperation::Data,
            7 => UdpOperation::Control,
            _ => return None,
        };
        let queue_pair = Qpn::new(u32::from_be_bytes([0, q1, q2, q3]));
        Some((
            Self {
                operation,
                queue_pair,
                address,
            },
            data,
        ))
    }
}

/// The length of the header without the address.
const FIXED: usize = 12;

/// The header of a message between queue pairs: the sender's UDP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DatagramHeader(pub(super) SocketAddr);

impl DatagramHeader {
    pub(super) fn emit(self) -> Vec<u8> {
        let (version, address) = parts(self.0.ip());
        let flow: &[u8] = match self.0 {
            SocketAddr::V4(_) => &[],
            SocketAddr::V6(v6) => &v6.flowinfo().to_be_bytes(),
        };
        let length = 4 + flow.len() + address.len();
        let mut bytes = Vec::with_capacity(length);
        bytes.extend([version, length as u8]);
        bytes.extend(self.0.port().to_be_bytes());
        bytes.extend(flow);
        bytes.extend(address);
        bytes
    }

    /// The header and the data after it; `None` if it is not valid.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let ([version, length, high, low], rest) = bytes.split_first_chunk()?;
        let port = u16::from_be_bytes([*high, *low]);
        let (flow, rest) = match version {
            6 => rest
                .split_first_chunk()
                .map(|(flow, rest)| (u32::from_be_bytes(*flow), rest))?,
            _ => (0, rest),
        };
        let (ip, data) = address_of(*version, rest)?;
        if usize::from(*length) != bytes.len() - data.len() {
            return None;
        }
        let sender = match ip {
            IpAddr::V4(_) => SocketAddr::new(ip, port),
            IpAddr::V6(v6) => SocketAddrV6::new(v6, port, flow, 0).into(),
        };
        Some((Self(sender), data))
    }
}

fn parts(ip: IpAddr) -> (u8, Vec<u8>) {
    match ip {
        IpAddr::V4(v4) => (4, v4.octets().to_vec()),
        IpAddr::V6(v6) => (6, v6.octets().to_vec()),
    }
}

fn address_of(version: u8, bytes: &[u8]) -> Option<(IpAddr, &[u8])> {
    match version {
        4 => {
            let (octets, rest) = bytes.split_first_chunk::<4>()?;
            Some((Ipv4Addr::from(*octets).into(), rest))
        }
        6 => {
            let (octets, rest) = bytes.split_first_chunk::<16>()?;
            Some((Ipv6Addr::from(*octets).into(), rest))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_udp_header_is_parsed_as_it_was_emitted() {
        for (ip, length) in [("10.0.0.1", 16), ("fd00::1", 28)] {
            let header = UdpHeader {
                operation: UdpOperation::Control,
                queue_pair: Qpn::new(0x12_3456),
                address: ip.parse().expect("an address"),
            };
            let mut bytes = header.emit();
            assert_eq!(bytes.len(), length);
            assert_eq!(usize::from(bytes[6]), length);
            bytes.extend(b"data");
            assert_eq!(UdpHeader::parse(&bytes), Some((header, &b"data"[..])));
            assert_eq!(UdpHeader::parse(&bytes[..11]), None);
        }
        assert_eq!(UdpHeader::parse(&[0x55; 40]), None);
    }

    #[test]
    fn a_datagram_header_is_parsed_as_it_was_emitted() {
        for (address, length) in [("10.0.0.1:7471", 8), ("[fd00::1]:7471", 24)] {
            let sender = DatagramHeader(address.parse().expect("an address"));
            let mut bytes = sender.emit();
            assert_eq!(bytes.len(), length);
            bytes.push(7);
            assert_eq!(DatagramHeader::parse(&bytes), Some((sender, &[7][..])));
        }
        assert_eq!(DatagramHeader::parse(&[4, 9, 0, 0, 1, 2, 3, 4, 5]), None);
    }
}

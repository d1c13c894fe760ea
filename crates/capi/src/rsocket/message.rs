//! What goes before the data of datagram sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use wire::Qpn;

const TAG: u32 = 0x5555_5555;

/// What a message over UDP is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It carries data, because the sender does not know a queue pair yet.
    Data = 0,
    /// It only answers with the number of a queue pair.
    Control = 7,
}

/// What goes before data in UDP: where the sender's queue pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Introduction {
    pub(super) purpose: Purpose,
    pub(super) queue_pair: Qpn,
    pub(super) address: IpAddr,
}

impl Introduction {
    pub(super) fn emit(&self) -> Vec<u8> {
        let (version, address) = parts(self.address);
        let length = FIXED + address.len();
        let mut bytes = Vec::with_capacity(length);
        bytes.extend(TAG.to_be_bytes());
        bytes.extend([version, self.purpose as u8, length as u8, 0]);
        bytes.extend(self.queue_pair.value().to_be_bytes());
        bytes.extend(address);
        bytes
    }

    /// The introduction and what follows it; nothing if it is something else.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED>()?;
        let [t0, t1, t2, t3, version, purpose, length, _, _, q1, q2, q3] = *fixed;
        if u32::from_be_bytes([t0, t1, t2, t3]) != TAG {
            return None;
        }
        let (address, data) = address_of(version, rest)?;
        if usize::from(length) != bytes.len() - data.len() {
            return None;
        }
        let purpose = match purpose {
            0 => Purpose::Data,
            7 => Purpose::Control,
            _ => return None,
        };
        let queue_pair = Qpn::new(u32::from_be_bytes([0, q1, q2, q3]));
        Some((
            Self {
                purpose,
                queue_pair,
                address,
            },
            data,
        ))
    }
}

/// The part of an introduction before the address.
const FIXED: usize = 12;

/// What goes before data from queue pair to queue pair: the sender's UDP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sender(pub(super) SocketAddr);

impl Sender {
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

    /// Who sent it and what; nothing if it is something else.
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
    fn an_introduction_survives_the_wire() {
        for (ip, length) in [("10.0.0.1", 16), ("fd00::1", 28)] {
            let introduction = Introduction {
                purpose: Purpose::Control,
                queue_pair: Qpn::new(0x12_3456),
                address: ip.parse().expect("an address"),
            };
            let mut bytes = introduction.emit();
            assert_eq!(bytes.len(), length);
            assert_eq!(usize::from(bytes[6]), length);
            bytes.extend(b"data");
            assert_eq!(
                Introduction::parse(&bytes),
                Some((introduction, &b"data"[..]))
            );
            assert_eq!(Introduction::parse(&bytes[..11]), None);
        }
        assert_eq!(Introduction::parse(&[0x55; 40]), None);
    }

    #[test]
    fn a_sender_survives_the_wire() {
        for (address, length) in [("10.0.0.1:7471", 8), ("[fd00::1]:7471", 24)] {
            let sender = Sender(address.parse().expect("an address"));
            let mut bytes = sender.emit();
            assert_eq!(bytes.len(), length);
            bytes.push(7);
            assert_eq!(Sender::parse(&bytes), Some((sender, &[7][..])));
        }
        assert_eq!(Sender::parse(&[4, 9, 0, 0, 1, 2, 3, 4, 5]), None);
    }
}

//! The address header with which `rdma_cm` sends IP addresses to the peer.

use std::net::{IpAddr, Ipv4Addr};

/// The first 36 bytes of the private data in every REQ and SIDR_REQ that `rdma_cm` sends are the port and the IP
/// addresses of the connection (Annex A11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressHeader {
    /// The port that the active side is bound to.
    pub source_port: u16,
    /// The address of the active side.
    pub source: IpAddr,
    /// The address that the active side connects to.
    pub destination: IpAddr,
}

/// Why private data does not start with an address header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressHeaderError {
    /// The header has an unknown version.
    #[error("address header version {0:#04x}, the only known one is 0")]
    Version(u8),
    /// The IP version is neither 4 nor 6.
    #[error("IP version {0} in the address header")]
    IpVersion(u8),
}

impl AddressHeader {
    /// Its length in bytes, at the start of the private data.
    pub const LENGTH: usize = 36;

    const VERSION: u8 = 0;

    /// Reads the header.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Result<Self, AddressHeaderError> {
        if bytes[0] != Self::VERSION {
            return Err(AddressHeaderError::Version(bytes[0]));
        }
        let address = match bytes[1] >> 4 {
            4 => read_ipv4,
            6 => read_ipv6,
            other => return Err(AddressHeaderError::IpVersion(other)),
        };
        Ok(AddressHeader {
            source_port: u16::from_be_bytes([bytes[2], bytes[3]]),
            source: address(&bytes[4..20]),
            destination: address(&bytes[20..36]),
        })
    }

    /// Writes the header.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let ip_version = if self.source.is_ipv4() { 4 } else { 6 };
        bytes[0] = Self::VERSION;
        bytes[1] = ip_version << 4;
        bytes[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[4..20].copy_from_slice(&octets(self.source));
        bytes[20..36].copy_from_slice(&octets(self.destination));
        bytes
    }
}

/// An IPv4 address is in the last four bytes. The twelve bytes before it are ignored.
fn read_ipv4(bytes: &[u8]) -> IpAddr {
    Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]).into()
}

fn read_ipv6(bytes: &[u8]) -> IpAddr {
    let octets: [u8; 16] = bytes.try_into().expect("an address has sixteen bytes");
    octets.into()
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_compatible().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Annex A11
    #[test]
    fn ipv4_address_is_in_the_last_four_bytes_of_its_field() {
        let header = AddressHeader {
            source_port: 0xabcd,
            source: IpAddr::from([10, 200, 0, 2]),
            destination: IpAddr::from([10, 200, 0, 3]),
        };
        let bytes = header.emit();
        assert_eq!(bytes[..4], [0, 0x40, 0xab, 0xcd]);
        assert_eq!(bytes[16..20], [10, 200, 0, 2]);
        assert_eq!(bytes[32..], [10, 200, 0, 3]);
        assert_eq!(AddressHeader::parse(&bytes), Ok(header));
    }

    #[test]
    fn ipv6_address_fills_its_field() {
        let header = AddressHeader {
            source_port: 1,
            source: "fe80::1".parse().unwrap(),
            destination: "fe80::2".parse().unwrap(),
        };
        assert_eq!(AddressHeader::parse(&header.emit()), Ok(header));
    }

    #[test]
    fn unknown_versions_are_rejected() {
        let mut bytes = [0; AddressHeader::LENGTH];
        let ip_version = AddressHeader::parse(&bytes);
        assert_eq!(ip_version, Err(AddressHeaderError::IpVersion(0)));
        bytes[0] = 0x10;
        let version = AddressHeader::parse(&bytes);
        assert_eq!(version, Err(AddressHeaderError::Version(0x10)));
    }
}

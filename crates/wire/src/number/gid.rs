//! Global identifiers: the addresses of RDMA ports, which in RoCEv2 are IP addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A global identifier. In RoCEv2 it is an IPv6 address, or an IPv4 address mapped into one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Gid([u8; 16]);

impl Gid {
    /// Takes the sixteen bytes in network order.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Gid(bytes)
    }

    /// The sixteen bytes in network order.
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Whether this is the empty entry of a GID table.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// The IP address: IPv4 if the GID is an IPv4-mapped address, `None` if it is zero.
    pub fn ip(self) -> Option<IpAddr> {
        if self.is_zero() {
            return None;
        }
        Some(Ipv6Addr::from(self.0).to_canonical())
    }

    /// Whether it is a multicast address of either family.
    pub fn is_multicast(self) -> bool {
        self.ip().is_some_and(|ip| ip.is_multicast())
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        let address = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        Gid(address.octets())
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Self {
        IpAddr::V4(ip).into()
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(ip: Ipv6Addr) -> Self {
        IpAddr::V6(ip).into()
    }
}

impl From<Gid> for Ipv6Addr {
    /// The sixteen bytes as an address. [`Gid::ip`] turns an IPv4-mapped address into an IPv4 address.
    fn from(gid: Gid) -> Self {
        Ipv6Addr::from(gid.0)
    }
}

impl fmt::Display for Gid {
    /// Eight groups of four digits without shortening, as RDMA tools print it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pair) in self.0.chunks_exact(2).enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(f, "{separator}{:02x}{:02x}", pair[0], pair[1])?;
        }
        Ok(())
    }
}

/// The text is not a GID.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is not a GID: expected an IPv6 address, or an IPv4 address to be mapped")]
pub struct GidParseError {
    text: String,
}

impl FromStr for Gid {
    type Err = GidParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ip: IpAddr = text.parse().map_err(|_| GidParseError {
            text: text.to_owned(),
        })?;
        Ok(Gid::from(ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> Gid {
        text.parse().expect("a GID")
    }

    #[test]
    fn ipv4_address_is_mapped_and_printed_in_full() {
        let mapped = Gid::from(IpAddr::from([10, 200, 0, 2]));
        assert_eq!(
            mapped.to_string(),
            "0000:0000:0000:0000:0000:ffff:0ac8:0002"
        );
        assert_eq!(gid("10.200.0.2"), mapped);
        assert_eq!(gid(&mapped.to_string()), mapped);
        assert_eq!(mapped.ip(), Some(IpAddr::from([10, 200, 0, 2])));
        assert_eq!(Gid::from(Ipv4Addr::new(10, 200, 0, 2)), mapped);
        assert_eq!(Gid::from(Ipv6Addr::from(mapped)), mapped);
        assert_eq!(
            Gid::from(Ipv4Addr::new(10, 200, 0, 2).to_ipv6_mapped()),
            mapped
        );
    }

    #[test]
    fn ipv6_address_is_kept() {
        let link_local = gid("fe80::5054:ff:fe12:3456");
        assert_eq!(link_local.ip(), "fe80::5054:ff:fe12:3456".parse().ok());
        assert_eq!(link_local.bytes()[..2], [0xfe, 0x80]);
    }

    #[test]
    fn zero_gid_has_no_address() {
        assert!(Gid::default().is_zero());
        assert_eq!(Gid::default().ip(), None);
        assert!(!Gid::default().is_multicast());
    }

    #[test]
    fn multicast_gids_of_both_families_are_recognized() {
        assert!(gid("ff0e::1").is_multicast());
        assert!(gid("::ffff:224.1.2.3").is_multicast());
        assert!(!gid("10.0.0.1").is_multicast());
        assert!(!gid("fe80::1").is_multicast());
    }

    #[test]
    fn parse_error_quotes_the_text() {
        let error = "fe80::xyz".parse::<Gid>().unwrap_err();
        assert!(error.to_string().contains("fe80::xyz"));
    }
}

//! Addresses of peers, and the path that packets take to them.

use std::net::IpAddr;

use wire::{Flow, Gid, Qpn, ROCE_PORT, Route};

use crate::system_refusal::SystemRefusal;

/// The address of a peer and how packets reach it: the content of an address handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// The peer's GID.
    pub destination: Gid,
    /// The index of the local GID to send from.
    pub source_index: u8,
    /// Determines the UDP source port, so that the network spreads flows. With 0 the device
    /// chooses.
    pub flow_label: u32,
    /// The hop limit (IPv4 TTL).
    pub hop_limit: u8,
    /// The IP traffic class (IPv4 ToS).
    pub traffic_class: u8,
    /// The service level. Kept for the caller; it has no effect here.
    pub service_level: u8,
}

impl Address {
    /// The peer at `destination`, with the local GID `source_index`.
    #[must_use]
    pub fn new(destination: Gid, source_index: u8) -> Self {
        Self {
            destination,
            source_index,
            flow_label: 0,
            hop_limit: 64,
            traffic_class: 0,
            service_level: 0,
        }
    }
}

/// Whether an address can be that of a machine. A forged packet may have another source, to which no response can be
/// sent. An IPv4 packet has an IPv4 address, so an IPv6 packet with a mapped one is forged, too.
pub(crate) fn is_unicast(address: IpAddr) -> bool {
    let is_special = match address {
        IpAddr::V4(address) => address.is_broadcast(),
        IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
    };
    !(is_special || address.is_unspecified() || address.is_multicast())
}

/// Why no packet can be sent to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The GID table has no entry at this index.
    #[error("GID index {0} is empty: look at the GID table for the index to use")]
    EmptySourceIndex(u8),
    /// The destination GID is zero.
    #[error("the destination GID is zero: set the global route (GRH) with the peer's GID")]
    NoDestination,
    /// The limit on address handles is reached.
    #[error("the device has no room for another address handle: destroy one first")]
    Exhausted,
    /// One GID is IPv4, the other IPv6.
    #[error(
        "GID index {source_index} is not of the address family of {destination}: choose an index \
         of the same family"
    )]
    FamilyMismatch {
        /// The index of the local GID.
        source_index: u8,
        /// The peer's GID.
        destination: Gid,
    },
    /// A device of the system refused it.
    #[error(transparent)]
    System(#[from] SystemRefusal),
}

/// How the UDP source port of packets is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourcePort {
    /// Always this port: the one socket that sends all packets is bound to it.
    Fixed(u16),
    /// One port per local GID, by GID index: each address has its own socket.
    OfGid(Vec<u16>),
    /// One port per flow, derived from the flow label as the kernel does.
    OfFlow,
}

impl SourcePort {
    /// The source port of packets from queue pair `local` to `remote`.
    fn choose(&self, address: &Address, local: Qpn, remote: Qpn) -> u16 {
        let of_flow = || match address.flow_label {
            0 => port_of_label(label_of_pair(local, remote)),
            label => port_of_label(label),
        };
        match self {
            SourcePort::Fixed(port) => *port,
            SourcePort::OfGid(ports) => {
                let port = ports.get(usize::from(address.source_index));
                port.copied().unwrap_or_else(of_flow)
            }
            SourcePort::OfFlow => of_flow(),
        }
    }
}

/// Folds the 20-bit flow label into the 14-bit port range, as the kernel does.
fn port_of_label(label: u32) -> u16 {
    let folded = (label ^ (label & 0xfffff) >> 14) & 0x3fff;
    0xc000 | folded as u16
}

fn label_of_pair(local: Qpn, remote: Qpn) -> u32 {
    let product = u64::from(local.value()) * u64::from(remote.value());
    let folded = product ^ product >> 20 ^ product >> 40;
    (folded & 0xfffff) as u32
}

/// The local GIDs by index.
#[derive(Debug, Clone)]
pub(crate) struct GidTable {
    entries: Vec<Gid>,
    ports: SourcePort,
}

impl GidTable {
    pub(crate) fn new(entries: Vec<Gid>, ports: SourcePort) -> Self {
        Self { entries, ports }
    }

    pub(crate) fn entries(&self) -> &[Gid] {
        &self.entries
    }

    /// Whether a GID of the device stands for this IP address.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.entries.iter().any(|gid| gid.ip() == Some(address))
    }

    /// The IP addresses of packets to `address`: source and destination.
    pub(crate) fn resolve(&self, address: &Address) -> Result<(IpAddr, IpAddr), AddressError> {
        let empty = AddressError::EmptySourceIndex(address.source_index);
        let source = self
            .entries
            .get(usize::from(address.source_index))
            .and_then(|gid| gid.ip())
            .ok_or(empty)?;
        let destination = address
            .destination
            .ip()
            .ok_or(AddressError::NoDestination)?;
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(AddressError::FamilyMismatch {
                source_index: address.source_index,
                destination: address.destination,
            });
        }
        Ok((source, destination))
    }

    /// The route of packets from queue pair `local` to `remote` at `address`.
    pub(crate) fn route(
        &self,
        address: &Address,
        local: Qpn,
        remote: Qpn,
    ) -> Result<Route, AddressError> {
        let (source, destination) = self.resolve(address)?;
        Ok(Route {
            flow: Flow {
                source,
                destination,
                source_port: self.ports.choose(address, local, remote),
                destination_port: ROCE_PORT,
            },
            traffic_class: address.traffic_class,
            hop_limit: address.hop_limit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_port_of_a_flow_equals_the_kernel_s_choice() {
        // From a capture of a ping-pong between the kernel's queue pairs 0x2b and 0x2c.
        assert_eq!(
            port_of_label(label_of_pair(Qpn::new(0x2b), Qpn::new(0x2c))),
            51_044
        );
        assert_eq!(port_of_label(0), 0xc000);
        assert_eq!(port_of_label(0x3fff), 0xffff);
        assert_eq!(port_of_label(0xfffff), 0xc000 | (0x3fff ^ 0x3f));
    }

    #[test]
    fn route_needs_a_local_gid_of_the_same_family() {
        let v4: Gid = IpAddr::from([10, 0, 0, 1]).into();
        let v6: Gid = IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 1]).into();
        let table = GidTable::new(vec![v4, Gid::from_bytes([0; 16])], SourcePort::OfFlow);
        assert!(table.resolve(&Address::new(v4, 0)).is_ok());
        assert_eq!(
            table.resolve(&Address::new(v4, 1)),
            Err(AddressError::EmptySourceIndex(1))
        );
        assert_eq!(
            table.resolve(&Address::new(v4, 9)),
            Err(AddressError::EmptySourceIndex(9))
        );
        assert!(matches!(
            table.resolve(&Address::new(v6, 0)),
            Err(AddressError::FamilyMismatch { .. })
        ));
        assert_eq!(
            table.resolve(&Address::new(Gid::from_bytes([0; 16]), 0)),
            Err(AddressError::NoDestination)
        );
    }
}

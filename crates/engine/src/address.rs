//! Addresses of peers, and the path that packets take to them.

use std::net::IpAddr;

use wire::{Flow, Gid, Qpn, ROCE_PORT};

/// Where a peer is and how to get there: the content of an address handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// The peer's GID.
    pub destination: Gid,
    /// Which of our own GIDs to send from.
    pub source_index: u8,
    /// Chooses the UDP source port, so that the network spreads flows; 0 lets the device choose.
    pub flow_label: u32,
    /// How many routers may forward it.
    pub hop_limit: u8,
    /// The IP traffic class (ToS).
    pub traffic_class: u8,
    /// The service level; carried for the caller, without effect here.
    pub service_level: u8,
}

impl Address {
    /// The peer at `destination`, from our GID number `source_index`.
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

/// Why no packet can be sent to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The GID table has no such entry.
    #[error("GID index {0} is empty: look at the GID table for the index to use")]
    EmptySourceIndex(u8),
    /// The destination is all zero.
    #[error("the destination GID is zero: set the global route (GRH) with the peer's GID")]
    NoDestination,
    /// There are as many address handles as there may be.
    #[error("the device has no room for another address handle: destroy one first")]
    Exhausted,
    /// One is IPv4, the other IPv6.
    #[error(
        "GID index {source_index} is not of the address family of {destination}: choose an index \
         of the same family"
    )]
    FamilyMismatch {
        /// Our GID's index.
        source_index: u8,
        /// The peer.
        destination: Gid,
    },
}

/// How packets to one peer leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Addresses and ports, as the ICRC covers them.
    pub flow: Flow,
    /// The IP traffic class (ToS).
    pub traffic_class: u8,
    /// The IP TTL or hop limit.
    pub hop_limit: u8,
}

/// Where a datagram came from, as the socket tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Addresses and ports of the packet: source is the peer.
    pub flow: Flow,
    /// The IP traffic class (ToS), or 0 when unknown.
    pub traffic_class: u8,
    /// The IP TTL or hop limit, or 64 when unknown.
    pub hop_limit: u8,
}

impl Arrival {
    /// A datagram of this flow, with the usual other fields.
    #[must_use]
    pub const fn new(flow: Flow) -> Self {
        Self {
            flow,
            traffic_class: 0,
            hop_limit: 64,
        }
    }
}

/// Which UDP source port packets carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourcePort {
    /// This one: the port of the one socket that everything is sent from.
    Fixed(u16),
    /// That of the GID which is sent from, by its index: each address has a socket of its own.
    OfGid(Vec<u16>),
    /// One for each flow, as the kernel derives it from the flow label.
    OfFlow,
}

impl SourcePort {
    /// The port for packets of queue pair `local` to `remote`.
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

/// Folds the 20-bit flow label into the upper 14-bit port range, as the kernel does.
fn port_of_label(label: u32) -> u16 {
    let folded = (label ^ (label & 0xfffff) >> 14) & 0x3fff;
    0xc000 | folded as u16
}

fn label_of_pair(local: Qpn, remote: Qpn) -> u32 {
    let product = u64::from(local.value()) * u64::from(remote.value());
    let folded = product ^ product >> 20 ^ product >> 40;
    (folded & 0xfffff) as u32
}

/// Our own addresses by index.
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

    /// The addresses between which packets to `address` travel.
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

    /// The whole route of packets from queue pair `local` to `remote` at `address`.
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
    fn source_ports_are_the_kernel_s() {
        // Captured from a ping-pong between the kernel's queue pairs 0x2b and 0x2c.
        assert_eq!(
            port_of_label(label_of_pair(Qpn::new(0x2b), Qpn::new(0x2c))),
            51_044
        );
        assert_eq!(port_of_label(0), 0xc000);
        assert_eq!(port_of_label(0x3fff), 0xffff);
        assert_eq!(port_of_label(0xfffff), 0xc000 | (0x3fff ^ 0x3f));
    }

    #[test]
    fn a_route_needs_a_gid_of_the_same_family() {
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

//! The UDP header.

use std::net::IpAddr;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::internet_checksum;
use super::layer::{DatagramError, cut, read};
use crate::flow::Flow;

/// The IP protocol number of UDP.
pub(super) const UDP_PROTOCOL: u8 = 17;
pub(crate) const UDP_HEADER: usize = size_of::<UdpHeader>();

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct UdpHeader {
    source_port: U16,
    destination_port: U16,
    length: U16,
    checksum: U16,
}
const _: () = assert!(size_of::<UdpHeader>() == 8);

impl UdpHeader {
    /// Reads the header. Returns it and the payload, whose length it gives.
    pub(super) fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), DatagramError> {
        let (header, _) = read::<Self>("UDP", bytes)?;
        let length = usize::from(header.length.get());
        if length < UDP_HEADER {
            return Err(DatagramError::Malformed { layer: "UDP" });
        }
        let (datagram, _) = cut("UDP", bytes, length)?;
        Ok((header, &datagram[UDP_HEADER..]))
    }

    /// A header without checksum. `length` includes the header.
    #[inline]
    pub(crate) fn new(flow: &Flow, length: u16) -> Self {
        UdpHeader {
            source_port: flow.source_port.into(),
            destination_port: flow.destination_port.into(),
            length: length.into(),
            checksum: 0.into(),
        }
    }

    #[inline]
    pub(crate) fn with_checksum(mut self, checksum: u16) -> Self {
        self.checksum = checksum.into();
        self
    }

    pub(super) fn checksum_over(&self, flow: &Flow, payload: &[u8]) -> u16 {
        let [length_high, length_low] = self.length.to_bytes();
        let pseudo = [0, UDP_PROTOCOL, length_high, length_low];
        let (source, destination) = (octets(flow.source), octets(flow.destination));
        let parts: [&[u8]; 5] = [&source, &destination, &pseudo, self.as_bytes(), payload];
        match internet_checksum(&parts) {
            // RFC 768: a checksum of zero means "not computed", so a computed zero is sent as ones.
            0 => 0xffff,
            checksum => checksum,
        }
    }

    pub(super) fn flow(&self, source: IpAddr, destination: IpAddr) -> Flow {
        Flow {
            source,
            destination,
            source_port: self.source_port.get(),
            destination_port: self.destination_port.get(),
        }
    }
}

/// The address, padded with zeros. Zeros do not change the checksum.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_compatible().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

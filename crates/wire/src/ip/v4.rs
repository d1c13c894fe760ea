//! The IPv4 header.

use std::net::{IpAddr, Ipv4Addr};

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::internet_checksum;
use super::layer::{DatagramError, cut, read};
use super::udp::UDP_PROTOCOL;
use crate::flow::Fragmentation;

pub(crate) const IPV4_HEADER: usize = size_of::<Ipv4Header>();

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Ipv4Header {
    version_and_length: u8,
    type_of_service: u8,
    total_length: U16,
    fragmentation: [u8; 4],
    time_to_live: u8,
    protocol: u8,
    checksum: U16,
    source: [u8; 4],
    destination: [u8; 4],
}
const _: () = assert!(size_of::<Ipv4Header>() == 20);

impl Ipv4Header {
    /// Reads the header of an unfragmented UDP datagram. Returns it, its fragmentation fields, and
    /// the bytes after the header and its options.
    pub(super) fn parse(packet: &[u8]) -> Result<(&Self, Fragmentation, &[u8]), DatagramError> {
        let (header, _) = read::<Self>("IPv4", packet)?;
        let header_length = usize::from(header.version_and_length & 0x0f) * 4;
        if header_length < IPV4_HEADER {
            return Err(DatagramError::Malformed { layer: "IPv4" });
        }
        if header.protocol != UDP_PROTOCOL {
            return Err(DatagramError::NotUdp(header.protocol));
        }
        let fragmentation =
            Fragmentation::from_bytes(header.fragmentation).ok_or(DatagramError::Fragment)?;
        let (_, rest) = cut("IPv4", packet, header_length)?;
        Ok((header, fragmentation, rest))
    }

    #[inline]
    pub(crate) fn new(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        fragmentation: Fragmentation,
        udp_length: u16,
    ) -> Self {
        Ipv4Header {
            version_and_length: 0x45,
            type_of_service: 0,
            total_length: udp_length.wrapping_add(IPV4_HEADER as u16).into(),
            fragmentation: fragmentation.bytes(),
            time_to_live: 0,
            protocol: UDP_PROTOCOL,
            checksum: 0.into(),
            source: source.octets(),
            destination: destination.octets(),
        }
    }

    /// Sets the fields that may change on the path to ones, as the ICRC requires.
    #[inline]
    pub(crate) fn masked(mut self) -> Self {
        self.type_of_service = 0xff;
        self.time_to_live = 0xff;
        self.checksum = 0xffff.into();
        self
    }

    /// Sets the fields that may change on the path, and the checksum.
    pub(crate) fn with_path_fields(mut self, type_of_service: u8, time_to_live: u8) -> Self {
        self.type_of_service = type_of_service;
        self.time_to_live = time_to_live;
        self.checksum = 0.into();
        self.checksum = internet_checksum(&[self.as_bytes()]).into();
        self
    }

    pub(crate) fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.source.into(), self.destination.into())
    }

    pub(crate) fn type_of_service(&self) -> u8 {
        self.type_of_service
    }

    pub(crate) fn time_to_live(&self) -> u8 {
        self.time_to_live
    }

    pub(crate) fn has_no_options(&self) -> bool {
        self.version_and_length == 0x45
    }

    pub(crate) fn is_intact(&self) -> bool {
        internet_checksum(&[self.as_bytes()]) == 0
    }
}

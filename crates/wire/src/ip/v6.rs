//! The IPv6 header.

use std::net::{IpAddr, Ipv6Addr};

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layer::{DatagramError, read};
use super::udp::UDP_PROTOCOL;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Ipv6Header {
    version_class_and_label: U32,
    payload_length: U16,
    next_header: u8,
    hop_limit: u8,
    source: [u8; 16],
    destination: [u8; 16],
}
const _: () = assert!(size_of::<Ipv6Header>() == 40);

impl Ipv6Header {
    const VERSION: u32 = 6 << 28;

    /// Reads the header of a UDP datagram. Returns it and the bytes after it.
    pub(super) fn parse(packet: &[u8]) -> Result<(&Self, &[u8]), DatagramError> {
        let (header, rest) = read::<Self>("IPv6", packet)?;
        if header.next_header != UDP_PROTOCOL {
            return Err(DatagramError::NotUdp(header.next_header));
        }
        Ok((header, rest))
    }

    #[inline]
    pub(crate) fn new(source: Ipv6Addr, destination: Ipv6Addr, udp_length: u16) -> Self {
        Ipv6Header {
            version_class_and_label: Self::VERSION.into(),
            payload_length: udp_length.into(),
            next_header: UDP_PROTOCOL,
            hop_limit: 0,
            source: source.octets(),
            destination: destination.octets(),
        }
    }

    /// Sets the fields that may change on the path to ones, as the ICRC requires.
    #[inline]
    pub(crate) fn masked(self) -> Self {
        self.with_path_fields(0xff, 0x000f_ffff, 0xff)
    }

    /// Sets the fields that may change on the path.
    #[inline]
    pub(crate) fn with_path_fields(
        mut self,
        traffic_class: u8,
        flow_label: u32,
        hop_limit: u8,
    ) -> Self {
        let word = Self::VERSION | u32::from(traffic_class) << 20 | flow_label & 0x000f_ffff;
        self.version_class_and_label = word.into();
        self.hop_limit = hop_limit;
        self
    }

    pub(crate) fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.source.into(), self.destination.into())
    }

    pub(crate) fn is_version_6(&self) -> bool {
        self.version_class_and_label.get() >> 28 == 6
    }

    pub(crate) fn traffic_class(&self) -> u8 {
        (self.version_class_and_label.get() >> 20) as u8
    }

    pub(crate) fn flow_label(&self) -> u32 {
        self.version_class_and_label.get() & 0x000f_ffff
    }

    pub(crate) fn hop_limit(&self) -> u8 {
        self.hop_limit
    }
}

//! Packets on their way out: several in one buffer, as one segmented send takes them.

use wire::{ICRC_LENGTH, PacketHead, Qpn, Sealer};

use crate::address::Route;

/// How much may go into one send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// The most packets; 1 when the socket can't segment.
    pub packets: usize,
    /// The most bytes.
    pub bytes: usize,
}

impl Default for BatchLimits {
    /// What `UDP_SEGMENT` takes: segments of one size, 64 KB less headers in all.
    fn default() -> Self {
        Self {
            packets: 64,
            bytes: 65_000,
        }
    }
}

/// One send: packets of `segment_size` bytes each, the last perhaps shorter, all to one peer.
///
/// The packets themselves are in the buffer that [`Device::poll_transmit`](crate::Device) filled.
/// Over IPv4, packet *i* is sealed for the IP identification *i*, which is what segmentation by
/// the kernel gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The queue pair that sends.
    pub queue_pair: Qpn,
    /// Where to.
    pub route: Route,
    /// The length of every packet but perhaps the last.
    pub segment_size: usize,
}

/// Fills a buffer with packets for one send.
pub(crate) struct Batch<'b> {
    buffer: &'b mut Vec<u8>,
    sealer: &'b mut Sealer,
    limits: BatchLimits,
    route: Option<Route>,
    segment_size: usize,
    packets: usize,
    /// A packet shorter than the others is the last.
    complete: bool,
}

impl<'b> Batch<'b> {
    pub(crate) fn new(
        buffer: &'b mut Vec<u8>,
        sealer: &'b mut Sealer,
        limits: BatchLimits,
    ) -> Self {
        buffer.clear();
        Self {
            buffer,
            sealer,
            limits,
            route: None,
            segment_size: 0,
            packets: 0,
            complete: false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    pub(crate) fn finish(self, queue_pair: Qpn) -> Option<Transmit> {
        Some(Transmit {
            queue_pair,
            route: self.route?,
            segment_size: self.segment_size,
        })
    }

    /// Whether a packet with this head length and payload can still join.
    #[inline]
    pub(crate) fn admits(&self, route: &Route, head: usize, payload: usize) -> bool {
        let length = wire_length(head, payload);
        match self.route {
            None => true,
            Some(_) if self.complete => false,
            Some(ours) => {
                ours == *route
                    && length <= self.segment_size
                    && self.packets < self.limits.packets
                    && self.buffer.len() + length <= self.limits.bytes
            }
        }
    }

    /// Appends a packet that was admitted; `fill` appends its payload.
    ///
    /// When `fill` fails, nothing has been appended.
    #[inline]
    pub(crate) fn push<E>(
        &mut self,
        route: &Route,
        head: PacketHead,
        payload: usize,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.buffer.len();
        let pad = padding(payload);
        let head = head.pad(pad as u8);
        self.buffer.extend_from_slice(head.bytes());
        if let Err(error) = fill(self.buffer) {
            self.buffer.truncate(start);
            return Err(error);
        }
        debug_assert_eq!(self.buffer.len() - start, head.bytes().len() + payload);
        self.buffer.extend_from_slice(&[0; 3][..pad]);
        let packet = &self.buffer[start..];
        let seal = self.sealer.seal(&route.flow, self.packets as u16, packet);
        self.buffer.extend_from_slice(&seal);
        self.account(route, self.buffer.len() - start);
        Ok(())
    }

    /// Appends a packet without payload.
    pub(crate) fn push_bare(&mut self, route: &Route, head: PacketHead) {
        let filled = self.push(route, head, 0, |_| Ok::<(), std::convert::Infallible>(()));
        filled.unwrap_or_else(|never| match never {});
    }

    fn account(&mut self, route: &Route, length: usize) {
        if self.packets == 0 {
            self.route = Some(*route);
            self.segment_size = length;
        }
        self.packets += 1;
        self.complete = length < self.segment_size;
    }
}

/// The packets of a send, one by one.
pub fn packets<'a>(
    transmit: &Transmit,
    buffer: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    buffer.chunks(transmit.segment_size)
}

const fn padding(payload: usize) -> usize {
    payload.wrapping_neg() % 4
}

const fn wire_length(head: usize, payload: usize) -> usize {
    head + payload + padding(payload) + ICRC_LENGTH
}

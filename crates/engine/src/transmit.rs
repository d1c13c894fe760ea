//! Packets to send: several in one buffer, for one segmented send.

use std::sync::atomic::AtomicU8;

use wire::{ICRC_LENGTH, IcrcGenerator, PacketHead, Qpn, Route};

use crate::address::GidTable;
use crate::memory::Output;
use crate::qpn_range::QpnRange;

/// Packets with a shorter payload are built in the driver's buffer. To copy them costs less than to ask for room.
const MIN_SHARED_PAYLOAD: usize = 1024;

/// The limits of one send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// The maximum number of packets; 1 if the socket cannot segment.
    pub packets: usize,
    /// The maximum number of bytes.
    pub bytes: usize,
}

impl Default for BatchLimits {
    /// The limits of `UDP_SEGMENT`: 64 segments of one size, at most 64 KB including headers.
    fn default() -> Self {
        Self {
            packets: 64,
            bytes: 65_000,
        }
    }
}

impl BatchLimits {
    /// The limits for the first packets to a peer that waits: half of the bytes. The peer wakes up and handles them
    /// while this device sends the rest. This shortens a message of 64 KiB by a quarter of its time.
    pub(crate) fn first(self) -> Self {
        Self {
            bytes: self.bytes / 2,
            ..self
        }
    }
}

/// Memory that a driver shares with the receivers of packets, where packets can be built without a further copy.
pub trait SharedRoom {
    /// Room for packets to a queue pair, at least this many bytes; `None` if they go another way. The packets of the
    /// next [`Transmit`] whose `shared_length` is set are there.
    fn reserve(&mut self, route: &Route, destination: Qpn, bytes: usize) -> Option<&[AtomicU8]>;

    /// Whether packets to a queue pair wait for room. Those to another one may have it.
    fn is_full(&self, _: &Route, _: Qpn) -> bool {
        false
    }

    /// Whether so much waits for room that no packets leave the device. Those that it delivers to itself need none.
    fn is_closed(&self) -> bool {
        false
    }
}

/// No shared memory.
impl SharedRoom for () {
    fn reserve(&mut self, _: &Route, _: Qpn, _: usize) -> Option<&[AtomicU8]> {
        None
    }
}

/// One send: packets of `segment_size` bytes to one peer. The last one may be shorter.
///
/// The packets are in the buffer that [`Device::poll_transmit`](crate::Device) filled, or in shared memory. Over IPv4
/// the ICRC of packet *i* is computed for the IP identification *i*, because that is the value that
/// segmentation by the kernel assigns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The sending queue pair.
    pub queue_pair: Qpn,
    /// The destination.
    pub route: Route,
    /// The length of every packet except perhaps the last.
    pub segment_size: usize,
    /// Whether the packets have an ICRC. Otherwise its place at the end of each packet is zero, and the driver
    /// must fill it in ([`IcrcGenerator::fill`]) before the packets leave the machine's memory.
    pub has_icrc: bool,
    /// The destination queue pair.
    pub destination: Qpn,
    /// How many bytes the packets have in the [room](SharedRoom) that was reserved for them; `None` if they are in the
    /// buffer.
    pub shared_length: Option<usize>,
}

/// The packets that a device handles itself instead of sending them: those to its own queue pairs.
#[derive(Clone, Copy)]
pub(crate) struct OwnDelivery<'d> {
    pub(crate) gids: &'d GidTable,
    pub(crate) numbers: QpnRange,
    /// Numbers of the range that belong to other devices.
    pub(crate) given: &'d [QpnRange],
}

impl OwnDelivery<'_> {
    pub(crate) fn includes(&self, route: &Route, destination: Qpn) -> bool {
        self.numbers.assigns(destination)
            && !self.given.iter().any(|given| given.contains(destination))
            && self.gids.has_address(route.flow.destination)
    }
}

/// Fills a buffer with the packets of one send.
pub(crate) struct Batch<'b> {
    out: Output<'b>,
    /// Asked for room before the first packet.
    shared_room: Option<&'b mut dyn SharedRoom>,
    /// `None` if packets get no ICRC.
    icrc_generator: Option<&'b mut IcrcGenerator>,
    limits: BatchLimits,
    route: Option<Route>,
    destination: Qpn,
    segment_size: usize,
    packets: usize,
    /// Set after a packet that is shorter than the others: it must be the last.
    complete: bool,
    /// The length of the packet that will be the last; 0 if it is not known.
    reserved: usize,
    own_delivery: Option<OwnDelivery<'b>>,
    /// Whether the packets are for this device. They have no ICRC.
    to_self: bool,
}

impl<'b> Batch<'b> {
    pub(crate) fn new(
        buffer: &'b mut Vec<u8>,
        shared_room: &'b mut dyn SharedRoom,
        icrc_generator: Option<&'b mut IcrcGenerator>,
        limits: BatchLimits,
        own_delivery: Option<OwnDelivery<'b>>,
    ) -> Self {
        buffer.clear();
        Self {
            out: Output::Private(buffer),
            shared_room: Some(shared_room),
            icrc_generator,
            limits,
            route: None,
            destination: Qpn::new(0),
            segment_size: 0,
            packets: 0,
            complete: false,
            reserved: 0,
            own_delivery,
            to_self: false,
        }
    }

    /// Whether the packets are for this device. They have no ICRC.
    pub(crate) fn is_to_self(&self) -> bool {
        self.to_self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    /// How many bytes all packets have.
    pub(crate) fn bytes(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn finish(self, queue_pair: Qpn) -> Option<Transmit> {
        Some(Transmit {
            queue_pair,
            route: self.route?,
            segment_size: self.segment_size,
            has_icrc: self.icrc_generator.is_some() && !self.to_self,
            destination: self.destination,
            shared_length: match self.out {
                Output::Private(_) => None,
                Output::Shared { length, .. } => Some(length),
            },
        })
    }

    /// Leaves room at the end for a packet without payload. So the packets before it have one length, and are not
    /// shorter. If none of them fits, this packet is the first.
    pub(crate) fn reserve_last(&mut self, head: usize) {
        self.reserved = wire_length(head, 0);
    }

    /// The next packet is the one that room was left for.
    pub(crate) fn use_reserved(&mut self) {
        self.reserved = 0;
    }

    /// Whether a packet with this header length and payload length fits.
    #[inline]
    pub(crate) fn admits(&self, route: &Route, head: usize, payload: usize) -> bool {
        let length = wire_length(head, payload);
        if self.reserved > 0 && !self.admits_before_reserved(length) {
            return false;
        }
        match self.route {
            None => true,
            Some(_) if self.complete => false,
            Some(ours) => {
                ours == *route
                    && length <= self.segment_size
                    && self.packets < self.limits.packets
                    && self.out.len() + length <= self.limits.bytes
            }
        }
    }

    /// Whether no further packet like this one fits after it.
    pub(crate) fn is_filled_by(&self, head: usize, payload: usize) -> bool {
        let length = wire_length(head, payload);
        let is_shorter = self.route.is_some() && length < self.segment_size;
        let bytes = self.out.len() + self.reserved + 2 * length;
        is_shorter || self.packets + 2 > self.limits.packets || bytes > self.limits.bytes
    }

    fn admits_before_reserved(&self, length: usize) -> bool {
        let has_right_length = match self.route {
            None => length >= self.reserved,
            Some(_) => length == self.segment_size,
        };
        has_right_length
            && self.packets + 1 < self.limits.packets
            && self.out.len() + length + self.reserved <= self.limits.bytes
    }

    /// Appends a packet that fits. `fill` appends its payload.
    ///
    /// If `fill` fails, nothing is appended.
    #[inline]
    pub(crate) fn push<E>(
        &mut self,
        route: &Route,
        head: PacketHead,
        payload: usize,
        fill: impl FnOnce(&mut Output<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.packets == 0 {
            self.choose_way(route, head.destination(), payload);
        }
        let start = self.out.len();
        let pad = padding(payload);
        let head = head.pad(pad as u8);
        self.out.extend_from_slice(head.bytes());
        if let Err(error) = fill(&mut self.out) {
            self.out.truncate(start);
            return Err(error);
        }
        debug_assert_eq!(self.out.len() - start, head.bytes().len() + payload);
        self.out.extend_from_slice(&[0; 3][..pad]);
        let icrc = match (&mut self.icrc_generator, self.out.private(start)) {
            (Some(generator), Some(packet)) if !self.to_self => {
                generator.generate(&route.flow, self.packets as u16, packet)
            }
            _ => [0; ICRC_LENGTH],
        };
        self.out.extend_from_slice(&icrc);
        self.account(route, self.out.len() - start);
        Ok(())
    }

    /// Decides where the packets are built. All packets of a batch have the same destination.
    #[inline]
    fn choose_way(&mut self, route: &Route, destination: Qpn, payload: usize) {
        self.destination = destination;
        if let Some(own_delivery) = self.own_delivery {
            self.to_self = own_delivery.includes(route, destination);
        }
        if self.to_self || self.icrc_generator.is_some() || payload < MIN_SHARED_PAYLOAD {
            return;
        }
        let room = (self.shared_room.take())
            .and_then(|room| room.reserve(route, destination, self.limits.bytes));
        if let Some(room) = room.filter(|room| room.len() >= self.limits.bytes) {
            self.out = Output::Shared { room, length: 0 };
        }
    }

    /// Appends a packet without payload.
    pub(crate) fn push_bare(&mut self, route: &Route, head: PacketHead) {
        self.push_with(route, head, 0, |_| ());
    }

    /// Appends a packet whose payload can't fail to be appended.
    pub(crate) fn push_with(
        &mut self,
        route: &Route,
        head: PacketHead,
        payload: usize,
        fill: impl FnOnce(&mut Output<'_>),
    ) {
        let filled = self.push(route, head, payload, |out| {
            fill(out);
            Ok::<(), std::convert::Infallible>(())
        });
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

/// Splits the packets of a send.
pub fn packets<'a>(
    transmit: &Transmit,
    buffer: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    buffer.chunks(transmit.segment_size)
}

/// Splits the packets of a send in the order in which their receiver handles them: an acknowledgement before the requests
/// that it was sent behind, see [`wire::split_acknowledgement`].
pub fn packets_to_handle<'a>(
    transmit: &Transmit,
    buffer: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let size = transmit.segment_size;
    let split = wire::split_acknowledgement(buffer, size, |byte| *byte);
    let (first, rest) = split.unwrap_or((&[], buffer));
    first.chunks(size).chain(rest.chunks(size))
}

const fn padding(payload: usize) -> usize {
    payload.wrapping_neg() % 4
}

/// The length of a packet with its pad and ICRC.
pub(crate) const fn wire_length(head: usize, payload: usize) -> usize {
    head + payload + padding(payload) + ICRC_LENGTH
}

//! Finds packets that were captured more than once.
//!
//! A capture at both ends of a link, or on all interfaces, contains packets twice. On some devices a
//! retransmission has the same bytes. The difference is the capture point: a retransmission passes
//! the same capture point again.

use std::collections::{HashMap, VecDeque};

use wire::Datagram;

use crate::capture::Direction;

/// A point where packets are captured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CapturePoint {
    /// The number of an interface.
    pub(crate) interface: u32,
    /// The direction of the packet at this interface.
    pub(crate) direction: Option<Direction>,
}

/// Whether a packet was captured before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recurrence {
    /// It was not captured before.
    First,
    /// It is the packet with this number, at another capture point.
    Elsewhere(usize),
    /// The packet with this number arrived before: the network made a copy.
    Copy(usize),
}

/// Identifies a packet: its flow, its first bytes and its ICRC.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Fingerprint {
    flow: wire::Flow,
    identification: u16,
    length: usize,
    begin: [u8; 12],
    icrc: [u8; 4],
}

struct Seen {
    packet: usize,
    /// A bit for each capture point.
    points: u64,
    left: bool,
    came: bool,
}

/// The most recent packets.
#[derive(Default)]
pub(crate) struct RecentPackets {
    points: Vec<CapturePoint>,
    seen: HashMap<Fingerprint, Seen>,
    order: VecDeque<Fingerprint>,
}

/// More than are ever in flight.
const REMEMBERED: usize = 1 << 16;
/// The number of bits. Further capture points share the last bit.
const POINTS: usize = 64;

impl RecentPackets {
    /// Finds out whether a datagram was captured before. If not, remembers it as `number`.
    pub(crate) fn find(
        &mut self,
        datagram: &Datagram<'_>,
        from: CapturePoint,
        number: usize,
    ) -> Recurrence {
        let Some(fingerprint) = Fingerprint::of(datagram) else {
            return Recurrence::First;
        };
        let point = 1 << self.point(from);
        if let Some(seen) = self.seen.get_mut(&fingerprint) {
            let came = from.direction == Some(Direction::Inbound);
            if seen.points & point == 0 {
                seen.points |= point;
                seen.came |= came;
                return Recurrence::Elsewhere(seen.packet);
            }
            if came && seen.left && seen.came {
                return Recurrence::Copy(seen.packet);
            }
        }
        self.remember(fingerprint, from, point, number);
        Recurrence::First
    }

    fn remember(
        &mut self,
        fingerprint: Fingerprint,
        from: CapturePoint,
        point: u64,
        packet: usize,
    ) {
        let seen = Seen {
            packet,
            points: point,
            left: from.direction == Some(Direction::Outbound),
            came: from.direction == Some(Direction::Inbound),
        };
        if self.seen.insert(fingerprint.clone(), seen).is_none() {
            self.order.push_back(fingerprint);
        }
        if self.order.len() > REMEMBERED {
            let oldest = self.order.pop_front();
            oldest.map(|oldest| self.seen.remove(&oldest));
        }
    }

    fn point(&mut self, wanted: CapturePoint) -> usize {
        let known = self.points.iter().position(|&point| point == wanted);
        known.unwrap_or_else(|| {
            if self.points.len() < POINTS {
                self.points.push(wanted);
            }
            self.points.len() - 1
        })
    }
}

impl Fingerprint {
    fn of(datagram: &Datagram<'_>) -> Option<Self> {
        Some(Fingerprint {
            flow: datagram.flow,
            identification: datagram.fragmentation.identification,
            length: datagram.payload.len(),
            begin: *datagram.payload.first_chunk()?,
            icrc: *datagram.payload.last_chunk()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Flow, Fragmentation, ROCE_PORT};

    fn datagram(payload: &[u8]) -> Datagram<'_> {
        Datagram {
            flow: Flow {
                source: [10, 0, 0, 1].into(),
                destination: [10, 0, 0, 2].into(),
                source_port: 50000,
                destination_port: ROCE_PORT,
            },
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            fragmentation: Fragmentation::NONE,
            payload,
        }
    }

    fn point(interface: u32, direction: Direction) -> CapturePoint {
        CapturePoint {
            interface,
            direction: Some(direction),
        }
    }

    #[test]
    fn same_packet_at_both_ends_is_one_and_a_retransmission_is_another() {
        let mut recent = RecentPackets::default();
        let packet = datagram(&[7; 20]);
        let (out, into) = (point(0, Direction::Outbound), point(0, Direction::Inbound));
        assert_eq!(recent.find(&packet, out, 0), Recurrence::First);
        assert_eq!(recent.find(&packet, into, 1), Recurrence::Elsewhere(0));
        assert_eq!(recent.find(&packet, out, 1), Recurrence::First);
        assert_eq!(recent.find(&packet, into, 2), Recurrence::Elsewhere(1));
        assert_eq!(recent.find(&packet, into, 2), Recurrence::Copy(1));
    }

    #[test]
    fn packets_without_capture_points_are_new() {
        let mut recent = RecentPackets::default();
        let packet = datagram(&[7; 20]);
        let unknown = CapturePoint {
            interface: 0,
            direction: None,
        };
        assert_eq!(recent.find(&packet, unknown, 0), Recurrence::First);
        assert_eq!(recent.find(&packet, unknown, 1), Recurrence::First);
        let other = datagram(&[8; 20]);
        assert_eq!(recent.find(&other, unknown, 2), Recurrence::First);
    }

    #[test]
    fn remembered_packets_are_bounded() {
        let mut recent = RecentPackets::default();
        let out = point(0, Direction::Outbound);
        for number in 0..REMEMBERED + 10 {
            let payload = [&number.to_be_bytes()[..], &[0; 12]].concat();
            recent.find(&datagram(&payload), out, number);
        }
        assert_eq!(recent.seen.len(), REMEMBERED);
    }
}

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
pub(crate) struct Vantage {
    /// The number of an interface.
    pub(crate) interface: u32,
    /// The direction of the packet at this interface.
    pub(crate) direction: Option<Direction>,
}

/// Whether a packet was captured before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sight {
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
    places: u64,
    left: bool,
    came: bool,
}

/// The most recent packets.
#[derive(Default)]
pub(crate) struct Sights {
    places: Vec<Vantage>,
    seen: HashMap<Fingerprint, Seen>,
    order: VecDeque<Fingerprint>,
}

/// More than are ever in flight.
const REMEMBERED: usize = 1 << 16;
/// The number of bits. Further capture points share the last bit.
const PLACES: usize = 64;

impl Sights {
    /// Finds out whether a datagram was captured before. If not, remembers it as `number`.
    pub(crate) fn look(&mut self, datagram: &Datagram<'_>, from: Vantage, number: usize) -> Sight {
        let Some(fingerprint) = Fingerprint::of(datagram) else {
            return Sight::First;
        };
        let place = 1 << self.place(from);
        if let Some(seen) = self.seen.get_mut(&fingerprint) {
            let came = from.direction == Some(Direction::Inbound);
            if seen.places & place == 0 {
                seen.places |= place;
                seen.came |= came;
                return Sight::Elsewhere(seen.packet);
            }
            if came && seen.left && seen.came {
                return Sight::Copy(seen.packet);
            }
        }
        self.remember(fingerprint, from, place, number);
        Sight::First
    }

    fn remember(&mut self, fingerprint: Fingerprint, from: Vantage, place: u64, packet: usize) {
        let seen = Seen {
            packet,
            places: place,
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

    fn place(&mut self, wanted: Vantage) -> usize {
        let known = self.places.iter().position(|&place| place == wanted);
        known.unwrap_or_else(|| {
            if self.places.len() < PLACES {
                self.places.push(wanted);
            }
            self.places.len() - 1
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

    fn place(interface: u32, direction: Direction) -> Vantage {
        Vantage {
            interface,
            direction: Some(direction),
        }
    }

    #[test]
    fn same_packet_at_both_ends_is_one_and_a_retransmission_is_another() {
        let mut sights = Sights::default();
        let packet = datagram(&[7; 20]);
        let (out, into) = (place(0, Direction::Outbound), place(0, Direction::Inbound));
        assert_eq!(sights.look(&packet, out, 0), Sight::First);
        assert_eq!(sights.look(&packet, into, 1), Sight::Elsewhere(0));
        assert_eq!(sights.look(&packet, out, 1), Sight::First);
        assert_eq!(sights.look(&packet, into, 2), Sight::Elsewhere(1));
        assert_eq!(sights.look(&packet, into, 2), Sight::Copy(1));
    }

    #[test]
    fn packets_without_capture_points_are_new() {
        let mut sights = Sights::default();
        let packet = datagram(&[7; 20]);
        let unknown = Vantage {
            interface: 0,
            direction: None,
        };
        assert_eq!(sights.look(&packet, unknown, 0), Sight::First);
        assert_eq!(sights.look(&packet, unknown, 1), Sight::First);
        let other = datagram(&[8; 20]);
        assert_eq!(sights.look(&other, unknown, 2), Sight::First);
    }

    #[test]
    fn memory_is_bounded() {
        let mut sights = Sights::default();
        let out = place(0, Direction::Outbound);
        for number in 0..REMEMBERED + 10 {
            let payload = [&number.to_be_bytes()[..], &[0; 12]].concat();
            sights.look(&datagram(&payload), out, number);
        }
        assert_eq!(sights.seen.len(), REMEMBERED);
    }
}

//! The packets between the hosts.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::{Duration, Instant};

use net::tap::fault::Random;
use wire::Route;

/// How long packets travel. Packets from one host to another do not overtake each other; a fault
/// (`reorder`) lets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// The shortest time.
    pub min: Duration,
    /// The longest time, without faults.
    pub max: Duration,
}

impl Latency {
    /// The latency of a run, chosen by its seed: between 0.5 and 144 µs. A program that depends on a fast or a steady network
    /// fails with some seeds.
    pub(super) fn draw(random: &mut Random) -> Self {
        let min = Duration::from_nanos(500 << random.below(6));
        let spread = Duration::from_nanos(250 << random.below(10));
        Self {
            min,
            max: min + spread,
        }
    }
}

/// A packet on its way.
pub(super) struct Arrival {
    pub(super) at: Instant,
    /// Orders packets that arrive at the same time.
    sequence: u64,
    /// The index of the host that it reaches.
    pub(super) host: usize,
    pub(super) packet: Flying,
}

/// The content of a packet.
#[derive(Clone)]
pub(super) struct Flying {
    pub(super) route: Route,
    pub(super) bytes: Vec<u8>,
    pub(super) has_icrc: bool,
    pub(super) forwarded: bool,
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Arrival {}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Arrival {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// The network: it delays packets, and loses those between hosts that are cut off from each other.
pub(super) struct Network {
    random: Random,
    pub(super) latency: Latency,
    in_flight: BinaryHeap<Reverse<Arrival>>,
    sequence: u64,
    /// When the last packet from one host to another arrives.
    last: BTreeMap<(usize, usize), Instant>,
    /// The pairs of hosts, the lower index first, that can't reach each other.
    cuts: BTreeSet<(usize, usize)>,
    pub(super) packets: u64,
    /// A hash of all packets and their times.
    pub(super) digest: u64,
}

impl Network {
    pub(super) fn new(mut random: Random) -> Self {
        Self {
            latency: Latency::draw(&mut random),
            random,
            in_flight: BinaryHeap::new(),
            sequence: 0,
            last: BTreeMap::new(),
            cuts: BTreeSet::new(),
            packets: 0,
            digest: 0,
        }
    }

    pub(super) fn set_cut(&mut self, hosts: (usize, usize), cut: bool) {
        let pair = (hosts.0.min(hosts.1), hosts.0.max(hosts.1));
        if cut {
            self.cuts.insert(pair);
        } else {
            self.cuts.remove(&pair);
        }
    }

    /// Sends a packet from one host to another.
    pub(super) fn send(
        &mut self,
        now: Instant,
        elapsed: Duration,
        from: usize,
        to: usize,
        packet: Flying,
    ) {
        self.packets += 1;
        self.note(elapsed, &packet.bytes);
        if self.cuts.contains(&(from.min(to), from.max(to))) {
            return;
        }
        let spread = self.latency.max.saturating_sub(self.latency.min).as_nanos() as u64;
        let drawn = Duration::from_nanos(self.random.below(spread + 1));
        let earliest = now + self.latency.min + drawn;
        let after_last = self
            .last
            .get(&(from, to))
            .map(|last| *last + Duration::from_nanos(1));
        let at = after_last.map_or(earliest, |last| last.max(earliest));
        self.last.insert((from, to), at);
        self.sequence += 1;
        self.in_flight.push(Reverse(Arrival {
            at,
            sequence: self.sequence,
            host: to,
            packet,
        }));
    }

    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse(arrival)| arrival.at)
    }

    /// The next packet that has arrived.
    pub(super) fn take_arrived(&mut self, now: Instant) -> Option<Arrival> {
        if self.next_arrival()? > now {
            return None;
        }
        self.in_flight.pop().map(|Reverse(arrival)| arrival)
    }

    fn note(&mut self, elapsed: Duration, bytes: &[u8]) {
        let mut mix = |word: u64| {
            self.digest = (self.digest.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        };
        mix(elapsed.as_nanos() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(u64::from_le_bytes(word));
        }
    }
}

//! A network with loss, duplication, corruption, delay and reordering.

use std::time::Duration;

use wire::{Flow, ICRC_LENGTH, IcrcChecker, icrc};

use crate::rng::Rng;

/// The faults of a network.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Lost datagrams, in per mille.
    pub loss: u32,
    /// Duplicated datagrams, in per mille.
    pub duplication: u32,
    /// Corrupted datagrams, in per mille.
    pub corruption: u32,
    /// The shortest delay of a datagram.
    pub delay: Duration,
    /// The largest additional delay. Different delays reorder datagrams.
    pub jitter: Duration,
    /// Hosts that can't reach each other for a while.
    pub cuts: Vec<Cut>,
    /// When the faults end.
    pub until: Duration,
}

/// Two hosts that can't reach each other for a while.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// The two hosts.
    pub hosts: [usize; 2],
    /// When it starts.
    pub from: Duration,
    /// When it ends.
    pub until: Duration,
}

impl Faults {
    /// Whether datagrams arrive once, intact and in order.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.loses_nothing() && self.duplication == 0 && self.keeps_order()
    }

    /// Whether every datagram arrives intact at least once.
    #[must_use]
    pub fn loses_nothing(&self) -> bool {
        self.loss == 0 && self.corruption == 0 && self.cuts.is_empty()
    }

    /// Whether datagrams can't overtake each other.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        self.jitter.is_zero()
    }

    /// The longest delay of a datagram.
    #[must_use]
    pub fn slowest(&self) -> Duration {
        self.delay + self.jitter
    }
}

/// What the network does to a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketOutcome {
    /// It is delivered unchanged.
    Delivered,
    /// It is delivered twice.
    Duplicated,
    /// It is lost.
    Lost,
    /// It is delivered with bits flipped.
    Corrupted,
    /// A cut separates the two hosts.
    Cut,
    /// The destination host is down.
    NoReceiver,
}

impl PacketOutcome {
    /// Whether the receiver gets no intact copy.
    #[must_use]
    pub fn is_fault(self) -> bool {
        !matches!(self, PacketOutcome::Delivered | PacketOutcome::Duplicated)
    }
}

/// One arrival of a datagram.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The time.
    pub at: Duration,
    /// The content.
    pub bytes: Vec<u8>,
}

/// The network between all hosts.
pub struct Network {
    faults: Faults,
    rng: Rng,
    checker: IcrcChecker,
    /// Corruptions that the ICRC can't detect. They were not applied.
    pub undetectable: u64,
}

impl Network {
    /// A network with these faults.
    #[must_use]
    pub fn new(faults: Faults, rng: Rng) -> Self {
        Self {
            faults,
            rng,
            checker: IcrcChecker::new(),
            undetectable: 0,
        }
    }

    /// Its faults.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Decides what happens to a datagram from one host to another, and when it arrives.
    ///
    /// `identification` is the field of the IPv4 header.
    pub fn carry(
        &mut self,
        now: Duration,
        hosts: [usize; 2],
        flow: &Flow,
        identification: u16,
        datagram: &[u8],
    ) -> (PacketOutcome, Vec<Delivery>) {
        let outcome = self.outcome(now, hosts);
        let copies = match outcome {
            PacketOutcome::Lost | PacketOutcome::Cut | PacketOutcome::NoReceiver => 0,
            PacketOutcome::Delivered | PacketOutcome::Corrupted => 1,
            PacketOutcome::Duplicated => 2,
        };
        let mut deliveries: Vec<Delivery> = (0..copies)
            .map(|_| Delivery {
                at: now + self.travel_time(now),
                bytes: datagram.to_vec(),
            })
            .collect();
        if outcome == PacketOutcome::Corrupted
            && !self.corrupt(flow, identification, &mut deliveries[0].bytes)
        {
            self.undetectable += 1;
            return (PacketOutcome::Delivered, deliveries);
        }
        (outcome, deliveries)
    }

    fn outcome(&mut self, now: Duration, hosts: [usize; 2]) -> PacketOutcome {
        if now >= self.faults.until {
            return PacketOutcome::Delivered;
        }
        if self.is_cut(now, hosts) {
            return PacketOutcome::Cut;
        }
        // All three are drawn every time, so a change of one rate does not change the draws of the others.
        let lost = self.rng.per_mille(self.faults.loss);
        let corrupted = self.rng.per_mille(self.faults.corruption);
        let duplicated = self.rng.per_mille(self.faults.duplication);
        match (lost, corrupted, duplicated) {
            (true, _, _) => PacketOutcome::Lost,
            (_, true, _) => PacketOutcome::Corrupted,
            (_, _, true) => PacketOutcome::Duplicated,
            _ => PacketOutcome::Delivered,
        }
    }

    fn is_cut(&self, now: Duration, [from, to]: [usize; 2]) -> bool {
        self.faults.cuts.iter().any(|cut| {
            (cut.hosts == [from, to] || cut.hosts == [to, from])
                && (cut.from..cut.until).contains(&now)
        })
    }

    fn travel_time(&mut self, now: Duration) -> Duration {
        if now >= self.faults.until || self.faults.jitter.is_zero() {
            return self.faults.delay;
        }
        self.faults.delay + self.rng.up_to(self.faults.jitter)
    }

    /// Flips bits. Returns false, with the bytes unchanged, if a receiver could not detect it.
    ///
    /// Some flips can't be detected: the ICRC excludes the congestion bits, and over IPv4 a receiver
    /// does not know the identification field.
    fn corrupt(&mut self, flow: &Flow, identification: u16, bytes: &mut [u8]) -> bool {
        let before = bytes.to_vec();
        for _ in 0..self.rng.between(1, 3) {
            let bit = self.rng.below(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let (packet, seal) = bytes.split_at(bytes.len() - ICRC_LENGTH);
        let visible = icrc::checksum(flow, identification, packet) != seal;
        if visible && self.checker.check(flow, bytes).is_err() {
            return true;
        }
        bytes.copy_from_slice(&before);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn flow() -> Flow {
        Flow {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            source_port: 0xc000,
            destination_port: wire::ROCE_PORT,
        }
    }

    fn datagram() -> Vec<u8> {
        let head = wire::PacketHead::new(
            wire::Opcode::RcSendOnly,
            wire::Qpn::new(17),
            wire::Psn::ZERO,
        );
        let mut bytes = [head.bytes(), b"some payload"].concat();
        bytes.extend(icrc::checksum(&flow(), 0, &bytes));
        bytes
    }

    fn outcomes_of(faults: Faults, at: Duration) -> Vec<(PacketOutcome, Vec<Delivery>)> {
        let mut network = Network::new(faults, Rng::new(1));
        let carry = |_| network.carry(at, [0, 1], &flow(), 0, &datagram());
        (0..1000).map(carry).collect()
    }

    fn count(outcomes: &[(PacketOutcome, Vec<Delivery>)], outcome: PacketOutcome) -> usize {
        outcomes
            .iter()
            .filter(|(other, _)| *other == outcome)
            .count()
    }

    #[test]
    fn faultless_network_delivers_everything_in_order() {
        let faults = Faults {
            delay: MILLISECOND,
            ..Faults::default()
        };
        for (outcome, deliveries) in outcomes_of(faults, MILLISECOND) {
            assert_eq!(outcome, PacketOutcome::Delivered);
            assert_eq!(deliveries.len(), 1);
            assert_eq!(deliveries[0].at, 2 * MILLISECOND);
            assert_eq!(deliveries[0].bytes, datagram());
        }
    }

    #[test]
    fn fault_rates_apply_until_the_faults_end() {
        let faults = Faults {
            loss: 100,
            duplication: 100,
            corruption: 100,
            until: 2 * MILLISECOND,
            ..Faults::default()
        };
        let outcomes = outcomes_of(faults.clone(), MILLISECOND);
        for outcome in [
            PacketOutcome::Lost,
            PacketOutcome::Duplicated,
            PacketOutcome::Corrupted,
        ] {
            let share = count(&outcomes, outcome);
            assert!((50..150).contains(&share), "{outcome:?}: {share}");
        }
        let later = outcomes_of(faults, 2 * MILLISECOND);
        assert_eq!(count(&later, PacketOutcome::Delivered), 1000);
    }

    #[test]
    fn corruption_is_always_detectable() {
        let faults = Faults {
            corruption: 1000,
            until: MILLISECOND,
            ..Faults::default()
        };
        let outcomes = outcomes_of(faults, Duration::ZERO);
        assert!(count(&outcomes, PacketOutcome::Corrupted) > 900);
        for (outcome, deliveries) in outcomes {
            let intact = IcrcChecker::new()
                .check(&flow(), &deliveries[0].bytes)
                .is_ok();
            assert_eq!(intact, outcome == PacketOutcome::Delivered);
        }
    }

    #[test]
    fn cut_blocks_both_directions_for_its_duration() {
        let faults = Faults {
            cuts: vec![Cut {
                hosts: [1, 0],
                from: MILLISECOND,
                until: 2 * MILLISECOND,
            }],
            until: 9 * MILLISECOND,
            ..Faults::default()
        };
        assert_eq!(
            count(
                &outcomes_of(faults.clone(), MILLISECOND),
                PacketOutcome::Cut
            ),
            1000
        );
        assert_eq!(
            count(
                &outcomes_of(faults.clone(), Duration::ZERO),
                PacketOutcome::Cut
            ),
            0
        );
        assert_eq!(
            count(&outcomes_of(faults, 2 * MILLISECOND), PacketOutcome::Cut),
            0
        );
    }
}

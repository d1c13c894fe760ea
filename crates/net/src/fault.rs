//! Faults on purpose: packets that get lost, doubled, damaged, late or out of order.
//!
//! What is to go wrong is said in one line, which is the value of `ROCI_FAULT`:
//!
//! ```text
//! loss=1%,dup=1%,reorder=1%,corrupt=0.1%,delay=1ms,seed=7
//! drop:opcode=RC_SEND_ONLY,nth=3; drop:qp=0x11,psn=5,times=1; rx:delay:opcode=ACK,by=5ms
//! ```
//!
//! Clauses are separated by `;`. Each is either a list of chances or one rule, and either may
//! begin with `tx:` (packets we send, the default) or `rx:` (packets we receive).
//!
//! A **list of chances** holds, separated by `,`:
//!
//! | entry | meaning | the same as a rule |
//! |---|---|---|
//! | `loss=1%` | the packet is lost | `drop:rate=1%` |
//! | `dup=1%` | it comes twice | `dup:rate=1%` |
//! | `corrupt=0.1%` | one of its bits is wrong | `corrupt:rate=0.1%` |
//! | `reorder=1%` | it is held back for 200 µs, so that later ones overtake it | `reorder:rate=1%` |
//! | `delay=1ms` | it is late, and so is every other one | `delay:by=1ms` |
//! | `seed=7` | other chances than with seed 0; given once, for all clauses | |
//!
//! A **rule** is an action (`drop`, `dup`, `corrupt`, `reorder`, `delay`), a colon, and conditions
//! separated by `,`:
//!
//! | condition | meaning |
//! |---|---|
//! | `opcode=RC_SEND_ONLY` | only this opcode; without the service (`SEND_ONLY`) of every service, and a part of a name (`RC_WRITE`) for every opcode that begins with it |
//! | `qp=0x11` | only packets for this queue pair |
//! | `psn=5` | only packets with this sequence number |
//! | `nth=3` | from the third packet on that meets the conditions above; without `times` just that one |
//! | `every=20` | every twentieth such packet |
//! | `rate=5%` | each such packet with this chance |
//! | `times=2` | not more often than this |
//! | `by=5ms` | how long to hold it back; for `delay` and `reorder` |
//!
//! Several rules can strike one packet: it is then, say, damaged and late; a lost one is just lost.
//! The same line does the same to the same packets, always: there is no chance but the seed's.
//! Every rule draws from a generator of its own, so that one more rule changes nothing for the others.

mod delay;
mod error;
mod opcodes;
mod parse;
mod random;
mod spec;

use std::fmt;
use std::time::{Duration, Instant};

use wire::{Bth, Flow, ICRC_LENGTH, IcrcChecker, ROCE_PORT, icrc};
use zerocopy::FromBytes;

pub use delay::DelayLine;
pub use error::{FaultError, FaultProblem};
pub use opcodes::OpcodePattern;
pub use spec::{Action, FaultSpec, Rate, Rule, When};

use crate::Direction;
use random::Random;

/// The environment variable that says which faults to inject.
pub const FAULT_VARIABLE: &str = "ROCI_FAULT";

/// What is to happen to a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Verdict {
    /// How many of it arrive: 0 if it is lost, 2 if it is doubled.
    pub copies: u8,
    /// What it reads like, if it is damaged.
    pub damaged: Option<Vec<u8>>,
    /// Until when to hold it back, all copies of it.
    pub hold_until: Option<Instant>,
}

impl Verdict {
    /// The packet goes its way as if nothing were here.
    pub const PASS: Verdict = Verdict {
        copies: 1,
        damaged: None,
        hold_until: None,
    };

    /// The packet is lost.
    pub const DROP: Verdict = Verdict {
        copies: 0,
        damaged: None,
        hold_until: None,
    };

    /// The bytes to carry on with.
    pub fn bytes<'a>(&'a self, packet: &'a [u8]) -> &'a [u8] {
        self.damaged.as_deref().unwrap_or(packet)
    }
}

/// How many packets were seen and what was done to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Packets that passed by.
    pub packets: u64,
    /// How many of them were lost.
    pub dropped: u64,
    /// How many of them were doubled.
    pub duplicated: u64,
    /// How many of them were damaged.
    pub corrupted: u64,
    /// How many of them were held back, whether to be late or to be overtaken.
    pub delayed: u64,
}

impl fmt::Display for FaultCounts {
    /// For example `1000 packets: 12 dropped, 1 corrupted`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets: ", self.packets)?;
        let done = [
            (self.dropped, "dropped"),
            (self.duplicated, "duplicated"),
            (self.corrupted, "corrupted"),
            (self.delayed, "delayed"),
        ];
        let mut separator = "";
        for (count, what) in done.into_iter().filter(|&(count, _)| count > 0) {
            write!(f, "{separator}{count} {what}")?;
            separator = ", ";
        }
        if separator.is_empty() {
            f.write_str("none touched")?;
        }
        Ok(())
    }
}

/// The fault injector: asked about every packet, one by one.
#[derive(Debug)]
pub struct Faults {
    spec: FaultSpec,
    progress: Vec<Progress>,
    counts: FaultCounts,
    /// Where to put the wrong bit.
    place: Random,
    checker: IcrcChecker,
}

/// How far a rule has come.
#[derive(Debug)]
struct Progress {
    matched: u64,
    fired: u64,
    chance: Random,
}

impl Faults {
    /// Reads what is to go wrong; the language is described [above](self).
    pub fn parse(text: &str) -> Result<Self, FaultError> {
        text.parse().map(Self::new)
    }

    /// An injector that has seen no packet yet.
    pub fn new(spec: FaultSpec) -> Self {
        let streams = 1..=spec.rules().len() as u64;
        let progress = streams.map(|stream| Progress {
            matched: 0,
            fired: 0,
            chance: Random::new(spec.seed(), stream),
        });
        Faults {
            progress: progress.collect(),
            counts: FaultCounts::default(),
            place: Random::new(spec.seed(), 0),
            checker: IcrcChecker::new(),
            spec,
        }
    }

    /// What it was told to do.
    pub fn spec(&self) -> &FaultSpec {
        &self.spec
    }

    /// What it has done so far.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// Every rule with the number of times that it fired: who wrote a rule that never fires
    /// wants to know.
    pub fn fired(&self) -> impl Iterator<Item = (&Rule, u64)> {
        let fired = self.progress.iter().map(|progress| progress.fired);
        self.spec.rules().iter().zip(fired)
    }

    /// Decides about one packet: a UDP payload with the ICRC at its end.
    pub fn apply(&mut self, now: Instant, direction: Direction, packet: &[u8]) -> Verdict {
        self.counts.packets += 1;
        let struck = self.strike(direction, packet);
        self.count(&struck);
        if struck.dropped {
            return Verdict::DROP;
        }
        Verdict {
            copies: 1 + u8::from(struck.duplicated),
            damaged: struck.corrupted.then(|| self.damage(packet)),
            hold_until: struck.held.map(|by| now + by),
        }
    }

    /// Asks every rule, also behind one that already dropped the packet: how one rule counts
    /// and draws must not depend on another.
    fn strike(&mut self, direction: Direction, packet: &[u8]) -> Struck {
        let base = Bth::ref_from_prefix(packet).ok().map(|(base, _)| base);
        let mut struck = Struck::default();
        for (rule, progress) in self.spec.rules().iter().zip(&mut self.progress) {
            if !rule.concerns(direction, base) || !progress.fires(&rule.when) {
                continue;
            }
            match rule.action {
                Action::Drop => struck.dropped = true,
                Action::Duplicate => struck.duplicated = true,
                Action::Corrupt => struck.corrupted = true,
                Action::Delay(by) | Action::Reorder(by) => {
                    struck.held = Some(struck.held.unwrap_or_default().saturating_add(by));
                }
            }
        }
        struck
    }

    fn count(&mut self, struck: &Struck) {
        if struck.dropped {
            self.counts.dropped += 1;
            return;
        }
        self.counts.duplicated += u64::from(struck.duplicated);
        self.counts.corrupted += u64::from(struck.corrupted);
        self.counts.delayed += u64::from(struck.held.is_some());
    }

    /// Turns over one bit that the receiver's check of the ICRC will notice.
    fn damage(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut damaged = packet.to_vec();
        if packet.is_empty() {
            return damaged;
        }
        loop {
            let bit = self.place.below(packet.len() as u64 * 8) as usize;
            if self.is_noticed(packet.len(), bit) {
                damaged[bit / 8] ^= 1 << (bit % 8);
                return damaged;
            }
        }
    }

    /// Whether a wrong bit at this place makes the ICRC wrong, for a socket that doesn't see the
    /// identification of IPv4. On a real network the checksum of UDP catches the few that slip
    /// through there; what we damage gets a right one. A CRC is linear, so any packet of this
    /// length over any flow tells.
    fn is_noticed(&mut self, length: usize, bit: usize) -> bool {
        let Some(covered) = length.checked_sub(ICRC_LENGTH) else {
            return true;
        };
        if covered < size_of::<Bth>() {
            return true;
        }
        let mut probe = vec![0; covered];
        probe.extend(icrc::checksum(&PROBE_FLOW, 0, &probe));
        probe[bit / 8] ^= 1 << (bit % 8);
        self.checker.check(&PROBE_FLOW, &probe).is_err()
    }
}

const PROBE_FLOW: Flow = Flow {
    source: std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
    destination: std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
    source_port: ROCE_PORT,
    destination_port: ROCE_PORT,
};

/// What the rules together want to do to one packet.
#[derive(Default)]
struct Struck {
    dropped: bool,
    duplicated: bool,
    corrupted: bool,
    held: Option<Duration>,
}

impl Progress {
    fn fires(&mut self, when: &When) -> bool {
        self.matched += 1;
        let due = when.nth.is_none_or(|nth| self.matched >= nth)
            && when.every.is_none_or(|n| self.matched.is_multiple_of(n))
            && when.rate.is_none_or(|rate| rate.strikes(&mut self.chance))
            && when.limit().is_none_or(|limit| self.fired < limit);
        self.fired += u64::from(due);
        due
    }
}

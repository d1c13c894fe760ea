//! Fault injection: packets that are lost, duplicated, corrupted, delayed or reordered on purpose.
//!
//! The faults are described in one line, which is the value of `ROCI_FAULT`:
//!
//! ```text
//! loss=1%,dup=1%,reorder=1%,corrupt=0.1%,delay=1ms,seed=7
//! drop:opcode=RC_SEND_ONLY,nth=3; drop:qp=0x11,psn=5,times=1; rx:delay:opcode=ACK,by=5ms
//! ```
//!
//! Clauses are separated by `;`. Each is either a list of probabilities or one rule, and either may
//! begin with `tx:` (sent packets, the default) or `rx:` (received packets).
//!
//! A **list of probabilities** has these entries, separated by `,`:
//!
//! | entry | meaning | the same as a rule |
//! |---|---|---|
//! | `loss=1%` | the packet is lost | `drop:rate=1%` |
//! | `dup=1%` | it is duplicated | `dup:rate=1%` |
//! | `corrupt=0.1%` | one of its bits is flipped | `corrupt:rate=0.1%` |
//! | `reorder=1%` | it is held back for 200 µs, so that later ones overtake it | `reorder:rate=1%` |
//! | `delay=1ms` | every packet is delayed by this time | `delay:by=1ms` |
//! | `seed=7` | other random decisions than with seed 0; given once, for all clauses | |
//!
//! A **rule** is an action, a colon, and conditions separated by `,`. The actions are `drop`, `dup`, `corrupt`, `reorder`,
//! `delay`, and these:
//!
//! | action | meaning |
//! |---|---|
//! | `rnr` | the receiver of a SEND on a reliable connection answers as if it had no receive (RNR NAK) |
//! | `late` | completion events are held back for the duration `by`, beginning with those that this received packet causes |
//! | `down` | the port is down for the duration `by`: this packet and all others of the device are lost, and the program gets the events `IBV_EVENT_PORT_ERR` and `IBV_EVENT_PORT_ACTIVE` |
//! | `stop` | the process stops (SIGSTOP), until `roci torture` or another process continues it (SIGCONT) |
//! | `kill` | the process ends (SIGKILL) before it sends or receives the packet |
//!
//!
//! | condition | meaning |
//! |---|---|
//! | `opcode=RC_SEND_ONLY` | only this opcode; without the service (`SEND_ONLY`), that of every service; a part of a name (`RC_WRITE`), every opcode that begins with it |
//! | `cm=REQ` | only this message of the connection manager: REQ, REP, RTU, REJ, MRA, DREQ, DREP, SIDR_REQ, SIDR_REP; `any` for all |
//! | `context=2` | only packets of the second context, in the order in which contexts are opened: by all processes with the same `ROCI_FAULT_LOG`, without it by this process |
//! | `qp=0x11` | only packets for this queue pair |
//! | `psn=5` | only packets with this sequence number |
//! | `nth=3` | from the third packet on that meets the conditions above; without `times` just that one |
//! | `every=20` | every twentieth such packet |
//! | `rate=5%` | each such packet with this probability |
//! | `times=2` | at most this many packets |
//! | `by=5ms` | how long to hold it back, for `delay` and `reorder`; how long the fault lasts, for `late`, `down` and `stop` |
//!
//! Several rules can affect one packet: it is then, for example, corrupted and delayed. A packet
//! that is dropped is only dropped. The same line always does the same to the same packets: all
//! random decisions depend on the seed. Every rule has its own random stream, so one more rule
//! changes nothing for the others.
//!
//! If `ROCI_FAULT_LOG` names a file, each fault is recorded there, as a rule that injects it again. The file's format
//! is described in the source of this module (`fault/log.rs`); `roci torture` reads it.
//!
//! When a device closes or its process exits, it sends the packets that are held back at once: a network
//! would deliver them, too.

mod delay;
mod error;
mod injected;
mod log;
mod opcodes;
mod packet_name;
mod parse;
mod random;
mod spec;

use std::fmt;
use std::time::Instant;

use wire::{Bth, Flow, ICRC_LENGTH, IcrcChecker, ROCE_PORT, icrc};
use zerocopy::FromBytes;

pub use delay::DelayLine;
pub use error::{FaultError, FaultProblem};
pub use injected::Injected;
pub use log::{FAULT_LOG_VARIABLE, FaultLog};
pub use opcodes::OpcodePattern;
pub use packet_name::CmMessage;
pub use random::Random;
pub use spec::{Action, FaultSpec, Rate, Rule, When};

use super::Direction;
use spec::Seen;

/// The environment variable that says which faults to inject.
pub const FAULT_VARIABLE: &str = "ROCI_FAULT";

/// The injector's decision about a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Verdict {
    /// How many copies arrive: 0 if it is lost, 2 if it is duplicated.
    pub copies: u8,
    /// The corrupted bytes, if it is corrupted.
    pub damaged: Option<Vec<u8>>,
    /// Until when to hold back all its copies.
    pub hold_until: Option<Instant>,
    /// All faults of this packet.
    pub injected: Injected,
}

impl Verdict {
    /// The packet is not affected.
    pub const PASS: Verdict = Verdict {
        copies: 1,
        damaged: None,
        hold_until: None,
        injected: Injected::NONE,
    };

    /// The packet is lost.
    pub const DROP: Verdict = Verdict {
        copies: 0,
        damaged: None,
        hold_until: None,
        injected: Injected {
            dropped: true,
            ..Injected::NONE
        },
    };

    /// The bytes to send or deliver.
    pub fn bytes<'a>(&'a self, packet: &'a [u8]) -> &'a [u8] {
        self.damaged.as_deref().unwrap_or(packet)
    }
}

/// How many packets were seen, and how many were affected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// All packets.
    pub packets: u64,
    /// How many of them were dropped.
    pub dropped: u64,
    /// How many of them were duplicated.
    pub duplicated: u64,
    /// How many of them were corrupted.
    pub corrupted: u64,
    /// How many of them were delayed or reordered.
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

/// The fault injector. It decides about each packet.
#[derive(Debug)]
pub struct Faults {
    spec: FaultSpec,
    progress: Vec<Progress>,
    counts: FaultCounts,
    /// Chooses the bit to flip.
    place: Random,
    checker: IcrcChecker,
    /// The number of the context.
    context: u64,
    log: Option<FaultLog>,
    /// Whether messages of the connection manager are told apart.
    names_messages: bool,
}

/// The state of a rule.
#[derive(Debug)]
struct Progress {
    matched: u64,
    fired: u64,
    chance: Random,
}

impl Faults {
    /// Parses a fault specification, which is described [above](self).
    pub fn parse(text: &str) -> Result<Self, FaultError> {
        text.parse().map(Self::new)
    }

    /// An injector that has seen no packet yet.
    pub fn new(spec: FaultSpec) -> Self {
        Self::with_log(spec, None)
    }

    /// An injector that records its faults in a log. The contexts of a log have different random decisions.
    pub fn with_log(spec: FaultSpec, log: Option<FaultLog>) -> Self {
        let context = log
            .as_ref()
            .map_or_else(log::next_context, FaultLog::context);
        let seed = match log {
            Some(_) => Random::new(spec.seed(), context).next(),
            None => spec.seed(),
        };
        Self::of_context(spec, context, seed, log)
    }

    /// An injector whose number and random decisions do not depend on other contexts of the process, for
    /// simulations. The seed of the specification does not count.
    pub fn simulated(spec: FaultSpec, context: u64, seed: u64) -> Self {
        Self::of_context(spec, context, seed, None)
    }

    fn of_context(spec: FaultSpec, context: u64, seed: u64, log: Option<FaultLog>) -> Self {
        let streams = 1..=spec.rules().len() as u64;
        let progress = streams.map(|stream| Progress {
            matched: 0,
            fired: 0,
            chance: Random::new(seed, stream),
        });
        Faults {
            progress: progress.collect(),
            counts: FaultCounts::default(),
            place: Random::new(seed, 0),
            checker: IcrcChecker::new(),
            context,
            names_messages: log.is_some() || spec.rules().iter().any(|rule| rule.cm.is_some()),
            log,
            spec,
        }
    }

    /// The fault specification.
    pub fn spec(&self) -> &FaultSpec {
        &self.spec
    }

    /// What was done so far.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// Every rule with the number of times that it fired, to find rules that never fire.
    pub fn fired(&self) -> impl Iterator<Item = (&Rule, u64)> {
        let fired = self.progress.iter().map(|progress| progress.fired);
        self.spec.rules().iter().zip(fired)
    }

    /// Decides about one packet: a UDP payload with the ICRC at its end.
    pub fn apply(&mut self, now: Instant, direction: Direction, packet: &[u8]) -> Verdict {
        self.counts.packets += 1;
        let injected = self.strike(direction, packet);
        self.count(&injected);
        if injected.dropped {
            return Verdict {
                injected: injected.of_a_dropped_packet(),
                ..Verdict::DROP
            };
        }
        Verdict {
            copies: 1 + u8::from(injected.duplicated),
            damaged: injected.corrupted.then(|| self.damage(packet)),
            hold_until: injected.held.map(|by| now + by),
            injected,
        }
    }

    /// Applies every rule, even after one that dropped the packet: the counts and random numbers of
    /// a rule must not depend on another.
    fn strike(&mut self, direction: Direction, packet: &[u8]) -> Injected {
        let seen = Seen {
            context: self.context,
            direction,
            base: Bth::ref_from_prefix(packet).ok().map(|(base, _)| base),
            cm: self
                .names_messages
                .then(|| packet_name::cm_message(packet))
                .flatten(),
        };
        let numbered = self.log.as_mut().and_then(|log| log.count(&seen));
        let mut injected = Injected::NONE;
        for (rule, progress) in self.spec.rules().iter().zip(&mut self.progress) {
            if !rule.concerns(&seen) || !progress.fires(&rule.when) {
                continue;
            }
            if let (Some(log), Some(numbered)) = (&mut self.log, numbered) {
                log.record(rule, numbered, packet);
            }
            injected.add(rule.action);
        }
        injected
    }

    fn count(&mut self, struck: &Injected) {
        if struck.dropped {
            self.counts.dropped += 1;
            return;
        }
        self.counts.duplicated += u64::from(struck.duplicated);
        self.counts.corrupted += u64::from(struck.corrupted);
        self.counts.delayed += u64::from(struck.held.is_some());
    }

    /// Flips one bit that the receiver's ICRC check detects.
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

    /// Whether a flipped bit at this position makes the ICRC wrong, for a socket that doesn't see
    /// the IPv4 identification. On a real network the UDP checksum catches the few bits that the
    /// ICRC check misses there, but a packet that is corrupted here gets a correct checksum. A CRC
    /// is linear, so any packet of this length over any flow shows it.
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

//! A parsed fault specification: the rules and the seed.

use std::fmt;
use std::time::Duration;

use wire::{Bth, Opcode, Operation, Psn, Qpn, Transport};

use super::opcodes::OpcodePattern;
use super::packet_name::CmMessage;
use super::random::Random;
use crate::tap::Direction;

/// How long a reordered packet is held back: long enough for packets of the same burst to overtake
/// it, and far below any timeout.
pub(super) const REORDER_HOLD: Duration = Duration::from_micros(200);

/// The units of a duration in nanoseconds, the largest first.
pub(super) const UNITS: [(u64, &str); 4] = [
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "us"),
    (1, "ns"),
];

/// A list of rules and a seed. Its `Display` form parses back to the same list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultSpec {
    pub(super) rules: Vec<Rule>,
    pub(super) seed: u64,
}

/// Which packets get which fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Whether it applies to sent or to received packets.
    pub direction: Direction,
    /// The fault.
    pub action: Action,
    /// Only packets of this context, counted from 1 in the order in which contexts are opened.
    pub context: Option<u64>,
    /// Only messages of the connection manager with this name, or all of them.
    pub cm: Option<CmMessage>,
    /// Only packets with these opcodes.
    pub opcode: Option<OpcodePattern>,
    /// Only packets for this queue pair.
    pub qp: Option<Qpn>,
    /// Only packets with this sequence number.
    pub psn: Option<Psn>,
    /// Which of these packets.
    pub when: When,
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The packet is lost.
    Drop,
    /// The packet is duplicated.
    Duplicate,
    /// One bit of the packet is flipped.
    Corrupt,
    /// The packet is delayed by this duration.
    Delay(Duration),
    /// The packet is held back for this duration, so that later ones overtake it.
    Reorder(Duration),
    /// The receiver answers as if no receive were posted (RNR NAK). For received packets.
    NotReady,
    /// Completion events are delivered late: those from this packet on are held back for this duration. For received
    /// packets.
    LateEvent(Duration),
    /// The port is down for this duration: this packet and all others, sent and received, are lost.
    PortDown(Duration),
    /// The process stops itself (SIGSTOP). `roci torture` continues it after this duration.
    Stop(Duration),
    /// The process kills itself (SIGKILL) instead of sending or receiving the packet.
    Kill,
}

/// Which of its packets a rule affects: all, unless a field is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct When {
    /// From this packet on, counted from 1.
    pub nth: Option<u64>,
    /// Each packet whose number is a multiple of this.
    pub every: Option<u64>,
    /// Each packet with this probability.
    pub rate: Option<Rate>,
    /// At most this many packets.
    pub times: Option<u64>,
}

impl When {
    /// The maximum number of affected packets. `nth` alone means a single packet.
    pub(super) fn limit(&self) -> Option<u64> {
        self.times.or(self.nth.and(Some(1)))
    }
}

/// A probability, in steps of a ten thousandth of a percent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rate {
    per_million: u32,
}

impl Rate {
    const CERTAIN: u32 = 1_000_000;
    const PERCENT: u32 = Self::CERTAIN / 100;

    /// `None` if it is above 1.
    pub fn per_million(value: u32) -> Option<Self> {
        (value <= Self::CERTAIN).then_some(Rate { per_million: value })
    }

    pub(super) fn strikes(self, chance: &mut Random) -> bool {
        chance.below(Self::CERTAIN.into()) < self.per_million.into()
    }
}

impl FaultSpec {
    /// The rules, in the order in which they were given.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The seed of the random decisions.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether there are no faults.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// A packet that the rules are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) context: u64,
    pub(super) direction: Direction,
    pub(super) base: Option<&'a Bth>,
    /// The name of the connection manager's message in it.
    pub(super) cm: Option<&'static str>,
}

/// Whether the first packet of a message with this opcode needs a receive that can be missing.
fn needs_receive(opcode: u8) -> bool {
    Opcode::from_byte(opcode).is_some_and(|opcode| {
        let is_reliable = matches!(opcode.transport(), Transport::Rc | Transport::Xrc);
        is_reliable && opcode.operation() == Operation::Send && opcode.position().starts()
    })
}

impl Rule {
    /// Whether the rule applies to a packet.
    pub(super) fn concerns(&self, packet: &Seen<'_>) -> bool {
        let in_context = self.context.is_none_or(|context| context == packet.context);
        if self.direction != packet.direction || !in_context {
            return false;
        }
        let Some(base) = packet.base else {
            return !self.looks_inside();
        };
        let is_named = self.cm.is_none_or(|wanted| wanted.is(packet.cm));
        if !is_named || self.action == Action::NotReady && !needs_receive(base.opcode()) {
            return false;
        }
        let opcode = self.opcode.as_ref();
        opcode.is_none_or(|pattern| pattern.matches(base.opcode()))
            && self.qp.is_none_or(|qp| qp == base.destination())
            && self.psn.is_none_or(|psn| psn == base.psn())
    }

    fn looks_inside(&self) -> bool {
        self.cm.is_some()
            || self.action == Action::NotReady
            || self.opcode.is_some()
            || self.qp.is_some()
            || self.psn.is_some()
    }

    /// The equivalent entry of a list of probabilities, if there is one.
    fn as_chance(&self) -> Option<String> {
        let any = When::default();
        let chance = When {
            rate: self.when.rate,
            ..any
        };
        if self.looks_inside() || self.context.is_some() || self.when != chance {
            return None;
        }
        match (self.action, self.when.rate) {
            (Action::Drop, Some(rate)) => Some(format!("loss={rate}")),
            (Action::Duplicate, Some(rate)) => Some(format!("dup={rate}")),
            (Action::Corrupt, Some(rate)) => Some(format!("corrupt={rate}")),
            (Action::Reorder(REORDER_HOLD), Some(rate)) => Some(format!("reorder={rate}")),
            (Action::Delay(by), None) => Some(format!("delay={}", Span(by))),
            _ => None,
        }
    }

    fn conditions(&self) -> Vec<String> {
        let by = match self.action {
            Action::Reorder(REORDER_HOLD) => None,
            action => action.duration(),
        };
        let When {
            nth,
            every,
            rate,
            times,
        } = self.when;
        let opcode = self.opcode.as_ref();
        let conditions = [
            self.context.map(|context| format!("context={context}")),
            self.cm.map(|cm| format!("cm={cm}")),
            opcode.map(|pattern| format!("opcode={pattern}")),
            self.qp.map(|qp| format!("qp={:#x}", qp.value())),
            self.psn.map(|psn| format!("psn={psn}")),
            nth.map(|nth| format!("nth={nth}")),
            every.map(|every| format!("every={every}")),
            rate.map(|rate| format!("rate={rate}")),
            times.map(|times| format!("times={times}")),
            by.map(|by| format!("by={}", Span(by))),
        ];
        conditions.into_iter().flatten().collect()
    }
}

impl fmt::Display for FaultSpec {
    /// Adjacent probabilities share a clause; every other rule has its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut open_list = None;
        let mut separator = "";
        for rule in &self.rules {
            match rule.as_chance() {
                Some(entry) if open_list == Some(rule.direction) => write!(f, ",{entry}")?,
                Some(_) => {
                    write!(f, "{separator}{rule}")?;
                    open_list = Some(rule.direction);
                }
                None => {
                    write!(f, "{separator}{rule}")?;
                    open_list = None;
                }
            }
            separator = "; ";
        }
        match (self.seed, open_list) {
            (0, _) => Ok(()),
            (seed, Some(_)) => write!(f, ",seed={seed}"),
            (seed, None) => write!(f, "{separator}seed={seed}"),
        }
    }
}

impl fmt::Display for Rule {
    /// A single clause.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.direction == Direction::Receive && !self.action.is_for_receivers() {
            f.write_str("rx:")?;
        }
        match self.as_chance() {
            Some(entry) => f.write_str(&entry),
            None => write!(f, "{}:{}", self.action, self.conditions().join(",")),
        }
    }
}

impl Action {
    /// Whether it applies to received packets only.
    pub(super) fn is_for_receivers(&self) -> bool {
        matches!(self, Action::NotReady | Action::LateEvent(_))
    }

    /// How long it lasts.
    pub(super) fn duration(&self) -> Option<Duration> {
        let mut action = *self;
        action.duration_mut().copied()
    }

    pub(super) fn duration_mut(&mut self) -> Option<&mut Duration> {
        match self {
            Action::Delay(by)
            | Action::Reorder(by)
            | Action::LateEvent(by)
            | Action::PortDown(by)
            | Action::Stop(by) => Some(by),
            Action::Drop
            | Action::Duplicate
            | Action::Corrupt
            | Action::NotReady
            | Action::Kill => None,
        }
    }

    /// The name, without its duration.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Action::Drop => "drop",
            Action::Duplicate => "dup",
            Action::Corrupt => "corrupt",
            Action::Delay(_) => "delay",
            Action::Reorder(_) => "reorder",
            Action::NotReady => "rnr",
            Action::LateEvent(_) => "late",
            Action::PortDown(_) => "down",
            Action::Stop(_) => "stop",
            Action::Kill => "kill",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Rate {
    /// For example `0.1%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (
            self.per_million / Self::PERCENT,
            self.per_million % Self::PERCENT,
        );
        let decimals = format!("{rest:04}");
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{whole}%"),
            decimals => write!(f, "{whole}.{decimals}%"),
        }
    }
}

/// A duration in the largest unit that needs no decimals.
pub(super) struct Span(pub(super) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        let (unit, name) = UNITS
            .into_iter()
            .find(|&(unit, _)| nanoseconds.is_multiple_of(unit.into()))
            .expect("nanoseconds divide everything");
        write!(f, "{}{name}", nanoseconds / u128::from(unit))
    }
}

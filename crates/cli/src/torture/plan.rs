//! Plans: which faults a run gets, decided by a seed.

use clap::ValueEnum;

use super::fault_log::{FaultRecord, PacketClass};

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum FaultKind {
    /// One packet is lost
    Loss,
    /// Two to four successive packets with the same opcode or CM message are lost
    Burst,
    /// A packet is duplicated
    Dup,
    /// A packet is overtaken by later ones
    Reorder,
    /// A bit of a packet is flipped
    Corrupt,
    /// A packet is delayed by up to 80 ms
    Delay,
    /// Each packet is lost, duplicated, reordered or corrupted with some probability
    Storm,
    /// A receiver answers as if it had no receive
    Rnr,
    /// A message of the connection manager is lost, duplicated or delayed
    Cm,
    /// Completion events come up to 80 ms late
    Late,
    /// The port of a device is down for up to 80 ms
    Down,
    /// A process is stopped for up to 400 ms
    Stop,
    /// From some packet on, everything that one context sends is lost
    Partition,
    /// A process is killed
    Kill,
}

impl FaultKind {
    /// Whether a correct program may report an error. It must still end.
    fn is_harsh(self) -> bool {
        matches!(self, FaultKind::Partition | FaultKind::Kill)
    }
}

/// The faults of one run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// Rules of `ROCI_FAULT`.
    pub(super) rules: Vec<String>,
}

impl Plan {
    pub(super) fn new(rules: impl IntoIterator<Item = String>) -> Self {
        Plan {
            rules: rules.into_iter().collect(),
        }
    }

    /// The value of `ROCI_FAULT`.
    pub(super) fn text(&self) -> String {
        self.rules.join("; ")
    }

    /// Whether a correct program may report an error: a process is killed, or cut off for good.
    pub(super) fn is_harsh(&self) -> bool {
        let cuts_off = |rule: &String| rule.contains(&format!("times={FOR_EVER}"));
        self.kills() || self.rules.iter().any(cuts_off)
    }

    pub(super) fn kills(&self) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| rule.starts_with("kill:") || rule.starts_with("rx:kill:"))
    }
}

/// More packets than a run sends.
const FOR_EVER: u64 = 1_000_000_000;

/// The most faults of a plan that are not a storm.
const MAX_FAULTS: u64 = 5;

/// Makes a plan. Every fault names a packet that the run without faults has sent, or one shortly after it.
pub(super) fn plan(seed: u64, kinds: &[FaultKind], seen: &FaultRecord) -> Plan {
    let mut random = Random { state: seed };
    random.next();
    let (harsh, gentle): (Vec<FaultKind>, Vec<FaultKind>) =
        kinds.iter().partition(|kind| kind.is_harsh());
    let mut rules = Vec::new();
    if !harsh.is_empty() && (gentle.is_empty() || random.below(8) == 0) {
        rules.extend(rule(*random.choose(&harsh), seen, &mut random));
    } else {
        let count = 1 + random.below(MAX_FAULTS);
        for _ in 0..count {
            rules.extend(rule(*random.choose(&gentle), seen, &mut random));
        }
        keep_one_port_failure(&mut rules);
    }
    let storms = rules.iter().any(|rule| rule.starts_with("loss="));
    if storms {
        rules.push(format!("seed={}", random.below(1 << 32)));
    }
    Plan { rules }
}

/// Several in succession would last longer than the retries of a correct program.
fn keep_one_port_failure(rules: &mut Vec<String>) {
    let mut failures = 0;
    rules.retain(|rule| {
        failures += u32::from(rule.starts_with("down:"));
        failures <= 1 || !rule.starts_with("down:")
    });
}

/// One fault of this kind; `None` if there is no packet for it.
fn rule(kind: FaultKind, seen: &FaultRecord, random: &mut Random) -> Option<String> {
    if kind == FaultKind::Storm {
        let percent = 1 + random.below(8);
        return Some(format!(
            "loss={percent}%,dup={percent}%,reorder={percent}%,corrupt={percent}%"
        ));
    }
    let fits = |class: &PacketClass| match kind {
        FaultKind::Rnr => !class.is_sent && is_send(&class.name),
        FaultKind::Late => !class.is_sent,
        FaultKind::Cm => class.is_sent && class.name.starts_with("cm="),
        _ => class.is_sent,
    };
    let classes: Vec<_> = seen
        .packets
        .iter()
        .filter(|(class, _)| fits(class))
        .collect();
    if classes.is_empty() {
        return None;
    }
    let (class, &count) = *random.choose(&classes);
    let nth = 1 + random.below(count + count / 2);
    let packet = format!("context={},{},nth={nth}", class.context, class.name);
    let few = 2 + random.below(3);
    let milliseconds = 1 + random.below(80);
    Some(match kind {
        FaultKind::Loss => format!("drop:{packet}"),
        FaultKind::Burst => format!("drop:{packet},times={few}"),
        FaultKind::Dup => format!("dup:{packet}"),
        FaultKind::Reorder => format!("reorder:{packet},by={}us", 200 * milliseconds),
        FaultKind::Corrupt => format!("corrupt:{packet}"),
        FaultKind::Delay => format!("delay:{packet},by={milliseconds}ms"),
        FaultKind::Rnr => format!("rnr:{packet},times={few}"),
        FaultKind::Cm => match random.below(3) {
            0 => format!("dup:{packet}"),
            1 => format!("delay:{packet},by={milliseconds}ms"),
            _ => format!("drop:{packet}"),
        },
        FaultKind::Late => format!("late:{packet},by={milliseconds}ms"),
        FaultKind::Down => format!("down:{packet},by={milliseconds}ms"),
        FaultKind::Stop => format!("stop:{packet},by={}ms", 5 * milliseconds),
        FaultKind::Partition => {
            let context = class.context;
            format!("drop:context={context},nth={nth},times={FOR_EVER}")
        }
        FaultKind::Kill => format!("kill:{packet}"),
        FaultKind::Storm => return None,
    })
}

/// Whether packets of this name take a receive at a reliable connection.
fn is_send(name: &str) -> bool {
    name.starts_with("opcode=RC_SEND_ONLY") || name.starts_with("opcode=RC_SEND_FIRST")
}

/// SplitMix64, as the faults themselves use it.
struct Random {
    state: u64,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.state;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit.max(1))) >> 64) as u64
    }

    fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::tap::fault::FaultSpec;

    fn seen() -> FaultRecord {
        let class = |context, is_sent, name: &str| PacketClass {
            context,
            is_sent,
            name: name.to_owned(),
        };
        FaultRecord {
            packets: [
                (class(1, true, "cm=REQ"), 1),
                (class(1, true, "opcode=RC_SEND_ONLY"), 16),
                (class(2, false, "opcode=RC_SEND_ONLY"), 16),
                (class(2, true, "opcode=RC_ACKNOWLEDGE"), 8),
            ]
            .into(),
            ..FaultRecord::default()
        }
    }

    #[test]
    fn the_seed_decides_the_plan_and_every_plan_is_valid() {
        let kinds = FaultKind::value_variants();
        let mut all = std::collections::HashSet::new();
        for seed in 0..500 {
            let plan = plan(seed, kinds, &seen());
            assert_eq!(plan, super::plan(seed, kinds, &seen()));
            plan.text().parse::<FaultSpec>().expect("a valid plan");
            assert!(plan.text().matches("down:").count() <= 1, "{plan:?}");
            all.insert(plan.text());
        }
        assert!(all.len() > 400, "plans differ: {}", all.len());
        let has = |word: &str| all.iter().any(|text| text.contains(word));
        for word in [
            "drop:",
            "dup:",
            "reorder:",
            "corrupt:",
            "delay:",
            "rnr:context=2",
            "late:context=2",
            "down:",
            "stop:",
        ] {
            assert!(has(word), "{word}");
        }
        assert!(has("kill:") && has("times=1000000000") && has("cm=REQ") && has("loss="));
    }

    #[test]
    fn only_a_killed_or_cut_off_process_may_fail() {
        let harsh = |rule: &str| Plan::new([rule.to_owned()]).is_harsh();
        assert!(harsh("kill:nth=1") && harsh("drop:context=1,nth=3,times=1000000000"));
        assert!(!harsh("drop:nth=1,times=4") && !harsh("stop:nth=1,by=1ms"));
    }
}

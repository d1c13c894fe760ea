//! Random choices that the scenarios share.

use std::time::Duration;

use crate::cluster::{Profile, Service, Verb};
use crate::network::{Cut, Faults};
use crate::rng::Rng;

const RELIABLE: &[(u32, Verb)] = &[
    (20, Verb::Send),
    (10, Verb::SendImmediate),
    (20, Verb::Write),
    (8, Verb::WriteImmediate),
    (20, Verb::Read),
    (7, Verb::CompareSwap),
    (7, Verb::FetchAdd),
    (5, Verb::AtomicWrite),
    (5, Verb::Flush),
    (6, Verb::Forward),
    (2, Verb::Nothing),
];

pub(super) const MESSAGES: &[(u32, Verb)] = &[
    (10, Verb::Send),
    (5, Verb::SendImmediate),
    (5, Verb::WriteImmediate),
    (3, Verb::Write),
    (3, Verb::Read),
    (1, Verb::FetchAdd),
];

pub(super) const WINDOWS: &[(u32, Verb)] = &[
    (10, Verb::Send),
    (5, Verb::Write),
    (5, Verb::Read),
    (15, Verb::Bind),
    (5, Verb::LocalInvalidate),
    (8, Verb::SendInvalidate),
    (30, Verb::ThroughWindow),
];

pub(super) const UNRELIABLE: &[(u32, Verb)] = &[
    (10, Verb::Send),
    (5, Verb::SendImmediate),
    (10, Verb::Write),
    (5, Verb::WriteImmediate),
];

pub(super) fn base(rng: &mut Rng) -> Profile {
    let hosts = rng.between(2, 4);
    let longest = rng.weighted(&[(60, 8 << 10), (30, 20 << 10), (10, 64 << 10), (1, 1 << 20)]);
    // Runs with long messages have few of them.
    let (most_pairs, most_requests) = match longest {
        0..=0x1_0000 => (8, 40),
        _ => (1, 8),
    };
    Profile {
        service: Service::Reliable,
        hosts,
        pairs: rng.between(1, most_pairs),
        faults: faultless(Duration::from_micros(rng.between(1, 50) as u64)),
        lag: Duration::from_micros(rng.below(10) as u64),
        poll_every: rng.between(1, 3),
        pace: Duration::from_micros(rng.between(1, 200) as u64),
        burst: rng.between(1, 8),
        requests: rng.between(2, most_requests),
        verbs: RELIABLE,
        longest,
        memory: longest + (8 << 10),
        shares_receives: rng.percent(20),
        late_receives: false,
        poisoned_receives: 0,
        violations: 0,
        bad_posts: 0,
        limits_access: false,
        breaks: 0,
        drains: 0,
        reconnections: 0,
        deregistrations: 0,
        death: None,
        windows: false,
    }
}

pub(super) fn faultless(delay: Duration) -> Faults {
    Faults {
        delay,
        ..Faults::default()
    }
}

pub(super) fn faulty(rng: &mut Rng, hosts: usize, delay: Duration) -> Faults {
    let mut share = |most: u32| {
        if rng.percent(60) {
            rng.below(most as usize + 1) as u32
        } else {
            0
        }
    };
    let (loss, duplication, corruption) = (share(100), share(100), share(60));
    let jitter = if rng.percent(50) {
        Duration::from_micros(rng.between(1, 100) as u64)
    } else {
        Duration::ZERO
    };
    let until = Duration::from_micros(rng.between(100, 20_000) as u64);
    let cuts = if rng.percent(15) {
        vec![cut(rng, hosts, until)]
    } else {
        Vec::new()
    };
    Faults {
        loss,
        duplication,
        corruption,
        delay,
        jitter,
        cuts,
        until,
    }
}

fn cut(rng: &mut Rng, hosts: usize, until: Duration) -> Cut {
    let first = rng.below(hosts);
    let second = (first + rng.between(1, hosts - 1)) % hosts;
    let from = rng.up_to(until);
    Cut {
        hosts: [first, second],
        from,
        until: from + rng.up_to(until - from),
    }
}

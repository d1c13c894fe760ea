//! Some seeds in every test run. The command runs thousands more.

use std::collections::{BTreeMap, BTreeSet};

use sim::{Options, Scenario, campaign, run};

const SEEDS: u64 = 1500;

/// The number of additional runs with connection managers.
const CONNECTIONS: usize = 4000;

/// The events that must occur in them.
const EVENTS: &[&str] = &[
    "Resolved",
    "Failed",
    "Request",
    "Response",
    "Established",
    "Found",
    "Rejected",
    "Unreachable",
    "Disconnected",
    "TimewaitExit",
    "MRA received",
    "backlog full",
    "transport failure",
    "data before RTU",
    "datagram of a service",
    "death",
    "death reported in time",
    "duplicate",
    "exit notice",
    "DREQ received",
    "message forwarded",
    "message retransmitted",
    "message without an exchange",
    "no listener",
    "no queue pair left",
    "number reused",
    "restart",
    "stale connection",
    "DREQ without a response",
];

#[test]
fn no_check_fails() {
    let campaign = campaign(0..SEEDS, Options::default(), |_| {});
    println!("{campaign}");
    let failures: Vec<String> = campaign.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(campaign.runs(), SEEDS);
}

/// Seeds of long campaigns that failed before an error was corrected. In 1000395 and 1007482 the connection manager
/// accepted a reply that it had refused; in 10050 retries were paced, slower after each timeout, and in 18570 a
/// rate became so low that nothing was sent; the others are errors of the checks.
#[test]
fn seeds_that_failed_once_pass() {
    for seed in [
        10_050, 18_570, 1_000_395, 1_007_482, 1_037_481, 2_057_246, 2_109_611, 2_206_943,
    ] {
        run(seed, Options::default()).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// More seeds of the scenario with connection managers. All kinds of events must occur.
#[test]
fn connections_pass_all_checks_and_every_event_occurs() {
    let connections = |seed: &u64| Scenario::of_seed(*seed) == Scenario::Connections;
    let mut seen = BTreeMap::<String, u64>::new();
    for seed in (SEEDS..).filter(connections).take(CONNECTIONS) {
        let summary = run(seed, Options::default()).unwrap_or_else(|failure| panic!("{failure}"));
        for (what, count) in summary.event_counts.iter() {
            *seen.entry(what.to_owned()).or_default() += count;
        }
    }
    for what in EVENTS {
        let count = seen.get(*what).copied().unwrap_or_default();
        assert!(count >= 5, "{what} occurred {count} times: {seen:?}");
    }
}

#[test]
fn same_seed_gives_the_same_run() {
    let mut scenarios = BTreeSet::new();
    for seed in 0..40 {
        let first = run(seed, Options::default()).expect("no check fails");
        let second = run(seed, Options::default()).expect("no check fails");
        assert_eq!(first, second, "seed {seed}");
        scenarios.insert(first.scenario);
    }
    assert!(scenarios.len() >= 8, "only {scenarios:?} were compared");
}

#[test]
fn different_seeds_give_different_runs() {
    let digests: BTreeSet<u64> = (0..40)
        .map(|seed| run(seed, Options::default()).expect("no check fails"))
        .map(|summary| summary.digest)
        .collect();
    assert_eq!(digests.len(), 40);
}

//! A handful of seeds with every test run; thousands more run by the command.

use std::collections::BTreeSet;

use sim::{Options, campaign, run};

const SEEDS: u64 = 1500;

#[test]
fn the_engine_keeps_its_promises() {
    let campaign = campaign(0..SEEDS, Options::default(), |_| {});
    println!("{campaign}");
    let failures: Vec<String> = campaign.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(campaign.runs(), SEEDS);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let mut scenarios = BTreeSet::new();
    for seed in 0..40 {
        let first = run(seed, Options::default()).expect("the engine keeps its promises");
        let second = run(seed, Options::default()).expect("and does so every time");
        assert_eq!(first, second, "seed {seed}");
        scenarios.insert(first.scenario);
    }
    assert!(scenarios.len() >= 8, "only {scenarios:?} were compared");
}

#[test]
fn different_seeds_are_different_runs() {
    let digests: BTreeSet<u64> = (0..40)
        .map(|seed| run(seed, Options::default()).expect("the engine keeps its promises"))
        .map(|summary| summary.digest)
        .collect();
    assert_eq!(digests.len(), 40);
}

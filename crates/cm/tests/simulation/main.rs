//! Simulated hosts that connect, refuse, part and die over a bad network: one seed is one run.
//!
//! A failure names its seed; `CM_SEED=4711 cargo test -p cm --test simulation replay` repeats it.

mod application;
mod ledger;
mod random;
mod world;

use ledger::Seen;
use world::World;

/// How many runs a test takes.
const SEEDS: u64 = 3000;

/// Names the seed of a run that fails.
struct Blame(u64);

impl Drop for Blame {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!("seed {seed}: CM_SEED={seed} cargo test -p cm --test simulation replay");
        }
    }
}

fn run(seed: u64) -> Seen {
    let _blame = Blame(seed);
    World::new(seed).run()
}

#[test]
fn hosts_agree_over_a_bad_network() {
    let mut seen = Seen::default();
    for seed in 0..SEEDS {
        seen.add(&run(seed));
    }
    seen.assert_everything_happened();
}

#[test]
fn one_seed_is_one_run() {
    for seed in [1, 2, 3] {
        assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn replay() {
    let seed = option_env!("CM_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    println!("{:?}", run(seed));
}

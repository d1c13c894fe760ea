//! The fuzz targets of engine and connection manager on a stable compiler: every seed unchanged, then
//! with random damage, and random bytes.

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Sorted, so that a failing case of proptest is the same on every machine.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut seeds: Vec<_> = fs::read_dir(directory.join(target))
        .expect("the target has seeds")
        .map(|entry| entry.expect("a seed has a name").path())
        .map(|path| fs::read(path).expect("a seed is readable"))
        .collect();
    seeds.sort();
    seeds
}

/// Several concatenated seeds with some bytes changed.
fn damaged(target: &str) -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<Index>(), any::<u8>()), 0..8);
    let several = vec(select(seeds(target)), 1..5);
    (several, changes).prop_map(|(several, changes)| {
        let mut bytes = several.concat();
        for (position, value) in changes {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        bytes
    })
}

fn random_bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..600)
}

#[test]
fn connection_manager_seeds_break_no_invariant() {
    for seed in seeds("cm_manager") {
        sim::fuzz_manager::feed(&seed);
    }
}

proptest! {
    // PROPTEST_CASES overrides the number.
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn damaged_seeds_break_no_invariant_of_the_connection_manager(bytes in damaged("cm_manager")) {
        sim::fuzz_manager::feed(&bytes);
    }

    #[test]
    fn random_bytes_break_no_invariant_of_the_connection_manager(bytes in random_bytes()) {
        sim::fuzz_manager::feed(&bytes);
    }

    #[test]
    fn host_responds_after_random_bytes(bytes in random_bytes()) {
        sim::fuzz_host::feed(&bytes);
    }

    #[test]
    fn random_bytes_break_no_invariant_of_the_engine(bytes in random_bytes()) {
        sim::fuzz_device::feed(&bytes);
    }
}

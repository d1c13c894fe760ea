//! What the fuzz targets check, on a stable compiler: every seed as it is, then damaged at random.

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

// The fuzz crate itself needs libFuzzer and a nightly compiler; its entry points do not.
#[path = "../../fuzz/src/entry_points.rs"]
pub mod entry_points;

/// Sorted, so that a failing case that proptest wrote down means the same everywhere.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    let mut seeds: Vec<_> = fs::read_dir(directory.join(target))
        .expect("every target has seeds")
        .map(|entry| entry.expect("a seed has a name").path())
        .map(|path| fs::read(path).expect("a seed is readable"))
        .collect();
    seeds.sort();
    seeds
}

/// Damaged seeds, mostly: plain noise seldom gets past the first check.
fn hostile(target: &str) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![4 => damaged(target), 1 => noise()]
}

/// A seed with some bytes changed, and perhaps its end cut off.
fn damaged(target: &str) -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<Index>(), any::<u8>()), 0..6);
    let cut = option::weighted(0.3, any::<Index>());
    (select(seeds(target)), changes, cut).prop_map(|(mut bytes, changes, cut)| {
        for (position, value) in changes {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        if let Some(length) = cut {
            bytes.truncate(length.index(bytes.len()));
        }
        bytes
    })
}

fn noise() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..320)
}

#[test]
fn fuzz_seeds_pass_their_targets() {
    for seed in seeds("parse") {
        wire::Packet::parse(&seed).expect("a packet from a capture");
        entry_points::parse(&seed);
        entry_points::roundtrip(&seed);
    }
    for seed in seeds("frame") {
        wire::Datagram::parse_ethernet(&seed).expect("a frame from a capture");
        entry_points::frame(&seed);
    }
    for seed in seeds("cm_message") {
        let datagram = seed.first_chunk().expect("a whole management datagram");
        wire::cm::Message::parse(datagram).expect("a message from a capture");
        entry_points::cm_message(&seed);
    }
}

proptest! {
    // A case takes microseconds, so there can be many; PROPTEST_CASES overrules the number.
    #![proptest_config(ProptestConfig::with_cases(16_384))]

    #[test]
    fn parse_target_accepts_any_bytes(bytes in hostile("parse")) {
        entry_points::parse(&bytes);
    }

    #[test]
    fn roundtrip_target_accepts_any_bytes(bytes in hostile("roundtrip")) {
        entry_points::roundtrip(&bytes);
    }

    #[test]
    fn cm_message_target_accepts_any_bytes(bytes in hostile("cm_message")) {
        entry_points::cm_message(&bytes);
    }

    #[test]
    fn frame_target_accepts_any_bytes(bytes in hostile("frame")) {
        entry_points::frame(&bytes);
    }
}

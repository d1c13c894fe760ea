//! Hostile captures: any content is read without a panic.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use crate::captures::{explain, seal, tell};
use crate::kernel_captures::bytes;

/// A pcapng file, which has more fields than pcap.
fn pcapng() -> Vec<u8> {
    crate::file_formats::pcapng(
        &crate::kernel_captures::frames("gold-rnrok"),
        9,
        &[(0, 2), (0, 1)],
    )
}

fn captures() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(bytes("gold-rnr")),
        Just(bytes("gold-batch")),
        Just(bytes("rping")),
        Just(bytes("udaddy")),
        Just(bytes("loss5-acks-send")),
        Just(pcapng()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn changed_bytes_cause_no_panic(
        mut capture in captures(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        for (place, byte) in changes {
            let place = place.index(capture.len());
            capture[place] = byte;
        }
        explain(&capture);
    }

    #[test]
    fn missing_and_repeated_parts_cause_no_panic(
        capture in captures(),
        cut in any::<prop::sample::Index>(),
        length in 0..300_usize,
        twice: bool,
    ) {
        let start = cut.index(capture.len());
        let end = (start + length).min(capture.len());
        let mut changed = capture[..if twice { end } else { start }].to_vec();
        changed.extend_from_slice(&capture[if twice { start } else { end }..]);
        explain(&changed);
    }

    /// Invalid PSNs, opcodes and lengths with valid checksums.
    #[test]
    fn packets_in_any_order_cause_no_panic(
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..60),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 42..70_usize, any::<u8>()), 0..30),
    ) {
        let frames = crate::kernel_captures::frames("gold-batch");
        let mut chosen: Vec<Vec<u8>> = order
            .iter()
            .map(|place| frames[place.index(frames.len())].ethernet.clone())
            .collect();
        for (place, offset, byte) in changes {
            let place = place.index(chosen.len());
            if let Some(changed) = chosen[place].get_mut(offset) {
                *changed = byte;
            }
        }
        explain(&with_valid_checksums(&chosen));
    }

    #[test]
    fn arbitrary_bytes_cause_no_panic(capture in prop::collection::vec(any::<u8>(), 0..200)) {
        explain(&capture);
    }
}

/// A capture of these frames with corrected checksums.
fn with_valid_checksums(frames: &[Vec<u8>]) -> Vec<u8> {
    use pcap_file::pcap::{PcapPacket, PcapWriter};
    let mut writer = PcapWriter::new(Vec::new()).expect("memory");
    for (index, frame) in frames.iter().enumerate() {
        let mut frame = frame.clone();
        seal(&mut frame);
        let time = std::time::Duration::from_micros(index as u64);
        let packet = PcapPacket::new(time, frame.len() as u32, &frame);
        writer.write_packet(&packet).expect("memory");
    }
    writer.into_writer()
}

/// The seeds of the fuzzer, and its findings.
#[test]
fn fuzzer_seeds_cause_no_panic() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/capture");
    for seed in fs::read_dir(directory).expect("the target has seeds") {
        let path = seed.expect("a seed has a name").path();
        tell(&fs::read(path).expect("a seed is readable"));
    }
}

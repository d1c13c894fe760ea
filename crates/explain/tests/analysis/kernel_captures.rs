//! Captures of the kernel's device from the crate `wire`.

use std::path::{Path, PathBuf};

use explain::Analysis;
use pcap_file::pcap::PcapReader;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden")
}

/// The bytes of a capture.
pub(crate) fn bytes(name: &str) -> Vec<u8> {
    let path = directory().join(name).with_extension("pcap");
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The analysis of a capture by name.
pub(crate) fn analysis(name: &str) -> Analysis {
    analysed(&bytes(name))
}

/// The analysis of a capture.
pub(crate) fn analysed(capture: &[u8]) -> Analysis {
    Analysis::read(capture).expect("a capture")
}

/// One frame of a capture.
pub(crate) struct Frame {
    pub(crate) time: std::time::Duration,
    pub(crate) ethernet: Vec<u8>,
}

impl Frame {
    /// What follows the Ethernet header, which has no tags here.
    pub(crate) fn ip(&self) -> &[u8] {
        &self.ethernet[14..]
    }
}

/// The frames of a capture.
pub(crate) fn frames(name: &str) -> Vec<Frame> {
    let bytes = bytes(name);
    let mut reader = PcapReader::new(bytes.as_slice()).expect("a capture");
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a frame");
        frames.push(Frame {
            time: packet.timestamp,
            ethernet: packet.data.into_owned(),
        });
    }
    frames
}

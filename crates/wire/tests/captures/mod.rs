//! Reads the captures in `tests/golden`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pcap_file::pcap::PcapReader;
use wire::Datagram;

/// The one capture with a damaged packet.
pub(crate) const DAMAGED: &str = "host-bad-icrc.pcap";

/// The frames of one file.
pub(crate) struct Capture {
    pub(crate) name: String,
    frames: Vec<Vec<u8>>,
}

impl Capture {
    /// The UDP datagrams of the capture. Every frame holds one.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.frames.iter().enumerate().map(|(index, frame)| {
            Datagram::parse_ethernet(frame)
                .unwrap_or_else(|error| panic!("{} frame {}: {error}", self.name, index + 1))
        })
    }

    /// The frames of the capture.
    pub(crate) fn frames(&self) -> &[Vec<u8>] {
        &self.frames
    }
}

/// Reads one capture by name.
pub(crate) fn capture(name: &str) -> Capture {
    read(&root(), &root().join(name))
}

/// Reads every capture except the damaged one.
pub(crate) fn intact() -> Vec<Capture> {
    let mut captures = Vec::new();
    let mut directories = vec![root()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory of captures") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "pcap")
            {
                captures.push(read(&root(), &path));
            }
        }
    }
    captures.retain(|capture| capture.name != DAMAGED);
    captures
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn read(root: &Path, path: &Path) -> Capture {
    let relative = path
        .strip_prefix(root)
        .expect("the capture is below the root");
    let name = relative.display().to_string();
    let file = File::open(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut reader = PcapReader::new(file).expect("a capture");
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        frames.push(packet.expect("a frame").data.into_owned());
    }
    Capture { name, frames }
}

//! What went wrong on the wire, told from the packets of a program that has ended.

mod findings;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io::BufReader;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use net::Direction;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::{Block, PcapNgReader};

use super::environment::Environment;
use findings::Findings;

/// The two lowest bits of a packet's flags in a capture; 1 is a received one.
const DIRECTION_MASK: u32 = 3;
const INBOUND: u32 = 1;

/// Packets that are being written by a program and its children, one file for each process.
pub(super) struct Recording {
    /// The name that the processes are given.
    name: PathBuf,
    /// Older files are not ours.
    begin: SystemTime,
    /// Ours alone, to be removed.
    temporary: Option<PathBuf>,
}

impl Recording {
    /// Lets a program record its packets: where the user wants them, or else in a temporary folder.
    pub(super) fn new(environment: &mut Environment) -> anyhow::Result<Self> {
        let unique = RandomState::new().hash_one(std::process::id());
        let folder = std::env::temp_dir().join(format!("roci-explain-{unique:016x}"));
        let name = environment.capture_or(|| folder.join("%p.pcapng"));
        let temporary = name.starts_with(&folder).then_some(folder);
        if let Some(folder) = &temporary {
            let made = DirBuilder::new().mode(0o700).create(folder);
            made.with_context(|| format!("there is no room for packets in {}", folder.display()))?;
        }
        Ok(Self {
            name,
            begin: SystemTime::now(),
            temporary,
        })
    }

    /// A few sentences about what is in the recording.
    pub(super) fn explanation(&self) -> String {
        let mut findings = Findings::default();
        let mut unreadable = 0;
        for path in self.files() {
            match read(&path, &mut findings) {
                Ok(()) => {}
                Err(_) => unreadable += 1,
            }
        }
        let mut text = findings.to_string();
        if unreadable > 0 {
            text.push_str(" Some of the packets could not be read again.");
        }
        text
    }

    /// The files that the processes made of the name they were given.
    fn files(&self) -> Vec<PathBuf> {
        let folder = self.name.parent().unwrap_or(Path::new("."));
        let stem = self.name.file_stem().unwrap_or_default().to_string_lossy();
        let beginning = stem.split("%p").next().unwrap_or_default().to_owned();
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let ours = entries.map(|entry| entry.path()).filter(|path| {
            let name = path
                .file_name()
                .map(OsStr::to_string_lossy)
                .unwrap_or_default();
            name.starts_with(&beginning)
                && path.extension() == self.name.extension()
                && fs::metadata(path)
                    .and_then(|found| found.modified())
                    .is_ok_and(|modified| modified >= self.begin)
        });
        ours.collect()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(folder) = &self.temporary {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

fn read(path: &Path, findings: &mut Findings) -> anyhow::Result<()> {
    let mut reader = PcapNgReader::new(BufReader::new(File::open(path)?))?;
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block? {
            findings.see(direction(&packet), &packet.data);
        }
    }
    findings.end_of_process();
    Ok(())
}

fn direction(packet: &EnhancedPacketBlock<'_>) -> Direction {
    let is_inbound = packet.options.iter().any(|option| {
        matches!(option, EnhancedPacketOption::Flags(flags) if flags & DIRECTION_MASK == INBOUND)
    });
    match is_inbound {
        true => Direction::Receive,
        false => Direction::Transmit,
    }
}

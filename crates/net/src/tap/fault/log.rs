//! A log of the injected faults, which all processes of a test share.
//!
//! Each line is one of these:
//!
//! ```text
//! context 2 process 4711 ./client 10.0.0.7
//! packets 2 tx opcode=RC_SEND_ONLY 64
//! fault 2 drop:context=2,opcode=RC_SEND_ONLY,nth=3 # RC SEND_ONLY to QP 0x11, PSN 5: dropped by fault injection
//! ```
//!
//! A `fault` line contains a rule that injects this fault, and no other, in the next run: `nth` counts packets
//! of one name, direction and context, because queue pair numbers and PSNs differ from run to run. A
//! `packets` line says that at least this number of packets of a name was seen; the numbers are powers of two.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use wire::{Opcode, Packet};

use super::packet_name::PacketName;
use super::spec::{Rule, Seen};
use crate::named_file;
use crate::sys::file_size;
use crate::tap::Direction;

/// The environment variable that names the log.
pub const FAULT_LOG_VARIABLE: &str = "ROCI_FAULT_LOG";

/// The log of one context.
#[derive(Debug)]
pub struct FaultLog {
    file: File,
    context: u64,
    seen: HashMap<(Direction, PacketName), u64>,
}

/// The number of a context without a log: contexts of this process are counted.
pub(super) fn next_context() -> u64 {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    OPENED.fetch_add(1, Ordering::Relaxed) + 1
}

impl FaultLog {
    /// Opens the log, and adds a context to it. Its number is one more than that of the context before it,
    /// whichever process has opened that one.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true);
        let mut file = named_file::open_regular(options, path)?;
        file.lock()?;
        let context = contexts_in(&file)? + 1;
        let line = format!(
            "context {context} process {} {}\n",
            std::process::id(),
            command()
        );
        let written = file_size::without_signal(|| file.write_all(line.as_bytes()));
        file.unlock()?;
        written?;
        Ok(FaultLog {
            file,
            context,
            seen: HashMap::new(),
        })
    }

    /// The number of the context.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Counts a packet, and returns its name and its number among those of the same name.
    pub(super) fn count(&mut self, seen: &Seen<'_>) -> Option<(PacketName, u64)> {
        let opcode = Opcode::from_byte(seen.base?.opcode())?;
        let numbered = self.add(seen.direction, PacketName::Opcode(opcode));
        match seen.cm {
            Some(message) => Some(self.add(seen.direction, PacketName::Cm(message))),
            None => Some(numbered),
        }
    }

    fn add(&mut self, direction: Direction, name: PacketName) -> (PacketName, u64) {
        let count = self.seen.entry((direction, name)).or_default();
        *count += 1;
        let count = *count;
        if count.is_power_of_two() {
            let direction = match direction {
                Direction::Transmit => "tx",
                Direction::Receive => "rx",
            };
            let context = self.context;
            self.write(&format!("packets {context} {direction} {name} {count}\n"));
        }
        (name, count)
    }

    /// Records that a rule was applied to a packet.
    pub(super) fn record(&mut self, rule: &Rule, (name, nth): (PacketName, u64), bytes: &[u8]) {
        let context = self.context;
        let mut line = format!("fault {context} ");
        if rule.direction == Direction::Receive && !rule.action.is_for_receivers() {
            line.push_str("rx:");
        }
        let _ = write!(line, "{}:context={context},{name},nth={nth}", rule.action);
        if let Some(by) = rule.action.duration() {
            let _ = write!(line, ",by={}", super::spec::Span(by));
        }
        if let Ok(packet) = Packet::parse(bytes) {
            let to = packet.destination.value();
            let _ = match name {
                PacketName::Cm(name) => write!(line, " # CM {name}"),
                PacketName::Opcode(opcode) => {
                    write!(line, " # {opcode} to QP {to:#x}, PSN {}", packet.psn)
                }
            };
        }
        line.push('\n');
        self.write(&line);
    }

    /// One write for each line, so that the lines of processes do not mix. A log that can't be written is
    /// incomplete, and changes nothing else.
    fn write(&mut self, line: &str) {
        let _ = file_size::without_signal(|| self.file.write_all(line.as_bytes()));
    }
}

/// How many contexts a log has. It may be long.
fn contexts_in(file: &File) -> io::Result<u64> {
    let mut lines = BufReader::new(file).split(b'\n');
    lines.try_fold(0, |count, line| {
        Ok(count + u64::from(line?.starts_with(b"context ")))
    })
}

/// The command line of this process, in one line.
fn command() -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().replace('\n', " "));
    words.collect::<Vec<_>>().join(" ")
}

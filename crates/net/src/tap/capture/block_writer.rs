//! The blocks of a capture on their way into its file.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::blocks::systemd_journal_export::SystemdJournalExportBlock;
use pcap_file::{DataLink, Endianness};

use super::limits::Limits;
use super::pipe_writer::PipeWriter;
use super::{Note, Record, file_per_process};
use crate::private_file;
use crate::sys::file_size;

pub(super) struct BlockWriter {
    path: PathBuf,
    file: File,
    /// The length of the file; `None` for a pipe or a device.
    length: Option<u64>,
    /// If the file is a pipe.
    pipe: Option<PipeWriter>,
    /// How many packets and notes wait in `blocks`.
    records: u64,
    /// How many were dropped because the reader of the pipe was too slow.
    missed: u64,
    limits: Limits,
    /// Blocks that are not in the file yet. They are always complete.
    blocks: PcapNgWriter<Vec<u8>>,
    /// The packet that is being recorded. Kept to reuse its memory.
    packet: Vec<u8>,
    /// The program and its process.
    program: String,
    state: State,
}

enum State {
    Running,
    Failed(io::Error),
    /// Failed, and the error was taken.
    Ended,
}

impl BlockWriter {
    pub(super) fn new(
        path: PathBuf,
        mut file: File,
        program: &str,
        limits: Limits,
    ) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        let is_file = kind.is_file();
        let pipe = kind.is_fifo().then(|| file.try_clone());
        let pipe = pipe.transpose()?.map(PipeWriter::start).transpose()?;
        Ok(Self {
            pipe,
            records: 0,
            missed: 0,
            length: is_file.then(|| file.stream_position()).transpose()?,
            path,
            file,
            limits,
            blocks: beginning(program, limits)?,
            packet: Vec::new(),
            program: program.to_owned(),
            state: State::Running,
        })
    }

    /// How many bytes are not in the file yet.
    pub(super) fn waiting(&self) -> usize {
        self.blocks.get_ref().len()
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        if !matches!(self.state, State::Running) {
            return;
        }
        self.records += 1;
        self.packet.clear();
        record.datagram().emit(&mut self.packet);
        let longest = self.limits.snap_length.map_or(usize::MAX, |it| it as usize);
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: record.time.duration_since(UNIX_EPOCH).unwrap_or_default(),
            original_len: self.packet.len() as u32,
            data: Cow::Borrowed(&self.packet[..self.packet.len().min(longest)]),
            options: record.options(),
        };
        self.blocks
            .write_pcapng_block(block)
            .expect("memory takes every block of the only interface");
    }

    pub(super) fn note(&mut self, note: &Note<'_>) {
        if !matches!(self.state, State::Running) {
            return;
        }
        self.records += 1;
        let program = &self.program;
        let named = program
            .split_once(" in ")
            .map_or(&**program, |(_, name)| name);
        let journal_entry = note.entry(named).into();
        self.blocks
            .write_pcapng_block(SystemdJournalExportBlock { journal_entry })
            .expect("memory takes every block");
    }

    pub(super) fn flush(&mut self) {
        if !self.is_running() {
            return;
        }
        let result = self.begin_next_file().and_then(|()| self.write());
        self.blocks.get_mut().clear();
        self.records = 0;
        if let Err(error) = result {
            self.state = State::Failed(error);
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let blocks = self.blocks.get_ref();
        if let Some(pipe) = &self.pipe {
            if !pipe.push(blocks)? {
                self.missed += self.records;
            }
            return Ok(());
        }
        let result = file_size::without_signal(|| self.file.write_all(blocks));
        if let Some(length) = &mut self.length {
            match result {
                Ok(()) => *length += blocks.len() as u64,
                // A full disk may have taken a part of a block, and readers reject that.
                Err(_) => self.file.set_len(*length)?,
            }
        }
        result
    }

    /// In a ring, makes the file the earlier part when it has half of the size, and begins another one.
    fn begin_next_file(&mut self) -> io::Result<()> {
        let (Some(ring), Some(length)) = (self.limits.ring, self.length) else {
            return Ok(());
        };
        if length == 0 || length + self.blocks.get_ref().len() as u64 <= ring / 2 {
            return Ok(());
        }
        let file = replace(&self.path)?;
        self.unlock();
        self.file = file;
        let start = beginning(&self.program, self.limits)?;
        file_size::without_signal(|| self.file.write_all(start.get_ref()))?;
        self.length = Some(start.get_ref().len() as u64);
        Ok(())
    }

    pub(super) fn is_pipe(&self) -> bool {
        self.pipe.is_some()
    }

    /// Waits until the reader of a pipe has got everything, as long as it reads.
    pub(super) fn drain(&self) {
        if let Some(pipe) = &self.pipe {
            pipe.drain();
        }
    }

    /// How many packets and notes were dropped because the reader of a pipe was too slow. Returned once.
    pub(super) fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running)
    }

    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Failed(error) => Some(error),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Closing the file is not enough: a child that was just started may hold it a moment longer. If there was no
    /// lock, there is none to release.
    pub(super) fn unlock(&self) {
        let _ = self.file.unlock();
    }

    #[cfg(test)]
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    #[cfg(test)]
    pub(super) fn add_bytes(&mut self, bytes: &[u8]) {
        self.blocks.get_mut().extend(bytes);
    }
}

impl std::fmt::Debug for BlockWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockWriter").finish_non_exhaustive()
    }
}

/// Gives the file the name of the earlier part, and puts a new, locked one in its place. There is always a locked file
/// of this name, so that no other process takes it.
fn replace(path: &Path) -> io::Result<File> {
    let earlier = file_per_process::with_suffix(path, "earlier");
    let (next, file) = private_file::create_draft(path)?;
    // Who may read the first part may read all.
    file.set_permissions(fs::metadata(path)?.permissions())?;
    // Without locks, a name with the process id is unique enough.
    let _ = file.try_lock();
    let _ = fs::remove_file(&earlier);
    // Some file systems have no links. Then the name is free for a moment.
    fs::hard_link(path, &earlier).or_else(|_| fs::rename(path, &earlier))?;
    fs::rename(&next, path)?;
    Ok(file)
}

/// The beginning of every capture: which program wrote it, and where the packets come from.
fn beginning(program: &str, limits: Limits) -> io::Result<PcapNgWriter<Vec<u8>>> {
    let run = file_per_process::run_mark().map(|mark| SectionHeaderOption::Comment(mark.into()));
    let known = [
        SectionHeaderOption::Hardware(std::env::consts::ARCH.into()),
        SectionHeaderOption::OS(operating_system().into()),
        SectionHeaderOption::UserApplication(program.to_owned().into()),
    ];
    let section = SectionHeaderBlock {
        endianness: Endianness::native(),
        options: run.into_iter().chain(known).collect(),
        ..SectionHeaderBlock::default()
    };
    let interface = InterfaceDescriptionBlock {
        linktype: DataLink::RAW,
        // 0: no limit.
        snaplen: limits.snap_length.unwrap_or(0),
        options: vec![
            InterfaceDescriptionOption::IfName("roci".into()),
            InterfaceDescriptionOption::IfDescription("RoCEv2 in user space".into()),
            // Timestamps count units of 10^-9 seconds.
            InterfaceDescriptionOption::IfTsResol(9),
        ],
    };
    let mut blocks =
        PcapNgWriter::with_section_header(Vec::new(), section).map_err(io::Error::other)?;
    blocks
        .write_pcapng_block(interface)
        .map_err(io::Error::other)?;
    Ok(blocks)
}

fn operating_system() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", release.trim()).trim_end().to_owned()
}

//! Captures: every packet that was sent and received, in a file that Wireshark reads.
//!
//! A packet sniffer needs privileges, does not see packets that never leave the machine through a
//! network card, and knows nothing about verbs. A capture is made in the process itself: it has
//! every packet, and a comment can say which work request a packet belongs to.
//!
//! The format is pcapng, with nanoseconds and the direction of every packet. There is no Ethernet
//! header, because a socket doesn't know one: packets start with IP (`LINKTYPE_RAW`), which
//! Wireshark dissects just as well, and no address is invented. The IP and UDP headers are those on
//! the wire, as far as a socket can know them; in particular the identification of IPv4 is the true
//! one, so that the ICRC at the end of a packet can be verified against the headers before it. The
//! flow label of IPv6, which the kernel chooses and the ICRC doesn't cover, is shown as 0.
//!
//! All devices of a process that are open at a time write one section. A device that is opened after all others were
//! closed, and another program of the same run, begin another section of the file. Wireshark and `roci explain` read
//! all sections. tcpdump stops at the second one with "an interface has a type 101 different from the type of the
//! first interface": libpcap compares the number of the link type in the file with its own number for the same type.

mod block_writer;
mod file_per_process;
mod limits;
mod parts;
mod pipe_writer;

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use wire::{Datagram, Flow, Fragmentation};

pub use limits::{Limits, parse_size};
pub use parts::parts_of_ended_run;

use super::Direction;
use crate::{fork, stderr};
use block_writer::BlockWriter;
use file_per_process::with_reader;

/// One packet as it was sent or received.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// When it was sent or received.
    pub time: SystemTime,
    /// Whether it was sent or received.
    pub direction: Direction,
    /// Its addresses and UDP ports.
    pub flow: &'a Flow,
    /// The fragmentation fields of the IPv4 header: those that the packet was sealed for, or that
    /// [`wire::IcrcChecker`] recovered. [`Fragmentation::NONE`] over IPv6.
    pub fragmentation: Fragmentation,
    /// Type of service in IPv4, traffic class in IPv6.
    pub traffic_class: u8,
    /// Time to live in IPv4, hop limit in IPv6.
    pub hop_limit: u8,
    /// The UDP payload: the packet with its ICRC.
    pub payload: &'a [u8],
    /// A comment, such as the verb and the work request it belongs to.
    pub comment: Option<&'a str>,
}

/// Something that happened besides packets: a work request was posted, a completion was added and so on.
///
/// It becomes a journal entry (a Systemd Journal Export Block). Wireshark shows it as a line between the packets, and
/// libpcap skips it.
#[derive(Clone, Copy, Debug)]
pub struct Note<'a> {
    /// When it happened.
    pub time: SystemTime,
    /// What happened, as one line for a reader.
    pub message: &'a str,
    /// The same for programs. Names are upper-case letters, digits and underscores; values are one line each.
    pub fields: &'a [(&'a str, String)],
}

impl Note<'_> {
    /// The entry in the Journal Export Format: a line for each field, then an empty one.
    fn entry(&self, program: &str) -> Vec<u8> {
        let time = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut entry = format!(
            "__REALTIME_TIMESTAMP={}\nMESSAGE={}\nSYSLOG_IDENTIFIER={program}\nROCI_TIME_NS={}\n",
            time.as_micros(),
            self.message,
            time.as_nanos()
        );
        for (name, value) in self.fields {
            entry.push_str(name);
            entry.push('=');
            entry.push_str(value);
            entry.push('\n');
        }
        entry.push('\n');
        entry.into_bytes()
    }
}

/// Why a capture can't start, or ends early.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be created.
    #[error("cannot write a capture to {}: {error}; choose another file", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The file is a pipe that no process reads.
    #[error("no process reads the pipe {}: start its reader first, such as tshark -i", .0.display())]
    NoReader(PathBuf),
    /// The file cannot be written any more. It is readable up to this point.
    #[error("the capture in {} ends early: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// A capture file that is being written. It can be shared between threads.
///
/// Packets reach the file with [`flush`](Self::flush), best called once per batch, and when the
/// capture is dropped. No call waits for the reader of a pipe, except at the end of the capture, for a second: a slow reader
/// misses packets. If the process ends in any way, packets that were flushed before are
/// readable.
#[derive(Debug)]
pub struct Capture {
    path: PathBuf,
    writer: Mutex<BlockWriter>,
    /// The fork generation. The copy in a forked child leaves the file to the parent.
    generation: u32,
}

impl Capture {
    /// The buffer size in bytes at which blocks are written without a flush: more than a batch, so
    /// that a program that never flushes doesn't fill the memory.
    const LONGEST_BUFFER: usize = 256 * 1024;

    /// Starts a capture in the file of this name. It replaces the content, but appends if this
    /// process or another one of the same `roci run` has written it.
    ///
    /// Several processes can use the same name. `%p` in it stands for the process id. If another
    /// process is writing to the file, this one adds its own id to the name: `trace-4711.pcapng`
    /// instead of `trace.pcapng`. [`path`](Self::path) returns the actual name.
    pub fn create(name: impl AsRef<Path>) -> Result<Self, CaptureError> {
        Self::create_limited(name, Limits::default())
    }

    /// As [`create`](Self::create), with limits.
    pub fn create_limited(name: impl AsRef<Path>, limits: Limits) -> Result<Self, CaptureError> {
        let begin = Instant::now();
        with_reader(|| (Self::open(name.as_ref(), limits), begin))
    }

    /// As [`create_limited`](Self::create_limited), but never waits for the reader of a pipe.
    fn open(name: &Path, limits: Limits) -> Result<Self, CaptureError> {
        let (path, file) = file_per_process::open(name)?;
        Self::begin(path, file, &application(), limits)
    }

    /// The capture of this name that this process is writing already, or else a new one. So all devices of a process
    /// write one file. The limits are those of the first. A process waits once for the reader of a pipe, also if it opens several
    /// devices.
    pub fn shared(name: impl AsRef<Path>, limits: Limits) -> Result<Arc<Self>, CaptureError> {
        parts::shared(name.as_ref(), limits)
    }

    /// Starts a capture in exactly this file, which it replaces. The file names `program` instead of this process,
    /// so that captures of the same packets are equal.
    pub fn replace(path: impl Into<PathBuf>, program: &str) -> Result<Self, CaptureError> {
        let path = path.into();
        match File::create(&path) {
            Ok(file) => Self::begin(path, file, program, Limits::default()),
            Err(error) => Err(CaptureError::Create { path, error }),
        }
    }

    fn begin(
        path: PathBuf,
        file: File,
        program: &str,
        limits: Limits,
    ) -> Result<Self, CaptureError> {
        let writer = BlockWriter::new(path.clone(), file, program, limits);
        let capture = Capture {
            writer: Mutex::new(writer.map_err(|error| CaptureError::Create {
                path: path.clone(),
                error,
            })?),
            path,
            generation: fork::generation(),
        };
        capture.flush();
        Ok(capture)
    }

    /// The file of the capture.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds one packet. This never fails: the packet is sent or received even if it cannot be
    /// recorded, and [`take_error`](Self::take_error) returns the error.
    ///
    /// # Panics
    /// If the addresses of the flow are of two families.
    pub fn record(&self, record: &Record<'_>) {
        let mut writer = self.writer();
        writer.record(record);
        if writer.waiting() >= Self::LONGEST_BUFFER {
            writer.flush();
        }
    }

    /// Adds a note. Like [`record`](Self::record), this never fails.
    pub fn note(&self, note: &Note<'_>) {
        let mut writer = self.writer();
        writer.note(note);
        if writer.waiting() >= Self::LONGEST_BUFFER {
            writer.flush();
        }
    }

    /// Writes everything recorded so far to the file.
    pub fn flush(&self) {
        self.writer().flush();
    }

    /// As [`flush`](Self::flush), and waits until the reader of a pipe has got everything, as long as it reads.
    pub fn drain(&self) {
        let mut writer = self.writer();
        writer.flush();
        writer.drain();
    }

    /// Whether an error ended the capture early.
    pub fn has_ended_early(&self) -> bool {
        !self.writer().is_running()
    }

    /// The error that ended the capture early. It is returned once.
    pub fn take_error(&self) -> Option<CaptureError> {
        self.writer().take_error().map(|error| CaptureError::Write {
            path: self.path.clone(),
            error,
        })
    }

    /// Writes the rest, and releases the file for others. The copy in a forked child does nothing. Prints what the file
    /// lacks when the writer is free: others may still record.
    fn end(&self) {
        if self.generation != fork::generation() {
            return;
        }
        self.drain();
        let mut writer = self.writer();
        writer.unlock();
        let missed = writer.take_missed();
        drop(writer);
        if missed > 0 {
            let path = self.path.display();
            stderr::print(format_args!(
                "the capture in {path} lacks {missed} packets and notes: its reader was too slow"
            ));
        }
        if let Some(error) = self.take_error() {
            stderr::print(error);
        }
    }

    fn is_pipe(&self) -> bool {
        self.writer().is_pipe()
    }

    /// Every block is complete between two calls, even if a thread panicked in between.
    fn writer(&self) -> MutexGuard<'_, BlockWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.end();
    }
}

impl<'a> Record<'a> {
    const INBOUND: u32 = 1;
    const OUTBOUND: u32 = 2;

    fn datagram(&self) -> Datagram<'a> {
        Datagram {
            flow: *self.flow,
            traffic_class: self.traffic_class,
            flow_label: 0,
            hop_limit: self.hop_limit,
            fragmentation: self.fragmentation,
            payload: self.payload,
        }
    }

    fn options(&self) -> Vec<EnhancedPacketOption<'a>> {
        let comment = self.comment.map(|comment| {
            let comment = Cow::Borrowed(clipped(comment));
            EnhancedPacketOption::Comment(comment)
        });
        let direction = match self.direction {
            Direction::Transmit => Self::OUTBOUND,
            Direction::Receive => Self::INBOUND,
        };
        comment
            .into_iter()
            .chain([EnhancedPacketOption::Flags(direction)])
            .collect()
    }
}

/// Clips a text to the length that fits into an option, which has sixteen bits for it.
fn clipped(text: &str) -> &str {
    let mut end = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Names the process, because several processes write several files.
fn application() -> String {
    let program = program();
    let version = env!("CARGO_PKG_VERSION");
    let process = std::process::id();
    format!("Rocinante {version} in {program} (process {process})")
}

/// The file name of the program.
fn program() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let name = program.file_name().unwrap_or_default();
    name.to_string_lossy().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use super::*;
    use crate::sys::process;

    fn name(test: &str) -> PathBuf {
        let name = format!("roci-capture-{test}-{}.pcapng", std::process::id());
        std::env::temp_dir().join(name)
    }

    #[test]
    fn a_section_names_the_program_and_its_process() {
        let program = std::env::current_exe().unwrap();
        let program = program.file_name().unwrap().to_str().unwrap();
        let process = std::process::id();
        let application = application();
        assert!(
            application.ends_with(&format!(" in {program} (process {process})")),
            "{application}"
        );
    }

    #[test]
    fn a_handle_of_an_ended_capture_does_not_keep_its_name() {
        let name = name("held");
        let first = Capture::create(&name).unwrap();
        let held = first.writer().file().try_clone().unwrap();
        drop(first);
        assert_eq!(Capture::create(&name).unwrap().path(), name);
        drop(held);
        std::fs::remove_file(name).unwrap();
    }

    #[test]
    fn a_capture_that_is_opened_again_goes_on() {
        let name = name("again");
        std::fs::write(&name, [1; 9999]).unwrap();
        drop(Capture::create(&name).unwrap());
        let once = std::fs::metadata(&name).unwrap().len();
        assert!(once < 9999, "what another program left is replaced");
        drop(Capture::create(&name).unwrap());
        assert_eq!(std::fs::metadata(&name).unwrap().len(), 2 * once);
        std::fs::remove_file(name).unwrap();
    }

    #[test]
    fn a_file_that_another_program_has_written_over_a_capture_is_replaced() {
        let name = name("over");
        drop(Capture::create(&name).unwrap());
        let begun = std::fs::read(&name).unwrap();
        // The same file, because the inode number of a removed one may belong to another program's
        // file later.
        std::fs::write(&name, [1; 9999]).unwrap();
        drop(Capture::create(&name).unwrap());
        assert_eq!(std::fs::read(&name).unwrap(), begun);
        std::fs::remove_file(name).unwrap();
    }

    #[test]
    fn a_child_leaves_the_capture_to_its_parent() {
        let name = name("forked");
        let capture = Capture::create(&name).unwrap();
        let begun = std::fs::metadata(&name).unwrap().len();
        capture.writer().add_bytes(&[0; 4]);
        let mut capture = Some(capture);

        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let child = process::fork(|| {
            drop(capture.take());
            // If this fails, the parent reads nothing, and the test fails.
            let _ = theirs.write_all(&[1]);
        });
        drop(theirs);
        ours.read_exact(&mut [0]).unwrap();
        let other = Capture::create(&name).unwrap();
        assert_ne!(other.path(), name, "the parent is still writing");
        drop(capture);
        process::end(child);
        let written = std::fs::metadata(&name).unwrap().len() - begun;
        assert_eq!(written, 4, "by the parent alone");
        std::fs::remove_file(other.path()).unwrap();
        std::fs::remove_file(name).unwrap();
    }

    #[test]
    fn a_capture_that_replaces_a_file_names_the_given_program_and_no_process() {
        let name = name("replaced");
        std::fs::write(&name, [1; 9999]).unwrap();
        let written = || {
            drop(Capture::replace(&name, "seed 42").unwrap());
            std::fs::read(&name).unwrap()
        };
        let (first, second) = (written(), written());
        assert_eq!(first, second, "it does not append");
        let contains = |text: &[u8]| first.windows(text.len()).any(|part| part == text);
        assert!(contains(b"seed 42") && !contains(b"process"));
        std::fs::remove_file(name).unwrap();
    }

    #[test]
    fn a_capture_that_has_failed_keeps_nothing_in_memory() {
        let capture = Capture::create("/dev/full").unwrap();
        let address = std::net::IpAddr::from([127, 0, 0, 1]);
        let flow = Flow {
            source: address,
            destination: address,
            source_port: 1,
            destination_port: 2,
        };
        for _ in 0..2 {
            capture.record(&Record {
                time: UNIX_EPOCH,
                direction: Direction::Transmit,
                flow: &flow,
                fragmentation: Fragmentation::NONE,
                traffic_class: 0,
                hop_limit: 64,
                payload: b"payload",
                comment: None,
            });
            capture.flush();
        }
        assert_eq!(capture.writer().waiting(), 0);
    }

    #[test]
    fn one_process_has_a_bounded_number_of_captures_under_one_name() {
        let name = name("many");
        let captures: Vec<_> = (0..=file_per_process::ATTEMPTS)
            .map(|_| Capture::create(&name).unwrap())
            .collect();
        let rejected = Capture::create(&name).unwrap_err();
        assert!(
            matches!(rejected, CaptureError::Create { .. }),
            "{rejected}"
        );
        for capture in captures {
            std::fs::remove_file(capture.path()).unwrap();
        }
    }

    fn record(capture: &Capture, length: usize) {
        let address = std::net::IpAddr::from([127, 0, 0, 1]);
        let flow = Flow {
            source: address,
            destination: address,
            source_port: 1,
            destination_port: 2,
        };
        capture.record(&Record {
            time: UNIX_EPOCH,
            direction: Direction::Transmit,
            flow: &flow,
            fragmentation: Fragmentation::NONE,
            traffic_class: 0,
            hop_limit: 64,
            payload: &vec![7; length],
            comment: None,
        });
        capture.flush();
    }

    #[test]
    fn packets_that_a_stalled_reader_of_a_pipe_misses_are_counted() {
        let pipe = name("stalled");
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        // It is opened for writing, too, because opening an end alone waits for the other one.
        let options = &mut File::options();
        let reader = options.read(true).write(true).open(&pipe).unwrap();
        let capture = Capture::create(&pipe).unwrap();
        // The queue of 16 MiB takes 279 of these, and the pipe one or two.
        for _ in 0..600 {
            record(&capture, 60_000);
        }
        let missed = capture.writer().take_missed();
        assert!((310..=325).contains(&missed), "{missed}");
        drop((reader, capture));
        std::fs::remove_file(pipe).unwrap();
    }

    #[test]
    fn devices_of_one_process_share_a_capture() {
        let name = name("shared");
        let limits = Limits::default();
        let first = Capture::shared(&name, limits).unwrap();
        let second = Capture::shared(&name, limits).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        drop((first, second));
        let again = Capture::shared(&name, limits).unwrap();
        assert_eq!(again.path(), name);
        std::fs::remove_file(name).unwrap();
    }

    #[test]
    fn a_ring_keeps_the_newest_packets_in_two_files() {
        let name = name("ring");
        let limits = Limits {
            ring: Some(20_000),
            snap_length: None,
        };
        let capture = Capture::create_limited(&name, limits).unwrap();
        let earlier = file_per_process::with_suffix(&name, "earlier");
        let sizes = || [&earlier, &name].map(|it| std::fs::metadata(it).map_or(0, |it| it.len()));
        for _ in 0..8 {
            record(&capture, 1000);
        }
        assert_eq!(sizes()[0], 0, "there is room");
        for _ in 0..100 {
            record(&capture, 1000);
            assert!(sizes().iter().sum::<u64>() <= 20_000, "{:?}", sizes());
        }
        assert!(sizes()[0] > 8_000, "half of it is kept: {:?}", sizes());
        for part in [&earlier, &name] {
            let bytes = std::fs::read(part).unwrap();
            assert!(bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]), "it is whole");
        }
        let other = Capture::create(&name).unwrap();
        assert_ne!(other.path(), name, "the name stays locked");
        for file in [&earlier, &name, &other.path().to_owned()] {
            std::fs::remove_file(file).unwrap();
        }
    }

    /// A child that was just started may have the descriptors of its parent.
    #[test]
    fn a_handle_of_the_earlier_part_of_a_ring_does_not_keep_it_locked() {
        let name = name("rotated");
        let limits = Limits {
            ring: Some(20_000),
            snap_length: None,
        };
        let capture = Capture::create_limited(&name, limits).unwrap();
        let held = capture.writer().file().try_clone().unwrap();
        let earlier = file_per_process::with_suffix(&name, "earlier");
        while !earlier.exists() {
            record(&capture, 1000);
        }
        File::open(&earlier).unwrap().try_lock().unwrap();
        File::open(&name).unwrap().try_lock().unwrap_err();
        drop((held, capture));
        for file in [&earlier, &name] {
            std::fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn a_snap_length_keeps_the_beginning_of_packets() {
        let name = name("snap");
        let limits = Limits {
            ring: None,
            snap_length: Some(100),
        };
        let capture = Capture::create_limited(&name, limits).unwrap();
        let before = std::fs::metadata(&name).unwrap().len();
        record(&capture, 4000);
        let written = std::fs::metadata(&name).unwrap().len() - before;
        assert!((100..200).contains(&written), "{written}");
        std::fs::remove_file(name).unwrap();
    }
}

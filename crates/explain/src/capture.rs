//! Capture files: pcapng and classic pcap.
//!
//! A damaged or truncated file is read as far as possible, with a sentence about the rest.

mod blocks;
mod link_header;
mod pcap;
mod pcapng;

use std::io::{self, Cursor, ErrorKind, Read};

use pcap_file::PcapError;

pub(crate) use link_header::{LinkError, network};

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It has no bytes.
    #[error("the file is empty: was the capture stopped before it was written?")]
    Empty,
    /// It is compressed.
    #[error("the file is compressed with gzip: unpack it first, with gunzip")]
    Compressed,
    /// It is not a capture.
    #[error(
        "this is neither pcapng nor pcap: capture with tcpdump -w FILE, Wireshark or ROCI_PCAP"
    )]
    NotACapture,
    /// Its header is invalid.
    #[error("the beginning of the capture is damaged ({0}): capture again")]
    Beginning(String),
    /// The system can't read it.
    #[error("the file can't be read: {0}")]
    Io(#[from] io::Error),
}

/// One entry of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item<'a> {
    /// A section starts, written by this program, if the file names it.
    Section(Option<&'a str>),
    /// A frame.
    Frame(Frame<'a>),
    /// A journal entry, in which our own captures tell what the program did.
    Journal(&'a [u8]),
}

/// One frame of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// In nanoseconds since 1970; none if the block type has no timestamp.
    pub(crate) time: Option<u64>,
    /// The captured bytes.
    pub(crate) bytes: &'a [u8],
    /// Its original length.
    pub(crate) original_length: usize,
    /// Its link type.
    pub(crate) link: u32,
    /// The interface of the file.
    pub(crate) interface: u32,
    /// Its direction, if known.
    pub(crate) direction: Option<Direction>,
    /// Its comment.
    pub(crate) comment: Option<&'a str>,
}

/// The direction of a frame at its interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Direction {
    Inbound,
    Outbound,
}

/// How the file ended.
#[derive(Debug)]
pub(crate) struct Ending {
    /// `pcap` or `pcapng`.
    pub(crate) format: &'static str,
    /// Whether the file ends within a record.
    pub(crate) cut_off: bool,
    /// Why it ended early, as a sentence.
    pub(crate) remark: Option<String>,
}

/// Calls `take` with every entry of a file.
pub(crate) fn read(mut source: impl Read, take: impl FnMut(Item<'_>)) -> Result<Ending, ReadError> {
    let mut magic = Vec::new();
    source.by_ref().take(4).read_to_end(&mut magic)?;
    let whole = Cursor::new(magic.clone()).chain(source);
    match *magic.as_slice() {
        [] => Err(ReadError::Empty),
        [0x1f, 0x8b, ..] => Err(ReadError::Compressed),
        [0x0a, 0x0d, 0x0d, 0x0a] => pcapng::read(whole, take),
        [0xa1, 0xb2, 0xc3, 0xd4]
        | [0xd4, 0xc3, 0xb2, 0xa1]
        | [0xa1, 0xb2, 0x3c, 0x4d]
        | [0x4d, 0x3c, 0xb2, 0xa1] => pcap::read(whole, take),
        _ => Err(ReadError::NotACapture),
    }
}

/// Why the first bytes of a capture can't be read.
fn beginning(error: PcapError) -> ReadError {
    match error {
        PcapError::IoError(error) if error.kind() != ErrorKind::UnexpectedEof => error.into(),
        error => ReadError::Beginning(reason(&error)),
    }
}

/// The sentence about a capture that ends early.
fn ended_early(frames: u64, error: &PcapError) -> String {
    if is_cut_off(error) {
        return format!(
            "The last record of the file is cut off, as when a program ends while it writes: all before it, up to frame {frames}, is read."
        );
    }
    let reason = reason(error);
    format!("The capture can be read up to frame {frames}; after it, {reason}.")
}

/// Whether a file ends within a record.
fn is_cut_off(error: &PcapError) -> bool {
    match error {
        PcapError::IncompleteBuffer => true,
        PcapError::IoError(error) => error.kind() == ErrorKind::UnexpectedEof,
        _ => false,
    }
}

fn reason(error: &PcapError) -> String {
    match error {
        error if is_cut_off(error) => "it is cut off".to_owned(),
        PcapError::IoError(error) => format!("it can't be read ({error})"),
        PcapError::InvalidField(field) => format!("it is damaged ({field})"),
        other => format!("it is damaged ({other})"),
    }
}

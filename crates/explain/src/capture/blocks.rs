//! The blocks of a pcapng file.
//!
//! `pcap_file` parses them, but its own reader gives up a file in which an interface has a time zone (`if_tzone`): it wants one byte for a
//! number of four. So each block is read here, without that option, of which nothing depends.

use std::io::{BufReader, Read};

use pcap_file::pcapng::blocks::section_header::SectionHeaderBlock;
use pcap_file::pcapng::{Block, PcapNgParser};
use pcap_file::{Endianness, PcapError};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;

/// The type, the length, and the length again behind the body. In a section header the first four bytes of the body tell the byte order.
const SMALLEST: usize = 12;

/// Where the options of an interface begin: after the beginning of the block, its link type and its snap length.
const INTERFACE_OPTIONS: usize = 16;

const TIME_ZONE: u16 = 10;
/// A code for local use, which is read over.
const UNKNOWN_OPTION: u16 = 0x8000;

pub(super) struct Blocks<R> {
    source: BufReader<R>,
    parser: PcapNgParser,
    block: Vec<u8>,
}

impl<R: Read> Blocks<R> {
    pub(super) fn new(source: R) -> Result<Self, PcapError> {
        let (mut source, mut block) = (BufReader::new(source), Vec::new());
        read_block(&mut source, &mut block, Endianness::native())?;
        let (_, parser) = PcapNgParser::new(&block)?;
        Ok(Self {
            source,
            parser,
            block,
        })
    }

    /// The section of the last block.
    pub(super) fn section(&self) -> &SectionHeaderBlock<'static> {
        self.parser.section()
    }

    /// The next block; `None` at the end of the file.
    pub(super) fn next_block(&mut self) -> Option<Result<Block<'_>, PcapError>> {
        let endianness = self.section().endianness;
        match read_block(&mut self.source, &mut self.block, endianness) {
            Ok(()) if self.block.is_empty() => None,
            Ok(()) => Some(self.parser.next_block(&self.block).map(|(_, block)| block)),
            Err(error) => Some(Err(error)),
        }
    }
}

/// Reads a whole block, or nothing at the end of the file. What is wrong with it otherwise is left to the parser.
fn read_block(
    source: &mut impl Read,
    block: &mut Vec<u8>,
    endianness: Endianness,
) -> Result<(), PcapError> {
    block.clear();
    append(source, SMALLEST, block)?;
    let Some((beginning, _)) = block.split_first_chunk::<SMALLEST>() else {
        return if block.is_empty() {
            Ok(())
        } else {
            Err(PcapError::IncompleteBuffer)
        };
    };
    let [kind, length, magic] = [0, 4, 8].map(|at| {
        let number = &beginning[at..at + 4];
        number.try_into().expect("four bytes")
    });
    let endianness = match (u32::from_be_bytes(kind), magic) {
        (SECTION_HEADER, [0x1a, 0x2b, 0x3c, 0x4d]) => Endianness::Big,
        (SECTION_HEADER, [0x4d, 0x3c, 0x2b, 0x1a]) => Endianness::Little,
        // The parser says that it is damaged.
        (SECTION_HEADER, _) => return Ok(()),
        _ => endianness,
    };
    let number = |bytes| match endianness {
        Endianness::Big => u32::from_be_bytes(bytes),
        Endianness::Little => u32::from_le_bytes(bytes),
    };
    let (kind, length) = (number(kind), number(length) as usize);
    let rest = length.saturating_sub(SMALLEST);
    append(source, rest, block)?;
    if block.len() < length {
        return Err(PcapError::IncompleteBuffer);
    }
    if kind == INTERFACE_DESCRIPTION {
        hide_time_zone(block, endianness);
    }
    Ok(())
}

/// Reads this many bytes, or up to the end of the file.
fn append(source: &mut impl Read, length: usize, to: &mut Vec<u8>) -> Result<(), PcapError> {
    let read = source.take(length as u64).read_to_end(to);
    read.map(|_| ()).map_err(PcapError::IoError)
}

/// Makes an unknown option of the time zone of an interface.
fn hide_time_zone(block: &mut [u8], endianness: Endianness) {
    let mut options = block.get_mut(INTERFACE_OPTIONS..).unwrap_or_default();
    while let Some(([code @ .., length_0, length_1], rest)) =
        std::mem::take(&mut options).split_first_chunk_mut::<4>()
    {
        let number = |bytes| match endianness {
            Endianness::Big => u16::from_be_bytes(bytes),
            Endianness::Little => u16::from_le_bytes(bytes),
        };
        if number([code[0], code[1]]) == TIME_ZONE {
            let unknown = match endianness {
                Endianness::Big => UNKNOWN_OPTION.to_be_bytes(),
                Endianness::Little => UNKNOWN_OPTION.to_le_bytes(),
            };
            code.copy_from_slice(&unknown);
        }
        let length = usize::from(number([*length_0, *length_1]));
        options = rest
            .get_mut(length.next_multiple_of(4)..)
            .unwrap_or_default();
    }
}

//! Where the words of a statistics page are.
//!
//! The writer makes the [`SEQUENCE`] odd before it changes a page, and even afterwards. A reader that finds the same
//! even number before and after it has read the page has read a consistent one.

use crate::{DEVICE_COUNTERS, OBJECT_KINDS};

/// How many words a page has.
pub const PAGE_WORDS: usize = 2048;

/// How many words precede the records of queue pairs. The file of closed devices has only these.
pub const HEADER_WORDS: usize = 256;

/// How many words the record of a queue pair takes.
pub const RECORD_WORDS: usize = 24;

/// The value of the word [`MAGIC`]. Its last digit is the version of this format.
pub const MAGIC_VALUE: u64 = 0x526f_6369_5374_0005;

/// Identifies a page of this format.
pub const MAGIC: usize = 0;
/// How often the page was changed, times two; odd while it is being changed.
pub const SEQUENCE: usize = 1;
/// The process id of the writer.
pub const PROCESS: usize = 2;
/// When the writer started, in the kernel's ticks since boot.
pub const PROCESS_START: usize = 3;
/// 1 if the counters were added to the file of closed devices.
pub const RETIRED: usize = 4;
/// How many queue pairs the lane has.
pub const QUEUE_PAIRS: usize = 5;
/// How many of them have a record.
pub const RECORDS: usize = 6;
/// When the page was last written, in nanoseconds since the device was opened.
pub const WRITTEN_AT: usize = 7;
/// The name of the device: bytes, with zeros at the end.
pub const NAME: usize = 8;
/// How many words the name takes.
pub const NAME_WORDS: usize = 8;
/// The first GID of the device, in two words.
pub const GID: usize = 16;
/// Which of the open devices of its process it is. The pages of its lanes have the same number.
pub const CONTEXT: usize = 18;
/// Which lane of the open device the page is about. The first is 0.
pub const LANE: usize = 19;
/// The [numbers of objects](crate::ObjectCounts) of the lane.
pub const OBJECTS: usize = 20;
/// The counters of the lane.
pub const COUNTERS: usize = 32;

/// How many queue pairs have a record.
pub const MAX_RECORDS: usize = (PAGE_WORDS - HEADER_WORDS) / RECORD_WORDS;

const _: () = assert!(OBJECTS + OBJECT_KINDS.len() <= COUNTERS);
const _: () = assert!(COUNTERS + DEVICE_COUNTERS.len() <= HEADER_WORDS);

/// The prefix of the names of pages, before `NETWORK.PROCESSES.PID.NUMBER`: the inodes of the network namespace and of
/// the process namespace in hexadecimal digits, the process id, and a number that is unique within the process.
pub const PAGE_PREFIX: &str = "statistics-";

/// The prefix of the names of the files of closed devices, before `NETWORK.GID` in hexadecimal digits.
pub const CLOSED_PREFIX: &str = "closed-";

/// A GID as two words.
#[must_use]
pub fn gid_words(gid: [u8; 16]) -> [u64; 2] {
    let (words, _) = gid.as_chunks::<8>();
    [u64::from_be_bytes(words[0]), u64::from_be_bytes(words[1])]
}

/// A GID from its two words.
#[must_use]
pub fn gid_bytes(words: [u64; 2]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&words[0].to_be_bytes());
    gid[8..].copy_from_slice(&words[1].to_be_bytes());
    gid
}

/// A name as words. A longer name is truncated.
#[must_use]
pub fn name_words(name: &str) -> [u64; NAME_WORDS] {
    let mut bytes = [0; NAME_WORDS * 8];
    let length = name.len().min(bytes.len());
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    let (words, _) = bytes.as_chunks::<8>();
    let mut name = [0; NAME_WORDS];
    for (word, bytes) in name.iter_mut().zip(words) {
        *word = u64::from_ne_bytes(*bytes);
    }
    name
}

/// The bytes of a name, without the zeros at its end.
pub fn name_bytes(words: &[u64]) -> impl Iterator<Item = u8> + '_ {
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
    bytes.take_while(|byte| *byte != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_gids_are_read_as_they_were_written() {
        let gid = *b"0123456789abcdef";
        assert_eq!(gid_bytes(gid_words(gid)), gid);
        let name: Vec<u8> = name_bytes(&name_words("rocinante")).collect();
        assert_eq!(name, b"rocinante");
        let long = "x".repeat(100);
        assert_eq!(name_bytes(&name_words(&long)).count(), 64);
    }
}

//! Adds up the counters that the processes at a device's addresses publish.
//!
//! The pages are in the directory that also has the tree. Nothing is allocated.

use std::ffi::CStr;

use statistics::DeviceCounters;
use statistics::layout::{self, HEADER_WORDS};

use crate::bounded_string::Text;
use crate::system_calls::File;

/// How often a page or the whole sum is read again because it changed meanwhile.
const ATTEMPTS: usize = 16;

/// How many GIDs of a device are known. The first ones of other processes are among them.
const MAX_GIDS: usize = 32;

const WORD: usize = size_of::<u64>();

type Header = [u64; HEADER_WORDS];

/// The GIDs of a device, as words.
struct Gids {
    words: [[u64; 2]; MAX_GIDS],
    count: usize,
}

impl Gids {
    /// Reads the GID table of a port, up to the first empty entry.
    fn read(port: &[u8]) -> Self {
        let mut gids = Self {
            words: [[0; 2]; MAX_GIDS],
            count: 0,
        };
        for index in 0..MAX_GIDS {
            let mut text = [0; 64];
            let path = Text::new().join(port).join(b"/gids/").number(index as u64);
            let length = path
                .as_c_str()
                .and_then(File::open)
                .map_or(0, |file| file.read_at(&mut text, 0));
            match parse_gid(&text[..length]) {
                Some(gid) if gid != [0; 2] => gids.words[index] = gid,
                _ => break,
            }
            gids.count = index + 1;
        }
        gids
    }

    fn all(&self) -> &[[u64; 2]] {
        &self.words[..self.count]
    }
}

/// Parses 32 hexadecimal digits, with colons between them.
fn parse_gid(text: &[u8]) -> Option<[u64; 2]> {
    let mut gid = 0_u128;
    let mut digits = 0;
    for byte in text.iter().filter(|byte| **byte != b':') {
        let Some(digit) = char::from(*byte).to_digit(16) else {
            break;
        };
        gid = gid << 4 | u128::from(digit);
        digits += 1;
    }
    (digits == 32).then_some([(gid >> 64) as u64, gid as u64])
}

/// The counters of a device. `directory` has the pages, and `port` is the directory of the port in the tree.
pub(crate) fn sum(directory: &[u8], port: &[u8]) -> DeviceCounters {
    let gids = Gids::read(port);
    let network = File::open(c"/proc/self/ns/net").map_or(0, |file| file.inode());
    let mut counters = DeviceCounters::default();
    for _ in 0..ATTEMPTS {
        let (before, closed) = sum_of_closed(directory, network, &gids);
        counters = closed;
        add_open(directory, network, &gids, &mut counters);
        // A device was closed meanwhile, and may be counted twice or not at all.
        if sum_of_closed(directory, network, &gids).0 == before {
            break;
        }
    }
    counters
}

/// The counters of closed devices, and the sum of the files' sequence numbers.
fn sum_of_closed(directory: &[u8], network: u64, gids: &Gids) -> (u64, DeviceCounters) {
    let mut counters = DeviceCounters::default();
    let mut sequence = 0_u64;
    for [high, low] in gids.all() {
        let path = Text::new().join(directory).join(b"/");
        let path = path.join(layout::CLOSED_PREFIX.as_bytes());
        let path = path.digits(network, 1).join(b".");
        let path = path.digits(*high, 16).digits(*low, 16);
        if let Some(header) = path.as_c_str().and_then(read_header) {
            counters.add(&header[layout::COUNTERS..]);
            sequence = sequence.wrapping_add(header[layout::SEQUENCE]);
        }
    }
    (sequence, counters)
}

fn add_open(directory: &[u8], network: u64, gids: &Gids, counters: &mut DeviceCounters) {
    let here = Text::new().join(layout::PAGE_PREFIX.as_bytes());
    let here = here.digits(network, 1).join(b".");
    for_each_entry(directory, |name| {
        if !name.starts_with(here.bytes()) {
            return;
        }
        let path = Text::new().join(directory).join(b"/").join(name);
        let Some(header) = path.as_c_str().and_then(read_header) else {
            return;
        };
        let gid = [header[layout::GID], header[layout::GID + 1]];
        if header[layout::RETIRED] == 0 && gids.all().contains(&gid) {
            counters.add(&header[layout::COUNTERS..]);
        }
    });
}

/// Where the length and the name are in an entry of a directory, as `getdents64` returns it.
const ENTRY_LENGTH: usize = 16;
const ENTRY_NAME: usize = 19;

fn for_each_entry(directory: &[u8], mut take: impl FnMut(&[u8])) {
    let path = Text::new().join(directory);
    let Some(opened) = path.as_c_str().and_then(File::open) else {
        return;
    };
    let mut buffer = [0; 4096];
    loop {
        let length = opened.read_entries(&mut buffer);
        let mut rest = &buffer[..length];
        if rest.is_empty() {
            return;
        }
        while let Some(size) = rest.get(ENTRY_LENGTH..ENTRY_LENGTH + 2) {
            let size = usize::from(u16::from_ne_bytes([size[0], size[1]]));
            let Some((entry, others)) = rest.split_at_checked(size.max(ENTRY_NAME)) else {
                break;
            };
            let name = &entry[ENTRY_NAME..];
            let end = name.iter().position(|byte| *byte == 0);
            take(&name[..end.unwrap_or(name.len())]);
            rest = others;
        }
    }
}

/// The beginning of a page, as it was at one time.
fn read_header(path: &CStr) -> Option<Header> {
    let file = File::open(path)?;
    let mut header = [0; HEADER_WORDS];
    for _ in 0..ATTEMPTS {
        let before = read_word(&file, layout::SEQUENCE);
        let mut bytes = [0; HEADER_WORDS * WORD];
        if file.read_at(&mut bytes, 0) < bytes.len() {
            return None;
        }
        let (words, _) = bytes.as_chunks::<WORD>();
        for (place, word) in header.iter_mut().zip(words) {
            *place = u64::from_ne_bytes(*word);
        }
        if before.is_multiple_of(2) && read_word(&file, layout::SEQUENCE) == before {
            break;
        }
    }
    (header[layout::MAGIC] == layout::MAGIC_VALUE).then_some(header)
}

fn read_word(file: &File, word: usize) -> u64 {
    let mut bytes = [0; WORD];
    file.read_at(&mut bytes, word * WORD);
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_is_parsed_as_the_file_has_it() {
        let text = b"fe80:0000:0000:0000:0000:0000:0000:0001\n";
        assert_eq!(parse_gid(text), Some([0xfe80 << 48, 1]));
        assert_eq!(parse_gid(b"fe80:1\n"), None);
        assert_eq!(parse_gid(b""), None);
    }

    #[test]
    fn every_entry_of_a_directory_is_passed_on() {
        let path = std::env::temp_dir().join(format!("roci-entries-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        for number in 0..300 {
            std::fs::write(path.join(format!("a-long-name-{number}")), "").expect("a file");
        }
        let mut count = 0;
        for_each_entry(path.as_os_str().as_encoded_bytes(), |name| {
            count += usize::from(name.starts_with(b"a-long-name-"));
        });
        std::fs::remove_dir_all(path).expect("removed");
        assert_eq!(count, 300);
    }

    /// The program that reads a counter would wait for ever.
    #[test]
    fn a_pipe_in_place_of_a_page_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("roci-pipe-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success());
        let name = Text::new().join(path.as_os_str().as_encoded_bytes());
        assert!(read_header(name.as_c_str().expect("a path")).is_none());
        std::fs::remove_file(path).expect("removed");
    }
}

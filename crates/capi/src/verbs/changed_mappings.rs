//! Whether a program has changed the mapping of memory that it registered. A NIC pins the pages, so it would not notice.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use engine::MappingChange;

use super::mapped_pages;

/// Bits of an entry in `/proc/self/pagemap`: the page is present, or in the swap.
const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;

/// How many entries are read at a time.
const ENTRIES: usize = 512;

/// A line of `/proc/self/maps`.
struct Mapping {
    range: Range<usize>,
    is_readable: bool,
    is_writable: bool,
    is_private_anonymous: bool,
}

/// The first address at which registered memory is not mapped as it was, and why. Registration has faulted all pages in.
pub(super) fn changed(
    address: usize,
    length: usize,
    writable: bool,
) -> Option<(u64, MappingChange)> {
    let page = mapped_pages::page_size();
    let end = address
        .checked_add(length)?
        .checked_next_multiple_of(page)?;
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let maps = String::from_utf8_lossy(&maps);
    let mut next = address & !(page - 1);
    let at = |found: usize, change| Some((found.max(address) as u64, change));
    for mapping in maps.lines().filter_map(Mapping::parse) {
        if next >= end {
            break;
        }
        if mapping.range.end <= next {
            continue;
        }
        if mapping.range.start > next || !mapping.is_readable {
            return at(next, MappingChange::Unmapped);
        }
        if writable && !mapping.is_writable {
            return at(next, MappingChange::ReadOnly);
        }
        let part = next..mapping.range.end.min(end);
        if mapping.is_private_anonymous
            && let Some(absent) = first_absent(&part)
        {
            return at(absent, MappingChange::Replaced);
        }
        next = part.end;
    }
    if next < end {
        return at(next, MappingChange::Unmapped);
    }
    None
}

/// The first page that is neither present nor swapped: the program gave it back. Pages of files may be dropped at any
/// time, anonymous ones may not.
fn first_absent(range: &Range<usize>) -> Option<usize> {
    if !mapped_pages::can_populate() {
        return None;
    }
    let page = mapped_pages::page_size();
    let pagemap = File::open("/proc/self/pagemap").ok()?;
    let mut entries = [0; ENTRIES * size_of::<u64>()];
    let mut from = range.start;
    while from < range.end {
        let count = ENTRIES.min((range.end - from) / page);
        let entries = &mut entries[..count * size_of::<u64>()];
        let offset = (from / page * size_of::<u64>()) as u64;
        pagemap.read_exact_at(entries, offset).ok()?;
        let (words, _) = entries.as_chunks();
        let absent = words
            .iter()
            .position(|entry| u64::from_ne_bytes(*entry) & PRESENT_OR_SWAPPED == 0);
        if let Some(index) = absent {
            return Some(from + index * page);
        }
        from += count * page;
    }
    None
}

impl Mapping {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        let range = address(start)?..address(end)?;
        let [read, write, _, sharing] = words.next()?.as_bytes().first_chunk().copied()?;
        let (_offset, _device, inode) = (words.next()?, words.next()?, words.next()?);
        Some(Self {
            range,
            is_readable: read == b'r',
            is_writable: write == b'w',
            is_private_anonymous: sharing == b'p' && inode == "0",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three pages of new memory, all of them present.
    fn three_pages() -> (*mut libc::c_void, usize, usize) {
        let page = mapped_pages::page_size();
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: maps new memory.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), 3 * page, protection, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        // SAFETY: the memory was just mapped.
        unsafe { memory.cast::<u8>().write_bytes(1, 3 * page) };
        (memory, page, 3 * page)
    }

    #[test]
    fn memory_that_stays_as_it_is_has_not_changed() {
        let (memory, _, length) = three_pages();
        assert_eq!(changed(memory.addr(), length, true), None);
        assert_eq!(changed(memory.addr() + 100, length - 200, true), None);
    }

    type Change = fn(*mut libc::c_void, usize) -> i32;

    fn unmap(page: *mut libc::c_void, size: usize) -> i32 {
        // SAFETY: the test uses this page no more.
        unsafe { libc::munmap(page, size) }
    }

    fn forbid_access(page: *mut libc::c_void, size: usize) -> i32 {
        // SAFETY: the test uses this page no more.
        unsafe { libc::mprotect(page, size, libc::PROT_NONE) }
    }

    fn forbid_writes(page: *mut libc::c_void, size: usize) -> i32 {
        // SAFETY: the test uses this page no more.
        unsafe { libc::mprotect(page, size, libc::PROT_READ) }
    }

    fn give_back(page: *mut libc::c_void, size: usize) -> i32 {
        // SAFETY: the test uses this page no more.
        unsafe { libc::madvise(page, size, libc::MADV_DONTNEED) }
    }

    #[test]
    fn each_change_of_the_middle_page_is_found() {
        let changes: [(Change, MappingChange); 4] = [
            (unmap, MappingChange::Unmapped),
            (forbid_access, MappingChange::Unmapped),
            (forbid_writes, MappingChange::ReadOnly),
            (give_back, MappingChange::Replaced),
        ];
        for (change, expected) in changes {
            let (memory, page, length) = three_pages();
            assert_eq!(change(memory.wrapping_byte_add(page), page), 0);
            let at = (memory.addr() + page) as u64;
            let found = changed(memory.addr(), length, true);
            assert_eq!(found, Some((at, expected)));
            let without_writes = changed(memory.addr(), length, false);
            let is_read_only = expected == MappingChange::ReadOnly;
            assert_eq!(without_writes.is_none(), is_read_only);
        }
    }
}

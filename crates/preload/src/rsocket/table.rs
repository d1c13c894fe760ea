//! Which descriptors are rsockets.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU16, Ordering};

/// Descriptors from this number on stay the kernel's. It is far above the usual limit of open files.
const MAX_DESCRIPTOR: usize = 1 << 16;

/// What a descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The kernel's.
    Plain,
    /// The rsocket of this number.
    Socket(c_int),
    /// A set of `repoll_create`.
    Set,
}

/// [`Entry`] as a number: 0, the number of the rsocket plus 1, or [`SET`].
static ENTRIES: [AtomicI32; MAX_DESCRIPTOR] = [const { AtomicI32::new(0) }; _];
const SET: i32 = -1;

/// How many more descriptors each rsocket has than one.
static COPIES: [AtomicU16; MAX_DESCRIPTOR] = [const { AtomicU16::new(0) }; _];

/// The process whose entries these are. A child has its own copy of them after `fork` and shares them after
/// `vfork`, but the rsockets are its parent's.
static OWNER: AtomicI32 = AtomicI32::new(0);

pub(crate) fn entry(descriptor: c_int) -> Entry {
    let Some(entry) = place(descriptor) else {
        return Entry::Plain;
    };
    match entry.load(Ordering::Acquire) {
        0 => Entry::Plain,
        _ if !is_ours() => Entry::Plain,
        number => decoded(number),
    }
}

/// The rsocket of a descriptor.
pub(crate) fn socket(descriptor: c_int) -> Option<c_int> {
    match entry(descriptor) {
        Entry::Socket(number) => Some(number),
        Entry::Plain | Entry::Set => None,
    }
}

/// Enters a descriptor. Returns false if its number is too high.
pub(super) fn insert(descriptor: c_int, entry: Entry) -> bool {
    let Some(place) = place(descriptor) else {
        return false;
    };
    let number = match entry {
        Entry::Plain => 0,
        Entry::Set => SET,
        Entry::Socket(number) if (number as usize) < MAX_DESCRIPTOR => number + 1,
        Entry::Socket(_) => return false,
    };
    if !is_ours() {
        forget_all();
        OWNER.store(this_process(), Ordering::Relaxed);
    }
    place.store(number, Ordering::Release);
    true
}

/// Forgets the sockets of the parent.
fn forget_all() {
    for entry in &ENTRIES {
        // Reads first: a page that is not written needs no memory.
        if let Entry::Socket(number) = decoded(entry.load(Ordering::Relaxed)) {
            COPIES[number as usize].store(0, Ordering::Relaxed);
        }
        if entry.load(Ordering::Relaxed) != 0 {
            entry.store(0, Ordering::Relaxed);
        }
    }
}

/// The descriptors of all sets.
#[cfg_attr(test, expect(dead_code, reason = "its callers are left out of tests"))]
pub(super) fn sets() -> impl Iterator<Item = c_int> {
    all().filter_map(|(descriptor, entry)| (entry == Entry::Set).then_some(descriptor))
}

/// The numbers of all rsockets.
#[cfg_attr(test, expect(dead_code, reason = "its callers are left out of tests"))]
pub(super) fn sockets() -> impl Iterator<Item = c_int> {
    all().filter_map(|(_, entry)| match entry {
        Entry::Socket(number) => Some(number),
        Entry::Plain | Entry::Set => None,
    })
}

fn all() -> impl Iterator<Item = (c_int, Entry)> {
    let entries = ENTRIES.iter().enumerate();
    entries.map(|(descriptor, entry)| {
        let entry = decoded(entry.load(Ordering::Acquire));
        (descriptor as c_int, entry)
    })
}

/// Enters another descriptor of the same thing.
pub(super) fn copy(from: c_int, to: c_int) {
    let entry = entry(from);
    if insert(to, entry)
        && let Entry::Socket(number) = entry
    {
        COPIES[number as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Removes a descriptor. Returns what must be closed: nothing for the kernel's, and for an rsocket that has other
/// descriptors.
pub(super) fn take(descriptor: c_int) -> Entry {
    if entry(descriptor) == Entry::Plain {
        return Entry::Plain;
    }
    let taken = place(descriptor).map_or(0, |it| it.swap(0, Ordering::AcqRel));
    let entry = decoded(taken);
    if let Entry::Socket(number) = entry {
        let one_less = |count: u16| count.checked_sub(1);
        let copies = &COPIES[number as usize];
        let had_copies = copies.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if had_copies.is_ok() {
            return Entry::Plain;
        }
    }
    entry
}

fn decoded(number: i32) -> Entry {
    match number {
        0 => Entry::Plain,
        SET => Entry::Set,
        number => Entry::Socket(number - 1),
    }
}

fn place(descriptor: c_int) -> Option<&'static AtomicI32> {
    ENTRIES.get(usize::try_from(descriptor).ok()?)
}

fn is_ours() -> bool {
    OWNER.load(Ordering::Relaxed) == this_process()
}

fn this_process() -> c_int {
    // SAFETY: takes no arguments and can't fail.
    unsafe { libc::getpid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Numbers that no other test uses.
    const FIRST: c_int = 60_001;
    const SECOND: c_int = 60_002;

    #[test]
    fn a_socket_is_closed_with_its_last_descriptor() {
        assert_eq!(entry(FIRST), Entry::Plain);
        assert!(insert(FIRST, Entry::Socket(7)));
        copy(FIRST, SECOND);
        assert_eq!(socket(SECOND), Some(7));
        assert_eq!(take(FIRST), Entry::Plain);
        assert_eq!(socket(FIRST), None);
        assert_eq!(take(SECOND), Entry::Socket(7));
        assert_eq!(take(SECOND), Entry::Plain);
    }

    #[test]
    fn numbers_out_of_range_are_the_kernels() {
        assert!(!insert(-1, Entry::Set));
        assert!(!insert(1 << 16, Entry::Set));
        assert_eq!(entry(-1), Entry::Plain);
        assert_eq!(take(1 << 16), Entry::Plain);
    }
}

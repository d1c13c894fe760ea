//! Replaces descriptors in the child of a fork.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::process::{replace_with_end, replace_with_null};

/// The maximum number of guarded descriptors. Further descriptors stay open in children.
const SLOTS: usize = 4096;

const FREE: RawFd = -1;

/// What a forked child gets instead of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Substitute {
    /// `/dev/null`.
    Null,
    /// The end of a stream: whoever waits for it is woken, and finds that it is closed.
    End,
}

impl Substitute {
    /// The entry of the table. No descriptor is as large as 2^30.
    fn of(self, fd: RawFd) -> i32 {
        fd << 1 | i32::from(self == Self::End)
    }

    fn from_entry(entry: i32) -> (RawFd, Self) {
        let substitute = if entry & 1 == 1 {
            Self::End
        } else {
            Self::Null
        };
        (entry >> 1, substitute)
    }
}

static DESCRIPTORS: [AtomicI32; SLOTS] = [const { AtomicI32::new(FREE) }; SLOTS];
static FORKS: AtomicU32 = AtomicU32::new(0);
static HANDLER: Once = Once::new();

/// How many forks lie between the first call, or the first guarded descriptor, and this process.
pub(crate) fn forks() -> u32 {
    watch();
    FORKS.load(Ordering::Acquire)
}

/// Installs the handler that runs in the child of every fork from now on.
fn watch() {
    HANDLER.call_once(|| {
        // SAFETY: the handler is a function without arguments that lives as long as the program,
        // and does only what is allowed in the child of a program with threads.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// From now on a forked child gets the substitute instead of this descriptor. Returns the slot.
pub(crate) fn keep_from_children(fd: BorrowedFd<'_>, substitute: Substitute) -> Option<usize> {
    watch();
    let entry = substitute.of(fd.as_raw_fd());
    DESCRIPTORS.iter().position(|slot| {
        slot.compare_exchange(FREE, entry, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    })
}

/// Ends the effect of `keep_from_children`.
pub(crate) fn forget(slot: usize) {
    DESCRIPTORS[slot].store(FREE, Ordering::Release);
}

/// Allocates nothing and takes no lock: another thread may have held any lock at the fork.
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::AcqRel);
    for slot in &DESCRIPTORS {
        let entry = slot.load(Ordering::Acquire);
        if entry == FREE {
            continue;
        }
        let (fd, substitute) = Substitute::from_entry(entry);
        // SAFETY: the owner of the slot keeps the descriptor open until it clears the slot, and
        // no other thread runs in this child.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let _ = match substitute {
            Substitute::Null => replace_with_null(fd),
            // Without descriptors for a pipe there still is one for `/dev/null`, perhaps.
            Substitute::End => replace_with_end(fd).or_else(|_| replace_with_null(fd)),
        };
    }
}

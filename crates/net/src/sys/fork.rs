//! Replaces descriptors in the child of a fork.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::process::replace_with_null;

/// The maximum number of guarded descriptors. Further descriptors stay open in children.
const SLOTS: usize = 4096;

const FREE: RawFd = -1;

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

/// From now on a forked child gets `/dev/null` instead of this descriptor. Returns the slot.
pub(crate) fn keep_from_children(fd: BorrowedFd<'_>) -> Option<usize> {
    watch();
    DESCRIPTORS.iter().position(|slot| {
        slot.compare_exchange(FREE, fd.as_raw_fd(), Ordering::AcqRel, Ordering::Relaxed)
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
        let fd = slot.load(Ordering::Acquire);
        if fd != FREE {
            // SAFETY: the owner of the slot keeps the descriptor open until it clears the slot, and
            // no other thread runs in this child.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            let _ = replace_with_null(fd);
        }
    }
}

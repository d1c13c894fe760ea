//! Gives the memory of a part of a file back.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::check;

/// Makes the first bytes of a file a hole: it keeps its length, and they read as zeros.
pub(crate) fn discard_start(file: &File, length: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let length = i64::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: takes no pointers, and the descriptor is open as long as `file` is borrowed.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, length) }).map(drop)
}

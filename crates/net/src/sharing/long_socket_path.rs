//! Unix sockets in directories with long paths.
//!
//! The address of a Unix socket has room for a path of 107 bytes. A socket with a longer path is
//! reached through the descriptor of its directory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The longest path, in bytes, that fits into a `sockaddr_un` together with its final zero.
const LONGEST: usize = 107;

/// Where the kernel shows the descriptors of a process.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Whether longer paths can be used: this needs `/proc`.
pub(super) fn long_paths_work() -> bool {
    Path::new(DESCRIPTORS).is_dir()
}

/// Calls `call` with a path to the same file that is short enough.
pub(super) fn with_short_path<T>(
    path: &Path,
    call: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return call(path);
    };
    if path.as_os_str().len() <= LONGEST {
        return call(path);
    }
    let directory = open_directory(directory)?;
    let short = Path::new(DESCRIPTORS).join(directory.as_raw_fd().to_string());
    call(&short.join(name))
}

fn open_directory(directory: &Path) -> io::Result<File> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(directory)
}

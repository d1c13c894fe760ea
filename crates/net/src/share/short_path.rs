//! Unix sockets in folders with long names.
//!
//! The address of a Unix socket has room for 107 bytes of path. A longer one is reached through the
//! folder's descriptor.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// No longer path fits into a `sockaddr_un`, which ends with a zero.
const LONGEST: usize = 107;

/// Where the kernel shows the descriptors of a process.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Whether longer paths can be used here.
pub(super) fn long_paths_work() -> bool {
    Path::new(DESCRIPTORS).is_dir()
}

/// Calls with a path to the same file that fits.
pub(super) fn with_short_path<T>(
    path: &Path,
    call: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return call(path);
    };
    if path.as_os_str().len() <= LONGEST {
        return call(path);
    }
    let folder = open_folder(folder)?;
    let short = Path::new(DESCRIPTORS).join(folder.as_raw_fd().to_string());
    call(&short.join(name))
}

fn open_folder(folder: &Path) -> io::Result<File> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(folder)
}

//! Files of the user under names that other programs of the user know.
//!
//! Such a program may have put a pipe or a link there. An ordinary `open` waits for the other end of a pipe, and writes
//! to the target of a link.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::sys::file_size;

/// Opens a file that only this user may read, and neither waits for a pipe nor follows a link.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .mode(0o600)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
    options
}

/// Replaces a file. A reader sees the old file or the new one, never a part of it.
pub(crate) fn replace(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let (draft, mut file) = create_draft(path)?;
    let replaced =
        file_size::without_signal(|| fill(&mut file)).and_then(|()| fs::rename(&draft, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&draft);
    }
    replaced
}

/// Creates a file beside another one, under a name that nobody can know before.
pub(crate) fn create_draft(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut draft = OsString::from(path);
    draft.push(format!(".{:016x}", getrandom::u64()?));
    let file = options().write(true).create_new(true).open(&draft)?;
    Ok((draft.into(), file))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let name = format!("roci-private-file-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn a_file_is_replaced_whole_and_no_draft_is_left() {
        let directory = scratch("replace");
        let path = directory.join("file");
        replace(&path, |file| file.write_all(b"old")).unwrap();
        let failed = replace(&path, |file| {
            file.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        replace(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_link_is_not_followed() {
        let directory = scratch("link");
        let (target, link) = (directory.join("target"), directory.join("link"));
        fs::write(&target, "untouched").unwrap();
        symlink(&target, &link).unwrap();
        let opened = options()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&link);
        assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::ELOOP));
        replace(&link, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"untouched");
        assert_eq!(fs::read(&link).unwrap(), b"new");
        fs::remove_dir_all(directory).unwrap();
    }
}

//! Files that the environment or the user names.
//!
//! Such a name may be that of a pipe, for whose other end an ordinary `open` waits, or of a device whose content never ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::sys::process::make_blocking;

/// How large a file may be that is read whole.
const MAX_TEXT: u64 = 64 << 20;

/// Opens a file that is neither a pipe nor a device.
pub(crate) fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let kind = io::ErrorKind::InvalidInput;
    Err(io::Error::new(kind, "it is not a regular file"))
}

/// Reads a text.
pub fn read_text(path: &Path) -> io::Result<String> {
    let file = open_regular(OpenOptions::new().read(true), path)?;
    read_limited(&file, MAX_TEXT)
}

fn read_limited(file: &File, most: u64) -> io::Result<String> {
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// Opens a file to append to. It may be a terminal, or a pipe that already has a reader.
pub fn open_to_append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .create(true)
        .append(true)
        .custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    make_blocking(file.as_fd())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let name = format!("roci-named-file-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    fn kind_of<T>(result: io::Result<T>) -> io::ErrorKind {
        result.map(drop).unwrap_err().kind()
    }

    #[test]
    fn a_pipe_is_not_waited_for_and_a_device_is_not_read() {
        let directory = scratch("pipe");
        let pipe = directory.join("pipe");
        assert!(
            Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        let endless = Path::new("/dev/zero");
        for path in [pipe.as_path(), endless, &directory] {
            assert_eq!(kind_of(read_text(path)), io::ErrorKind::InvalidInput);
        }
        let without_reader = open_to_append(&pipe).unwrap_err();
        assert_eq!(without_reader.raw_os_error(), Some(libc::ENXIO));
        assert!(open_to_append(Path::new("/dev/null")).is_ok());
        let absent = directory.join("absent");
        assert_eq!(kind_of(read_text(&absent)), io::ErrorKind::NotFound);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_text_is_read_up_to_a_limit() {
        let directory = scratch("text");
        let path = directory.join("text");
        fs::write(&path, "four").unwrap();
        assert_eq!(read_text(&path).unwrap(), "four");
        let read = |most| read_limited(&File::open(&path).unwrap(), most);
        assert_eq!(read(4).unwrap(), "four");
        assert_eq!(kind_of(read(3)), io::ErrorKind::FileTooLarge);
        fs::remove_dir_all(directory).unwrap();
    }
}

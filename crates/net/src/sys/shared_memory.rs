//! Memory that two processes share.
//!
//! The other process may write to it at any time, so its bytes and words are accessed as atomics only.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

use wire::shared_bytes;

use super::{check, file_size};

/// The name of rings, with the version of their format: a process opens no ring of another version.
const NAME: &CStr = c"roci-ring-2";

/// Where the descriptor of a ring leads, as `/proc` shows it.
pub(crate) const RING_LINK: &str = "/memfd:roci-ring-2 (deleted)";

/// With these seals, no process can shrink the memory while others use it.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A mapping that exists until it is dropped.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and all access goes by atomics.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Creates memory filled with zeros, and the file from which other processes can map it.
    pub(crate) fn create(length: usize) -> io::Result<(Self, File)> {
        let file = memory_file(length, SEALS)?;
        Ok((Self::map(&file, length)?, file))
    }

    /// Creates a file of memory with another name.
    #[cfg(test)]
    pub(crate) fn create_named(name: &CStr, length: usize) -> io::Result<File> {
        named_file(name, length, SEALS)
    }

    /// Maps memory that another process created, if it is sealed and has this length.
    pub(crate) fn open(file: &File, length: usize) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        check(seals)?;
        let sealed = seals & libc::F_SEAL_SHRINK != 0;
        if !sealed || file.metadata()?.len() != length as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(file, length)
    }

    /// Maps a file of this length. The caller makes sure that no process shortens it: a file in memory is sealed
    /// against that, and one in the runtime directory belongs to this user alone.
    pub(crate) fn map(file: &File, length: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at a place that the kernel chooses touches no other memory. If the file
        // were shortened, an access would end the process, and would not touch other memory.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("a mapping is never at address zero");
        Ok(Self { start, length })
    }

    /// The word at an offset that is a multiple of eight.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && self.contains(offset, 8));
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned, as mappings begin
        // at a page. Both processes touch words by atomics only.
        unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }
    }

    /// Copies bytes out of the mapping.
    #[inline]
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        shared_bytes::load(self.bytes(offset, into.len()), into);
    }

    /// Copies bytes into the mapping.
    #[inline]
    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        shared_bytes::store(self.bytes(offset, from.len()), from);
    }

    /// Copies words to offsets in bytes, one part after the other. Fails if the file was shortened: the kernel copies, and
    /// where it finds no memory, an access of this process would end it.
    pub(crate) fn write_words<const N: usize>(
        &self,
        parts: [(usize, &[u64]); N],
    ) -> io::Result<()> {
        let length = |words: &[u64]| size_of_val(words);
        assert!(
            parts
                .iter()
                .all(|(at, from)| self.contains(*at, length(from)))
        );
        let ours = parts.map(|(_, from)| libc::iovec {
            iov_base: from.as_ptr().cast_mut().cast(),
            iov_len: length(from),
        });
        let theirs = parts.map(|(at, from)| libc::iovec {
            iov_base: self.at(at).cast(),
            iov_len: length(from),
        });
        let process = std::process::id() as libc::pid_t;
        // SAFETY: the kernel reads from live words, and writes to the mapping inside of its bounds, where there are no
        // references to bytes; words are accessed as atomics.
        let written = check(unsafe {
            libc::syscall(
                libc::SYS_process_vm_writev,
                process,
                ours.as_ptr(),
                N,
                theirs.as_ptr(),
                N,
                0_usize,
            )
        });
        let wanted = parts.iter().map(|(_, from)| length(from)).sum::<usize>();
        match written {
            Ok(written) if written == wanted => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if super::is_forbidden(&error) => {
                for (at, from) in parts {
                    for (index, word) in from.iter().enumerate() {
                        self.word(at + index * 8).store(*word, Ordering::Relaxed);
                    }
                    fence(Ordering::Release);
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Bytes of the mapping, which the other process may change at any time.
    #[inline]
    pub(crate) fn bytes(&self, offset: usize, length: usize) -> &[AtomicU8] {
        assert!(self.contains(offset, length));
        // SAFETY: inside the mapping by the assertion, and the mapping lives as long as `self`. Atomics may be
        // changed by others.
        unsafe { slice::from_raw_parts(self.at(offset).cast(), length) }
    }

    fn contains(&self, offset: usize, length: usize) -> bool {
        offset <= self.length && length <= self.length - offset
    }

    fn at(&self, offset: usize) -> *mut u8 {
        // Wrapping: the callers have checked that the offset is inside.
        self.start.as_ptr().wrapping_add(offset)
    }
}

/// Whether shared memory can be created at all.
pub(crate) fn probe() -> io::Result<()> {
    memory_file(0, 0).map(drop)
}

/// A file in memory with these seals.
fn memory_file(length: usize, seals: libc::c_int) -> io::Result<File> {
    named_file(NAME, length, seals)
}

fn named_file(name: &CStr, length: usize, seals: libc::c_int) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends in zero and lives.
    let result = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    check(result)?;
    // SAFETY: the kernel just returned this descriptor, and it has no other owner.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(result) });
    file_size::without_signal(|| file.set_len(length as u64))?;
    // SAFETY: takes no pointers.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    check(result)?;
    Ok(file)
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and it is not reachable any more: references from `word`
        // end before this.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_through_one_mapping_is_read_through_another() {
        let (ours, file) = SharedMemory::create(8192).unwrap();
        let theirs = SharedMemory::open(&file, 8192).unwrap();
        ours.write(4090, b"across");
        ours.word(64).store(7, Ordering::Release);
        let mut read = [0; 6];
        theirs.read(4090, &mut read);
        assert_eq!(&read, b"across");
        assert_eq!(theirs.word(64).load(Ordering::Acquire), 7);
    }

    #[test]
    fn memory_that_could_shrink_is_rejected() {
        let (_ours, file) = SharedMemory::create(4096).unwrap();
        assert!(file.set_len(100).is_err(), "it is sealed");
        assert!(SharedMemory::open(&file, 8192).is_err(), "another length");
        let path = std::env::temp_dir().join(format!("roci-unsealed-{}", std::process::id()));
        let ordinary = File::create_new(&path).unwrap();
        ordinary.set_len(4096).unwrap();
        assert!(SharedMemory::open(&ordinary, 4096).is_err(), "not sealed");
        std::fs::remove_file(path).unwrap();
        let open = memory_file(4096, libc::F_SEAL_GROW).unwrap();
        assert!(SharedMemory::open(&open, 4096).is_err(), "it could shrink");
        let sealed = memory_file(4096, libc::F_SEAL_SHRINK).unwrap();
        SharedMemory::open(&sealed, 4096).unwrap();
    }

    #[test]
    fn words_reach_a_file_until_it_is_shortened() {
        let path = std::env::temp_dir().join(format!("roci-shortened-{}", std::process::id()));
        let file = File::create_new(&path).unwrap();
        file.set_len(8192).unwrap();
        drop(file);
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).open(&path).unwrap();
        let memory = SharedMemory::map(&file, 8192).unwrap();
        memory.write_words([(8184, &[7]), (0, &[1, 2])]).unwrap();
        let read = |offset| memory.word(offset).load(Ordering::Relaxed);
        assert_eq!([0, 8, 16, 8184].map(read), [1, 2, 0, 7]);
        file.set_len(0).unwrap();
        memory
            .write_words([(8184, &[7]), (0, &[1, 2])])
            .unwrap_err();
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    #[should_panic]
    fn a_write_beyond_the_end_panics() {
        let (ours, _file) = SharedMemory::create(4096).unwrap();
        ours.write(4090, b"too long");
    }
}

//! System calls without the C library's functions, some of which this library replaces.
//!
//! Nothing here allocates, and the program does not see a changed `errno`.

use std::ffi::{CStr, c_int, c_long};

/// An open file, closed when it is dropped.
pub(crate) struct File(c_int);

impl File {
    /// Opens a file for reading. If the user has put a pipe in its place, it is empty.
    pub(crate) fn open(path: &CStr) -> Option<Self> {
        // SAFETY: a text with a zero at its end.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_openat,
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK,
            )
        };
        Self::new(opened)
    }

    /// Creates a file in memory.
    pub(crate) fn in_memory(name: &CStr) -> Option<Self> {
        // SAFETY: a text with a zero at its end.
        let created = unsafe {
            libc::syscall(
                libc::SYS_memfd_create,
                name.as_ptr(),
                libc::MFD_CLOEXEC as c_int,
            )
        };
        Self::new(created)
    }

    /// Creates a file without a name, where files in memory are forbidden.
    pub(crate) fn unnamed_in(directory: &CStr) -> Option<Self> {
        let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
        // SAFETY: a text with a zero at its end.
        let created = unsafe {
            libc::syscall(
                libc::SYS_openat,
                libc::AT_FDCWD,
                directory.as_ptr(),
                flags,
                0o600,
            )
        };
        Self::new(created)
    }

    fn new(opened: c_long) -> Option<Self> {
        (opened >= 0).then_some(Self(opened as c_int))
    }

    /// Reads at an offset, and returns how many bytes.
    pub(crate) fn read_at(&self, into: &mut [u8], offset: usize) -> usize {
        // SAFETY: a live buffer with its length.
        let read = unsafe {
            libc::syscall(
                libc::SYS_pread64,
                self.0,
                into.as_mut_ptr(),
                into.len(),
                offset,
            )
        };
        usize::try_from(read).unwrap_or(0)
    }

    /// Reads entries of a directory, and returns how many bytes they take.
    pub(crate) fn read_entries(&self, into: &mut [u8]) -> usize {
        // SAFETY: a live buffer with its length.
        let read =
            unsafe { libc::syscall(libc::SYS_getdents64, self.0, into.as_mut_ptr(), into.len()) };
        usize::try_from(read).unwrap_or(0)
    }

    /// The number of the inode.
    pub(crate) fn inode(&self) -> u64 {
        // SAFETY: numbers, for which zero is a value.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a live structure for the result.
        let known = unsafe { libc::fstat(self.0, &raw mut found) } == 0;
        if known { found.st_ino } else { 0 }
    }

    /// Moves it to another descriptor, whose file is closed, and which keeps its flag for `exec`.
    pub(crate) fn move_to(self, descriptor: c_int) {
        // SAFETY: takes no pointers.
        let flags = unsafe { libc::syscall(libc::SYS_fcntl, descriptor, libc::F_GETFD) };
        let inherited = flags & c_long::from(libc::FD_CLOEXEC) == 0;
        let flags = if inherited { 0 } else { libc::O_CLOEXEC };
        // SAFETY: takes no pointers.
        unsafe { libc::syscall(libc::SYS_dup3, self.0, descriptor, flags) };
    }

    /// The descriptor.
    pub(crate) fn descriptor(&self) -> c_int {
        self.0
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: it is open and has no other owner.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// Replaces the content of a file.
pub(crate) fn replace_content(descriptor: c_int, text: &[u8]) {
    // SAFETY: a live buffer with its length.
    unsafe {
        libc::syscall(
            libc::SYS_pwrite64,
            descriptor,
            text.as_ptr(),
            text.len(),
            0_usize,
        )
    };
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_ftruncate, descriptor, text.len()) };
}

/// Where the next read of a descriptor begins.
pub(crate) fn position(descriptor: c_int) -> Option<usize> {
    // SAFETY: takes no pointers.
    let position = unsafe { libc::syscall(libc::SYS_lseek, descriptor, 0_usize, libc::SEEK_CUR) };
    usize::try_from(position).ok()
}

/// The path behind a link.
pub(crate) fn link_target<'t>(path: &CStr, target: &'t mut [u8]) -> Option<&'t [u8]> {
    // SAFETY: a text with a zero at its end, and a buffer with its length.
    let length = unsafe {
        libc::syscall(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            path.as_ptr(),
            target.as_mut_ptr(),
            target.len(),
        )
    };
    target.get(..usize::try_from(length).ok()?)
}

//! The identity, limits and descriptors of this process.

use std::ffi::c_int;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use super::check;

/// The effective user id of this process.
pub(crate) fn user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Closes a descriptor, even one that the program has closed already. The standard library ends the process for that
/// in builds with assertions.
pub(crate) fn close(descriptor: OwnedFd) {
    // SAFETY: it takes any number. The caller has given up the descriptor.
    unsafe { libc::close(descriptor.into_raw_fd()) };
}

/// A descriptor of a process, which is readable when the process has ended.
pub(crate) fn descriptor(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = check(result)? as RawFd;
    // SAFETY: the kernel just returned this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How many files this process may have open.
pub(crate) fn open_files_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one rlimit to the live variable.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if result < 0 { 0 } else { limit.rlim_cur }
}

/// How large a file this process may write, in bytes.
pub(crate) fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one rlimit to the live variable.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if result < 0 { 0 } else { limit.rlim_cur }
}

/// Limits how large a file this process may write, in bytes.
#[cfg(test)]
pub(crate) fn limit_file_size(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the kernel reads the live limit.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
}

/// Makes calls on a descriptor wait again.
pub(crate) fn make_blocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes no pointers.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    check(flags)?;
    // SAFETY: takes no pointers.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) };
    check(result).map(drop)
}

/// Replaces the file behind a descriptor by `/dev/null`: the descriptor stays valid, and its
/// previous file is closed in this process. It allocates nothing and takes no lock, so it may run
/// directly after a fork.
pub(crate) fn replace_with_null(fd: BorrowedFd<'_>) -> io::Result<()> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    // SAFETY: takes no pointers. The owner of `fd`, from which it is borrowed, still owns a valid
    // descriptor of the same number afterwards.
    let result = unsafe { libc::dup3(null.as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) };
    check(result).map(drop)
}

/// Replaces the file behind a descriptor by the end of a pipe that nobody writes to any more: it is readable, it has hung up, and
/// it is never writable. As [`replace_with_null`], it may run directly after a fork.
pub(crate) fn replace_with_end(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes no pointers.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    let mut ends = [0; 2];
    // A program that has made it non-blocking expects it to be.
    let flags = libc::O_CLOEXEC | (flags as c_int & libc::O_NONBLOCK);
    // SAFETY: the kernel writes two descriptors to the live array.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), flags) })?;
    // SAFETY: the kernel just returned these descriptors, and they have no other owner.
    let [reader, writer] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    // Programs that look only for something to read would take a mere end for nothing.
    // SAFETY: reads one byte of a live array. The pipe is empty, so that this does not wait.
    let written = unsafe { libc::write(writer.as_raw_fd(), [0u8].as_ptr().cast(), 1) };
    check(written as libc::c_long)?;
    // SAFETY: as in `replace_with_null`.
    let result = unsafe { libc::dup3(reader.as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) };
    check(result).map(drop)
}

/// Forks. The child calls the function and then sleeps until the returned process is killed or ten
/// seconds have passed.
#[cfg(test)]
pub(crate) fn fork(in_child: impl FnOnce()) -> i32 {
    // SAFETY: the child of a program with several threads must not need a lock that another thread
    // may have held: it must not allocate, which the callers ensure, and it never returns.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no more processes");
    if pid == 0 {
        in_child();
        std::thread::sleep(std::time::Duration::from_secs(10));
        // SAFETY: takes no pointers and does not return.
        unsafe { libc::_exit(0) };
    }
    pid
}

/// Ends a child that [`fork`] made.
#[cfg(test)]
pub(crate) fn end(child: i32) {
    // SAFETY: takes no pointers.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: a null pointer for the status is allowed.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

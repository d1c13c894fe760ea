//! Waits for descriptors, and wakes threads that wait.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use super::check;

/// Waits until a descriptor is ready or the timeout ends, exact to the nanosecond. Fails if a
/// descriptor is closed.
pub(crate) fn poll(set: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.map(timespec);
    let pointer = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the kernel reads and writes `set.len()` entries of the live slice; the time is either
    // null or live; a null mask is allowed.
    let result = unsafe {
        libc::ppoll(
            set.as_mut_ptr(),
            set.len() as libc::nfds_t,
            pointer,
            ptr::null(),
        )
    };
    let ready = check(result)?;
    if set.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    Ok(ready)
}

// libc announces that the type becomes wider on 32-bit machines with musl.
#[allow(deprecated)]
fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        // Longer than any clock runs, so it means forever.
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        // Below 10^9, which fits everywhere.
        tv_nsec: duration.subsec_nanos().cast_signed().into(),
    }
}

/// A counter that can be polled.
pub(crate) fn event_counter() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let result = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    check(result)?;
    // SAFETY: the kernel just returned this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// An epoll descriptor that watches nothing.
///
/// It does not use the C library's functions: rdma-core's librspreload replaces them by functions
/// of librdmacm, which may be ours.
pub(crate) fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let result = unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) } as c_int;
    check(result)?;
    // SAFETY: the kernel just returned this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Makes an epoll descriptor readable while another one is.
pub(crate) fn epoll_add(epoll: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    epoll_control(epoll, libc::EPOLL_CTL_ADD, descriptor)
}

/// Stops watching a descriptor.
pub(crate) fn epoll_remove(epoll: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    epoll_control(epoll, libc::EPOLL_CTL_DEL, descriptor)
}

fn epoll_control(
    epoll: BorrowedFd<'_>,
    operation: c_int,
    descriptor: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 0,
    };
    // SAFETY: both descriptors are open, and the kernel only reads the live event.
    let result = unsafe {
        libc::syscall(
            libc::SYS_epoll_ctl,
            epoll.as_raw_fd(),
            operation,
            descriptor.as_raw_fd(),
            &raw mut event,
        )
    };
    check(result as c_int).map(drop)
}

/// Adds one to a counter. A full counter is readable anyway.
pub(crate) fn event_add(counter: BorrowedFd<'_>) {
    // SAFETY: takes no pointers.
    unsafe { libc::eventfd_write(counter.as_raw_fd(), 1) };
}

/// Sets a counter to zero, if it is not zero already.
pub(crate) fn event_clear(counter: BorrowedFd<'_>) {
    let mut value = 0;
    // SAFETY: writes eight bytes to the live variable.
    unsafe { libc::eventfd_read(counter.as_raw_fd(), &raw mut value) };
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::poll::{Interest, wait};

    extern "C" fn ignore(_: c_int) {}

    #[test]
    fn a_signal_ends_a_wait_with_nothing_ready() {
        let handler = ignore as extern "C" fn(c_int) as libc::sighandler_t;
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGUSR2, handler) };
        // SAFETY: takes no pointers.
        let waiter = unsafe { libc::pthread_self() };
        let counter = event_counter().unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Again, because the other thread may not wait yet.
                while !is_over.load(Ordering::Acquire) {
                    // SAFETY: that thread outlives this one, which it waits for.
                    unsafe { libc::pthread_kill(waiter, libc::SIGUSR2) };
                    std::thread::yield_now();
                }
            });
            let ready = wait(&[Interest::readable(counter.as_fd())], None);
            is_over.store(true, Ordering::Release);
            let ready = ready.unwrap();
            assert!(ready.was_interrupted() && ready.is_empty());
        });
    }

    #[test]
    fn waiting_for_a_closed_descriptor_is_an_error() {
        let counter = event_counter().unwrap();
        // No process may open that many.
        let mut set = [counter.as_raw_fd(), i32::MAX].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let error = poll(&mut set, None).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}

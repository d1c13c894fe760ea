//! `poll`, `select` and epoll over rsockets and other descriptors.

use std::ffi::{c_int, c_ulong, c_void};
use std::{fs, io};

use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, epoll_event, fd_set, pollfd, sigset_t,
    timespec, timeval,
};

use super::connections::{is_enabled, set_errno};
use super::descriptors::close_rsocket;
use super::table::{self, Entry};
use crate::original_functions::next;

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn poll(entries: *mut pollfd, count: c_ulong, timeout: c_int) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { with_rsockets(entries, count) } {
        Some(entries) => wait(entries, timeout),
        None => next!(c"poll": (*mut pollfd, c_ulong, c_int) -> c_int; entries, count, timeout),
    }
}

/// `poll` with a checked size.
///
/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(
    entries: *mut pollfd,
    count: c_ulong,
    timeout: c_int,
    room: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { with_rsockets(entries, count) } {
        Some(entries) if size_of_val(entries) <= room => wait(entries, timeout),
        _ => next!(
            c"__poll_chk": (*mut pollfd, c_ulong, c_int, usize) -> c_int;
            entries, count, timeout, room
        ),
    }
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    entries: *mut pollfd,
    count: c_ulong,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { with_rsockets(entries, count) } {
        Some(entries) => {
            // SAFETY: as above.
            let timeout = unsafe { milliseconds(timeout) };
            // SAFETY: as above.
            unsafe { with_mask(mask, || wait(entries, timeout)) }
        }
        None => next!(
            c"ppoll": (*mut pollfd, c_ulong, *const timespec, *const sigset_t) -> c_int;
            entries, count, timeout, mask
        ),
    }
}

/// `ppoll` with a checked size.
///
/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    entries: *mut pollfd,
    count: c_ulong,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { with_rsockets(entries, count) } {
        Some(entries) if size_of_val(entries) <= room => {
            // SAFETY: as above.
            let timeout = unsafe { milliseconds(timeout) };
            // SAFETY: as above.
            unsafe { with_mask(mask, || wait(entries, timeout)) }
        }
        _ => next!(
            c"__ppoll_chk": (*mut pollfd, c_ulong, *const timespec, *const sigset_t, usize) -> c_int;
            entries, count, timeout, mask, room
        ),
    }
}

/// The entries, if one of them is an rsocket.
///
/// # Safety
/// Null, or that many entries, which no other thread uses meanwhile.
unsafe fn with_rsockets<'e>(entries: *mut pollfd, count: c_ulong) -> Option<&'e mut [pollfd]> {
    let count = usize::try_from(count).ok()?;
    if entries.is_null() || count > c_int::MAX as usize {
        return None;
    }
    // SAFETY: not null, and the caller's promise.
    let entries = unsafe { std::slice::from_raw_parts_mut(entries, count) };
    let has_rsocket = entries
        .iter()
        .any(|entry| table::socket(entry.fd).is_some());
    has_rsocket.then_some(entries)
}

/// `rpoll` for the program's descriptors.
fn wait(entries: &mut [pollfd], timeout: c_int) -> c_int {
    let mut ours: Vec<pollfd> = entries.to_vec();
    for entry in &mut ours {
        entry.fd = table::socket(entry.fd).unwrap_or(entry.fd);
    }
    let ready = next!(
        c"rpoll": (*mut pollfd, c_ulong, c_int) -> c_int;
        ours.as_mut_ptr(), ours.len() as c_ulong, timeout
    );
    if ready >= 0 {
        for (entry, ours) in entries.iter_mut().zip(&ours) {
            entry.revents = ours.revents;
        }
    }
    ready
}

/// Waits with another signal mask. The change and the wait are two steps here, so a signal between them is handled
/// before the wait.
///
/// # Safety
/// The mask is null or a mask.
unsafe fn with_mask(mask: *const sigset_t, wait: impl FnOnce() -> c_int) -> c_int {
    if mask.is_null() {
        return wait();
    }
    // SAFETY: numbers, for which zero is a value.
    let mut before: sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the caller's promise, and a live mask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut before) };
    let result = wait();
    let error = io::Error::last_os_error();
    // SAFETY: the mask from above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    set_errno(&error);
    result
}

/// Rounded up; -1 without a limit.
///
/// # Safety
/// Null or a time.
unsafe fn milliseconds(time: *const timespec) -> c_int {
    // SAFETY: the caller's promise.
    let Some(time) = (unsafe { time.as_ref() }) else {
        return -1;
    };
    let whole = time.tv_sec.saturating_mul(1000);
    let part = time.tv_nsec / 1_000_000 + i64::from(time.tv_nsec % 1_000_000 > 0);
    c_int::try_from(whole.saturating_add(part)).unwrap_or(c_int::MAX)
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = Sets([read, write, except]);
    let Some(mut entries) = sets.entries(count) else {
        return next!(
            c"select": (c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;
            count, read, write, except, timeout
        );
    };
    // SAFETY: the caller's promise.
    let limit = unsafe { timeout.as_ref() }.map(|time| timespec {
        tv_sec: time.tv_sec,
        tv_nsec: time.tv_usec * 1000,
    });
    let limit = limit
        .as_ref()
        .map_or(std::ptr::null(), |limit| &raw const *limit);
    // SAFETY: null or a live time.
    let ready = wait(&mut entries, unsafe { milliseconds(limit) });
    sets.report(&entries, ready)
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Set = *mut fd_set;
    let sets = Sets([read, write, except]);
    let Some(mut entries) = sets.entries(count) else {
        return next!(
            c"pselect": (c_int, Set, Set, Set, *const timespec, *const sigset_t) -> c_int;
            count, read, write, except, timeout, mask
        );
    };
    // SAFETY: the caller's promise.
    let timeout = unsafe { milliseconds(timeout) };
    // SAFETY: as above.
    let ready = unsafe { with_mask(mask, || wait(&mut entries, timeout)) };
    sets.report(&entries, ready)
}

/// The sets of `select`: for reading, writing and exceptions.
struct Sets([*mut fd_set; 3]);

impl Sets {
    /// What each set asks for, and what counts as it.
    const EVENTS: [(i16, i16); 3] = [
        (POLLIN, POLLIN | POLLHUP | POLLERR),
        (POLLOUT, POLLOUT | POLLERR),
        (POLLPRI, POLLPRI),
    ];

    /// The members, if one of them is an rsocket.
    fn entries(&self, count: c_int) -> Option<Vec<pollfd>> {
        let count = count.clamp(0, libc::FD_SETSIZE as c_int);
        let entries = (0..count).map(|fd| {
            let asked = self.0.iter().zip(Self::EVENTS);
            let asked = asked.filter(|(set, _)| contains(**set, fd));
            pollfd {
                fd,
                events: asked.fold(0, |all, (_, (event, _))| all | event),
                revents: 0,
            }
        });
        let entries: Vec<pollfd> = entries.filter(|entry| entry.events != 0).collect();
        let has_rsocket = entries
            .iter()
            .any(|entry| table::socket(entry.fd).is_some());
        has_rsocket.then_some(entries)
    }

    /// Leaves in the sets what is ready. Returns how many bits are set.
    fn report(&self, entries: &[pollfd], ready: c_int) -> c_int {
        if ready < 0 {
            return ready;
        }
        if entries.iter().any(|entry| entry.revents & POLLNVAL != 0) {
            set_errno(&io::Error::from_raw_os_error(libc::EBADF));
            return -1;
        }
        let mut bits = 0;
        for entry in entries {
            for (set, (event, counts)) in self.0.iter().zip(Self::EVENTS) {
                if entry.events & event == 0 {
                    continue;
                }
                if entry.revents & counts != 0 {
                    bits += 1;
                } else {
                    // SAFETY: a live set, because it contained this descriptor, which is below FD_SETSIZE.
                    unsafe { libc::FD_CLR(entry.fd, *set) };
                }
            }
        }
        bits
    }
}

fn contains(set: *mut fd_set, descriptor: c_int) -> bool {
    // SAFETY: not null, so by the promise of the caller of `select` a set; the descriptor is below FD_SETSIZE.
    !set.is_null() && unsafe { libc::FD_ISSET(descriptor, set) }
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    if !is_enabled() {
        return next!(c"epoll_create1": (c_int) -> c_int; flags);
    }
    let set = next!(c"repoll_create": (c_int) -> c_int; flags);
    if set >= 0 && !table::insert(set, Entry::Set) {
        close_rsocket(set);
        set_errno(&io::Error::from_raw_os_error(libc::EMFILE));
        return -1;
    }
    set
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    if size <= 0 || !is_enabled() {
        return next!(c"epoll_create": (c_int) -> c_int; size);
    }
    // SAFETY: takes no pointers.
    unsafe { epoll_create1(0) }
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    member: c_int,
    event: *mut epoll_event,
) -> c_int {
    type Event = *mut epoll_event;
    match table::socket(member) {
        Some(number) => next!(
            c"repoll_ctl": (c_int, c_int, c_int, Event) -> c_int; set, operation, number, event
        ),
        None => next!(
            c"epoll_ctl": (c_int, c_int, c_int, Event) -> c_int; set, operation, member, event
        ),
    }
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    if table::entry(set) == Entry::Set {
        return wait_for_set(set, events, count, timeout);
    }
    next!(
        c"epoll_wait": (c_int, *mut epoll_event, c_int, c_int) -> c_int;
        set, events, count, timeout
    )
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    if table::entry(set) == Entry::Set {
        // SAFETY: the caller's promise.
        return unsafe { with_mask(mask, || wait_for_set(set, events, count, timeout)) };
    }
    next!(
        c"epoll_pwait": (c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
        set, events, count, timeout, mask
    )
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const c_void,
) -> c_int {
    if table::entry(set) == Entry::Set {
        // SAFETY: the caller's promise.
        let timeout = unsafe { milliseconds(timeout) };
        // SAFETY: as above.
        return unsafe { with_mask(mask.cast(), || wait_for_set(set, events, count, timeout)) };
    }
    next!(
        c"epoll_pwait2": (c_int, *mut epoll_event, c_int, *const timespec, *const c_void) -> c_int;
        set, events, count, timeout, mask
    )
}

fn wait_for_set(set: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int {
    next!(
        c"repoll_wait": (c_int, *mut epoll_event, c_int, c_int) -> c_int;
        set, events, count, timeout
    )
}

/// Moves a descriptor that becomes an rsocket in every set from the kernel's members to the rsockets: some programs wait for
/// a socket before it is connected.
pub(super) fn move_memberships(descriptor: c_int, number: c_int) {
    type Event = *mut epoll_event;
    for set in table::sets() {
        let Some(mut event) = membership(set, descriptor) else {
            continue;
        };
        next!(
            c"epoll_ctl": (c_int, c_int, c_int, Event) -> c_int;
            set, libc::EPOLL_CTL_DEL, descriptor, std::ptr::null_mut()
        );
        next!(
            c"repoll_ctl": (c_int, c_int, c_int, Event) -> c_int;
            set, libc::EPOLL_CTL_ADD, number, &raw mut event
        );
    }
}

/// What a set of the kernel waits for at a descriptor, as the kernel tells it.
fn membership(set: c_int, descriptor: c_int) -> Option<epoll_event> {
    let told = fs::read_to_string(format!("/proc/self/fdinfo/{set}")).ok()?;
    told.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let ["tfd:", member, "events:", events, "data:", data, ..] = words[..] else {
            return None;
        };
        let is_meant = member.parse() == Ok(descriptor);
        is_meant.then_some(epoll_event {
            events: u32::from_str_radix(events, 16).ok()?,
            u64: u64::from_str_radix(data, 16).ok()?,
        })
    })
}

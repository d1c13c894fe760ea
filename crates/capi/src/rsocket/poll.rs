//! Waiting for several sockets, and for ordinary descriptors among them.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, pollfd};

use super::table::{self, Socket};
use crate::errno::Errno;

/// What a socket is ready for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Readiness {
    pub(super) reading: bool,
    pub(super) writing: bool,
    /// Whether data has come that nobody read.
    pub(super) unread: bool,
    pub(super) hung_up: bool,
    pub(super) error: bool,
    /// Another number after something came, or after a call that would have had to wait.
    pub(super) changes: u64,
}

/// A peer's end comes over another descriptor than its data: it is looked for now and then.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// Waits until one of the entries is ready or the time is over; how many are.
pub(super) fn poll(entries: &mut [pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    // What is later than any clock tells is never.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let sockets: Vec<Option<Socket>> = entries.iter().map(|it| table::find(it.fd)).collect();
    if sockets.iter().all(Option::is_none) {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        return system_poll(entries, left);
    }
    loop {
        // First all are told to make themselves heard, then looked at: nothing slips through.
        let ready = look(entries, &sockets)?;
        if ready > 0 {
            return Ok(ready);
        }
        let now = Instant::now();
        let left = deadline.map(|at| at.saturating_duration_since(now));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(0);
        }
        wait(entries, &sockets, left)?;
    }
}

/// Sets what each entry is ready for; how many are ready for something.
fn look(entries: &mut [pollfd], sockets: &[Option<Socket>]) -> Result<usize, Errno> {
    let mut ready = 0;
    for (entry, socket) in entries.iter_mut().zip(sockets) {
        entry.revents = 0;
        match socket {
            _ if entry.fd < 0 => {}
            Some(socket) => {
                entry.revents = events_of(socket.readiness(true), entry.events);
            }
            None => {
                system_poll(std::slice::from_mut(entry), Some(Duration::ZERO))?;
            }
        }
        ready += usize::from(entry.revents != 0);
    }
    Ok(ready)
}

pub(super) fn events_of(ready: Readiness, wanted: i16) -> i16 {
    let event = |is: bool, event: i16| if is { event } else { 0 };
    let asked = event(ready.reading, POLLIN) | event(ready.writing, POLLOUT);
    // Many a program takes a hang-up for an error at once. What the peer sent before it left comes
    // with its farewell here, where a slower network has them one by one: it is read first.
    let reads_first = ready.unread && wanted & POLLIN != 0;
    let left = event(ready.hung_up && !reads_first, POLLHUP);
    asked & wanted | left | event(ready.error, POLLERR)
}

fn wait(
    entries: &[pollfd],
    sockets: &[Option<Socket>],
    left: Option<Duration>,
) -> Result<(), Errno> {
    let mut set = entries.to_vec();
    for (entry, socket) in set.iter_mut().zip(sockets) {
        if let Some(socket) = socket {
            entry.fd = socket.descriptor();
            entry.events = POLLIN;
        }
    }
    let left = left.map_or(LONGEST_SLEEP, |left| left.min(LONGEST_SLEEP));
    system_poll(&mut set, Some(left)).map(drop)
}

/// A timeout as system calls have it, rounded up: who wakes too early would find nothing.
pub(super) fn milliseconds(timeout: Option<Duration>) -> c_int {
    timeout.map_or(-1, |timeout| {
        c_int::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
    })
}

pub(super) fn system_poll(set: &mut [pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    let milliseconds = milliseconds(timeout);
    // SAFETY: the kernel reads and writes as many entries as the live slice has.
    let ready = unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, milliseconds) };
    usize::try_from(ready).map_err(|_| Errno::last())
}

/// The descriptor sets of `rselect`.
pub(super) struct Sets {
    pub(super) read: *mut libc::fd_set,
    pub(super) write: *mut libc::fd_set,
    pub(super) except: *mut libc::fd_set,
}

/// Waits as `select` does; how many bits are set.
pub(super) fn select(count: c_int, sets: &Sets, timeout: Option<Duration>) -> Result<usize, Errno> {
    if count < 0 {
        return Err(Errno::INVALID);
    }
    // Programs may name as many descriptors as they can have, which is more than a set holds.
    let count = count.min(libc::FD_SETSIZE as c_int);
    let mut entries: Vec<pollfd> = (0..count)
        .map(|fd| pollfd {
            fd,
            events: take(sets.read, fd, POLLIN)
                | take(sets.write, fd, POLLOUT)
                | take(sets.except, fd, libc::POLLPRI),
            revents: 0,
        })
        .filter(|entry| entry.events != 0)
        .collect();
    poll(&mut entries, timeout)?;
    let mut set_bits = 0;
    for entry in &entries {
        set_bits += put(sets.read, entry, POLLIN | POLLHUP | POLLERR, POLLIN);
        set_bits += put(sets.write, entry, POLLOUT | POLLERR, POLLOUT);
        set_bits += put(sets.except, entry, libc::POLLPRI, libc::POLLPRI);
    }
    Ok(set_bits)
}

/// Takes a descriptor out of a set; the event that its being there stands for.
fn take(set: *mut libc::fd_set, fd: c_int, event: i16) -> i16 {
    if set.is_null() {
        return 0;
    }
    // SAFETY: a live set, and the program says that its descriptors are below the bound of sets.
    if !unsafe { libc::FD_ISSET(fd, set) } {
        return 0;
    }
    // SAFETY: as above.
    unsafe { libc::FD_CLR(fd, set) };
    event
}

/// Puts a descriptor back that was asked about and is ready.
fn put(set: *mut libc::fd_set, entry: &pollfd, happened: i16, asked: i16) -> usize {
    if set.is_null() || entry.events & asked == 0 || entry.revents & happened == 0 {
        return 0;
    }
    // SAFETY: as in `take`.
    unsafe { libc::FD_SET(entry.fd, set) };
    1
}

impl Socket {
    pub(super) fn readiness(&self, armed: bool) -> Readiness {
        match self {
            Self::Stream(stream) => stream.readiness(armed),
            Self::Datagram(datagram) => datagram.readiness(),
        }
    }

    pub(super) fn descriptor(&self) -> c_int {
        match self {
            Self::Stream(stream) => stream.descriptor(),
            Self::Datagram(datagram) => datagram.descriptor(),
        }
    }
}

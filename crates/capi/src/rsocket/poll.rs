//! `rpoll` and `rselect`: waiting for several sockets and ordinary descriptors.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, pollfd};

use super::readiness::Readiness;
use super::socket_table::{self, Socket};
use super::wait::Wait;
use crate::errno::Errno;

/// Waits until one of the entries is ready or the timeout ends. Returns how many are ready.
pub(super) fn poll(entries: &mut [pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    // A deadline beyond the range of the clock never comes.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let sockets: Vec<Option<Socket>> = entries.iter().map(|it| socket_table::find(it.fd)).collect();
    if sockets.iter().all(Option::is_none) {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        return system_poll(entries, left);
    }
    if look(entries, &sockets, None) > 0 {
        return look_at_all(entries, &sockets);
    }
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            receive_packets(sockets.iter().flatten());
            return look_at_all(entries, &sockets);
        }
        // Each is watched first and then checked, so that no change is missed.
        let mut wait = Wait::new();
        if look(entries, &sockets, Some(&mut wait)) > 0 {
            return look_at_all(entries, &sockets);
        }
        let slept = wait.sleep(left);
        let ready = look_at_all(entries, &sockets)?;
        if ready > 0 {
            return Ok(ready);
        }
        slept?;
    }
}

/// Sets what each entry is ready for. Returns how many are ready.
fn look_at_all(entries: &mut [pollfd], sockets: &[Option<Socket>]) -> Result<usize, Errno> {
    let ready = look(entries, sockets, None);
    if sockets.iter().all(Option::is_some) {
        return Ok(ready);
    }
    let mut others = entries.to_vec();
    for (entry, socket) in others.iter_mut().zip(sockets) {
        if socket.is_some() {
            entry.fd = -1;
        }
    }
    let others_ready = system_poll(&mut others, Some(Duration::ZERO))?;
    for ((entry, other), socket) in entries.iter_mut().zip(others).zip(sockets) {
        if socket.is_none() {
            entry.revents = other.revents;
        }
    }
    Ok(ready + others_ready)
}

/// Sets what each of our sockets is ready for. Returns how many are ready. If there is a wait, a change from now on ends it, and so does an
/// ordinary descriptor.
fn look(entries: &mut [pollfd], sockets: &[Option<Socket>], mut wait: Option<&mut Wait>) -> usize {
    let mut ready = 0;
    for (entry, socket) in entries.iter_mut().zip(sockets) {
        match (socket, &mut wait) {
            (Some(socket), wait) => {
                entry.revents = events_of(socket.readiness(wait.as_deref_mut()), entry.events);
                ready += usize::from(entry.revents != 0);
            }
            (None, Some(wait)) => wait.add_descriptor(entry.fd, entry.events),
            (None, None) => {}
        }
    }
    ready
}

/// Receives the packets that have arrived for sockets, once for each lane: a program that does not sleep receives them itself.
pub(super) fn receive_packets<'s>(sockets: impl Iterator<Item = &'s Socket>) {
    let mut served = Vec::new();
    for socket in sockets {
        if let Socket::Stream(stream) = socket {
            stream.receive_packets(&mut served);
        }
    }
}

pub(super) fn events_of(ready: Readiness, wanted: i16) -> i16 {
    let event = |is: bool, event: i16| if is { event } else { 0 };
    let asked = event(ready.reading, POLLIN) | event(ready.writing, POLLOUT);
    // Many programs treat a hang-up as an error at once. Here the last data and the disconnection often
    // arrive together, so the hang-up is reported only after the data is read.
    let reads_first = ready.unread && wanted & POLLIN != 0;
    let left = event(ready.hung_up && !reads_first, POLLHUP);
    asked & wanted | left | event(ready.error, POLLERR)
}

/// A timeout in milliseconds for system calls, rounded up so that the caller does not wake too early.
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

/// Waits as `select` does. Returns how many bits are set.
pub(super) fn select(count: c_int, sets: &Sets, timeout: Option<Duration>) -> Result<usize, Errno> {
    if count < 0 {
        return Err(Errno::INVALID);
    }
    // Programs may name more descriptors than a set holds.
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

/// Removes a descriptor from a set. Returns the event if it was in the set.
fn take(set: *mut libc::fd_set, fd: c_int, event: i16) -> i16 {
    if set.is_null() {
        return 0;
    }
    // SAFETY: a live set, and the descriptor is below FD_SETSIZE.
    if !unsafe { libc::FD_ISSET(fd, set) } {
        return 0;
    }
    // SAFETY: as above.
    unsafe { libc::FD_CLR(fd, set) };
    event
}

/// Adds a descriptor to the set if it was in it and is ready.
fn put(set: *mut libc::fd_set, entry: &pollfd, happened: i16, asked: i16) -> usize {
    if set.is_null() || entry.events & asked == 0 || entry.revents & happened == 0 {
        return 0;
    }
    // SAFETY: as in `take`.
    unsafe { libc::FD_SET(entry.fd, set) };
    1
}

impl Socket {
    pub(super) fn readiness(&self, wait: Option<&mut Wait>) -> Readiness {
        match self {
            Self::Stream(stream) => stream.readiness(wait),
            Self::Datagram(datagram) => datagram.readiness(wait),
        }
    }
}

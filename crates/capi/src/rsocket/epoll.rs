//! `repoll_*`: epoll over these sockets and ordinary descriptors.
//!
//! A set is a kernel's epoll descriptor for the ordinary descriptors, and a list of our sockets, which the
//! kernel does not know. Its number is that of the epoll descriptor.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::ops::Bound;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use driver::WaitSet;
use libc::{EPOLLET, EPOLLONESHOT, EPOLLRDHUP, POLLIN, epoll_event};

use super::epoll_syscalls;
use super::poll;
use super::readiness::Readiness;
use super::socket_table::{self, Socket};
use super::wait::Wait;
use crate::errno::Errno;

/// The descriptors and sockets that a program waits for.
pub(super) struct Set {
    /// The program may close it without our knowledge, so only [`close`] closes it.
    ordinary: RawFd,
    /// Whether an ordinary descriptor was ever added.
    has_ordinary: AtomicBool,
    /// Threads that wait. They are woken when the list of sockets changes.
    waiting: Arc<WaitSet>,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    sockets: BTreeMap<c_int, WatchedSocket>,
    /// The number that was checked last. The next check starts after it, so that each gets its turn.
    last: c_int,
}

struct WatchedSocket {
    /// The events that the program asked for.
    events: u32,
    data: u64,
    /// The state at the last check, for edge-triggered sockets.
    seen: (u32, u64),
    /// Whether a one-shot socket has reported its event.
    one_shot_done: bool,
}

static SETS: Mutex<Option<HashMap<c_int, Arc<Set>>>> = Mutex::new(None);

/// Creates a set and returns its number.
pub(super) fn create(flags: c_int) -> Result<c_int, Errno> {
    let ordinary = epoll_syscalls::epoll_create(flags)?;
    let set = Set {
        ordinary,
        has_ordinary: AtomicBool::new(false),
        waiting: Arc::default(),
        members: Mutex::default(),
    };
    lock()
        .get_or_insert_default()
        .insert(ordinary, Arc::new(set));
    Ok(ordinary)
}

/// Closes a set.
pub(super) fn close(number: c_int) -> Result<(), Errno> {
    let removed = lock().get_or_insert_default().remove(&number);
    let set = removed.ok_or(Errno(libc::EBADF))?;
    // SAFETY: created by `create`, and removed from the table, so it is closed once.
    unsafe { epoll_syscalls::close(set.ordinary) }
}

/// Removes a closed socket from every set, as the kernel does.
pub(super) fn forget(socket: c_int) {
    let sets: Vec<Arc<Set>> = lock()
        .iter()
        .flatten()
        .map(|(_, set)| Arc::clone(set))
        .collect();
    for set in sets {
        set.members().sockets.remove(&socket);
    }
}

/// Adds, changes or removes a descriptor or socket.
pub(super) fn control(
    number: c_int,
    operation: c_int,
    member: c_int,
    event: *mut epoll_event,
) -> Result<(), Errno> {
    let set = find(number);
    if let Some(set) = &set {
        if socket_table::find(member).is_some() {
            return set.control(operation, member, event);
        }
        set.has_ordinary.store(true, Ordering::Release);
    }
    // SAFETY: by the promise at the entry point an event, or null.
    unsafe { epoll_syscalls::epoll_control(number, operation, member, event) }
}

/// Waits until a descriptor or socket is ready or the timeout ends. Returns the number of events.
pub(super) fn wait(
    number: c_int,
    events: &mut [epoll_event],
    timeout: Option<Duration>,
) -> Result<usize, Errno> {
    let Some(set) = find(number) else {
        return epoll_syscalls::epoll_wait(number, events, poll::milliseconds(timeout));
    };
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    // Before a sleep, which also ends when an ordinary descriptor is ready, only the sockets are checked.
    let mut count = set.look(events, None);
    if count > 0 {
        return set.look_at_ordinary(events, count);
    }
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            poll::receive_packets(set.sockets().iter());
            count = set.look(events, None);
            return set.look_at_ordinary(events, count);
        }
        // Each is watched first and then checked, so that no change is missed.
        let mut wait = Wait::new();
        wait.enter(&set.waiting);
        wait.add_descriptor(set.ordinary, POLLIN);
        count = set.look(events, Some(&mut wait));
        let slept = match count {
            0 => wait.sleep(left),
            _ => Ok(()),
        };
        if count == 0 {
            count = set.look(events, None);
        }
        count = set.look_at_ordinary(events, count)?;
        if count > 0 {
            return Ok(count);
        }
        slept?;
    }
}

impl Set {
    fn control(
        &self,
        operation: c_int,
        socket: c_int,
        event: *mut epoll_event,
    ) -> Result<(), Errno> {
        let mut members = self.members();
        let is_member = members.sockets.contains_key(&socket);
        match (operation, is_member) {
            (libc::EPOLL_CTL_ADD, true) => return Err(Errno(libc::EEXIST)),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => return Err(Errno::NO_ENTRY),
            (libc::EPOLL_CTL_DEL, true) => {
                members.sockets.remove(&socket);
            }
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _) => {
                if event.is_null() {
                    return Err(Errno::FAULT);
                }
                // SAFETY: not null, so by the promise at the entry point an event.
                let event = unsafe { event.read() };
                members.sockets.insert(socket, WatchedSocket::new(&event));
            }
            _ => return Err(Errno::INVALID),
        }
        drop(members);
        self.waiting.wake_all();
        Ok(())
    }

    /// Stores the events of sockets that are ready now. Returns their number. If there is a wait, a change from now on ends it.
    fn look(&self, events: &mut [epoll_event], mut wait: Option<&mut Wait>) -> usize {
        let mut members = self.members();
        let mut count = 0;
        for number in members.numbers_after_last() {
            if count == events.len() {
                break;
            }
            members.last = number;
            let (Some(socket), Some(member)) =
                (socket_table::find(number), members.sockets.get_mut(&number))
            else {
                continue;
            };
            if let Some(event) = member.look(&socket, wait.as_deref_mut()) {
                events[count] = event;
                count += 1;
            }
        }
        count
    }

    /// Adds the events of ordinary descriptors to those of sockets. Returns their number.
    fn look_at_ordinary(&self, events: &mut [epoll_event], count: usize) -> Result<usize, Errno> {
        if count == events.len() || !self.has_ordinary.load(Ordering::Acquire) {
            return Ok(count);
        }
        Ok(count + epoll_syscalls::epoll_wait(self.ordinary, &mut events[count..], 0)?)
    }

    fn sockets(&self) -> Vec<Socket> {
        let members = self.members();
        let numbers = members.sockets.keys();
        numbers
            .filter_map(|number| socket_table::find(*number))
            .collect()
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    /// All numbers, starting after the last one checked.
    fn numbers_after_last(&self) -> Vec<c_int> {
        let behind = self
            .sockets
            .range((Bound::Excluded(self.last), Bound::Unbounded));
        let before = self.sockets.range(..=self.last);
        behind.chain(before).map(|(number, _)| *number).collect()
    }
}

impl WatchedSocket {
    fn new(event: &epoll_event) -> Self {
        Self {
            events: event.events,
            data: event.u64,
            seen: (0, 0),
            one_shot_done: false,
        }
    }

    /// The event to report for this socket.
    fn look(&mut self, socket: &Socket, wait: Option<&mut Wait>) -> Option<epoll_event> {
        if self.one_shot_done {
            return None;
        }
        let readiness = socket.readiness(wait);
        let ready = events_of(readiness, self.events);
        let (seen, changes) = self.seen;
        self.seen = (ready, readiness.changes);
        let is_news = ready & !seen != 0 || changes != readiness.changes;
        if ready == 0 || (self.asks(EPOLLET) && !is_news) {
            return None;
        }
        self.one_shot_done = self.asks(EPOLLONESHOT);
        Some(epoll_event {
            events: ready,
            u64: self.data,
        })
    }

    fn asks(&self, flag: c_int) -> bool {
        self.events & flag.cast_unsigned() != 0
    }
}

/// The events of `poll` have the same numbers in epoll.
fn events_of(readiness: Readiness, wanted: u32) -> u32 {
    let ready = poll::events_of(readiness, (wanted & 0x7fff) as i16);
    let left = if readiness.hung_up && !readiness.unread {
        EPOLLRDHUP.cast_unsigned() & wanted
    } else {
        0
    };
    u32::from(ready.cast_unsigned()) | left
}

fn find(number: c_int) -> Option<Arc<Set>> {
    lock().as_ref()?.get(&number).cloned()
}

fn lock() -> MutexGuard<'static, Option<HashMap<c_int, Arc<Set>>>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Exit notices: messages to peers when a process dies.
//!
//! The kernel closes the connections of a process that dies in any way. A library that is part of
//! the process can't do that after its end. So every process that makes connections has a watcher:
//! a process of a few pages that waits for the end of its owner and then sends the datagrams in a
//! table.
//!
//! The owner fills the table: a [`Notice`] is a datagram that is sent if the process ends while the
//! notice exists. The watcher does not interpret them. It sends all at once, and again after 50 ms, 200 ms, 1, 3,
//! 7 and 15 s, because datagrams get lost. If the table is empty, it sends nothing and ends.
//!
//! The end is the end of the process, by any signal, or `exec`, which closes the socket to the
//! watcher. The child of a fork has no watcher until it makes its own connections.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use socket2::{Domain, Socket, Type};
use wire::Route;

use crate::fork::Guard;
use crate::restrictions::{self, Restriction};
use crate::socket::Sender;
use crate::sys::file_size;
use crate::sys::watcher::layout::{
    CONTROL_LENGTH, MAX_DESCRIPTORS, MAX_SLOTS, NAME_LENGTH, OWNER, PAYLOAD_LENGTH, SLOT_LENGTH,
    TABLE,
};
use crate::sys::watcher::{
    adopts_orphans, is_built, program, send_command, spawn, table, this_process,
};

/// Why there is no watcher.
#[derive(Debug, thiserror::Error)]
pub enum WatcherError {
    /// The library was built without it.
    #[error(
        "this library was built without the watcher program: its architecture is not supported, or \
         there was no linker"
    )]
    NotBuilt,
    /// The watcher would be a child of this process, so `wait` would see it; and when the first
    /// process of a container ends, all others end with it.
    #[error(
        "this process adopts orphans, as the first process of a container does: start it as a child \
         of another one, with `docker run --init` for example"
    )]
    AdoptsOrphans,
    /// The system does not allow it to start.
    #[error("the system does not start the watcher from memory: {0}")]
    Refused(#[from] io::Error),
}

/// The watcher of this process.
static CURRENT: Mutex<Weak<Watcher>> = Mutex::new(Weak::new());

/// A process that sends the notices of this process after its end. The watcher ends when this is
/// dropped.
#[derive(Debug)]
pub struct Watcher {
    /// Declared before the descriptors that it guards.
    guard: Guard,
    control: OwnedFd,
    table: File,
    slots: Mutex<Numbers>,
    free_indices: Mutex<Numbers>,
}

impl Watcher {
    /// The watcher of this process. It is started if there is none.
    pub fn of_process() -> Result<Arc<Self>, WatcherError> {
        let current = living(&lock(&CURRENT));
        if let Some(watcher) = current {
            return Ok(watcher);
        }
        // Without the lock, because starting a process takes long.
        let started = Arc::new(Self::start()?);
        let mut current = lock(&CURRENT);
        // Another thread may have started one first. Then this one ends again.
        let watcher = living(&current).unwrap_or(started);
        *current = Arc::downgrade(&watcher);
        Ok(watcher)
    }

    pub(crate) fn start() -> Result<Self, WatcherError> {
        if !is_built() {
            return Err(WatcherError::NotBuilt);
        }
        if adopts_orphans() {
            return Err(WatcherError::AdoptsOrphans);
        }
        let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
        let control = OwnedFd::from(ours);
        let table = table().inspect_err(|error| {
            restrictions::report_if_forbidden(Restriction::MemoryFiles, error);
        })?;
        let guard = Guard::new([control.as_fd(), table.as_fd()]);
        spawn(program()?.as_fd(), theirs.as_fd())?;
        send_command(control.as_fd(), TABLE, Some(table.as_fd()))?;
        // Without process descriptors, the watcher relies on the end of the socket.
        if let Ok(process) = this_process() {
            send_command(control.as_fd(), OWNER, Some(process.as_fd()))?;
        }
        Ok(Self {
            guard,
            control,
            table,
            slots: Mutex::default(),
            free_indices: Mutex::new(Numbers::from(OWNER + 1)),
        })
    }

    /// A source of notices. The watcher gets a copy of the socket.
    pub fn source(self: &Arc<Self>, sender: &Sender) -> io::Result<Source> {
        let index = lock(&self.free_indices).take();
        if index as usize >= MAX_DESCRIPTORS {
            lock(&self.free_indices).give_back(index);
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let source = Source(Arc::new(SourceSlot {
            watcher: Arc::clone(self),
            index,
        }));
        send_command(self.control.as_fd(), index, Some(sender.as_fd()))?;
        Ok(source)
    }

    fn write(&self, slot: u32, bytes: &[u8]) -> io::Result<()> {
        if slot as usize >= MAX_SLOTS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let offset = u64::from(slot) * SLOT_LENGTH as u64;
        file_size::without_signal(|| self.table.write_all_at(bytes, offset))
    }
}

/// The watcher, unless it is the copy of a parent's in a forked child.
fn living(current: &Weak<Watcher>) -> Option<Arc<Watcher>> {
    let watcher = current.upgrade();
    watcher.filter(|it| !it.guard.is_inherited())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsFd for Watcher {
    /// Readable when the watcher has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// A socket that the watcher sends from.
#[derive(Debug, Clone)]
pub struct Source(Arc<SourceSlot>);

/// The number of a socket in the watcher.
#[derive(Debug)]
struct SourceSlot {
    watcher: Arc<Watcher>,
    index: u32,
}

impl Drop for SourceSlot {
    fn drop(&mut self) {
        // If the watcher has ended, its copy is closed already.
        let _ = send_command(self.watcher.control.as_fd(), self.index, None);
        lock(&self.watcher.free_indices).give_back(self.index);
    }
}

impl Source {
    /// An empty notice, which sends nothing.
    #[must_use]
    pub fn notice(&self) -> Notice {
        Notice {
            slot: lock(&self.0.watcher.slots).take(),
            source: self.clone(),
        }
    }
}

/// A datagram that the watcher sends when this process ends, unless this is dropped first.
#[derive(Debug)]
pub struct Notice {
    slot: u32,
    source: Source,
}

impl Notice {
    /// Sets the packet to send, which is sealed for the identification 0. `sender` is the socket
    /// that the source was created from.
    ///
    /// # Panics
    /// If the packet is longer than a management datagram needs.
    pub fn set(&mut self, sender: &Sender, route: &Route, packet: &[u8]) -> io::Result<()> {
        let (name, control) = sender.addressing(route);
        let mut slot = [0; SLOT_LENGTH];
        let lengths = [
            packet.len(),
            self.source.0.index as usize,
            name.len(),
            control.bytes().len(),
        ];
        let (head, rest) = slot.split_at_mut(size_of::<[u32; 4]>());
        for (field, value) in head.chunks_exact_mut(4).zip(lengths) {
            field.copy_from_slice(&(value as u32).to_ne_bytes());
        }
        let (names, rest) = rest.split_at_mut(NAME_LENGTH);
        names[..name.len()].copy_from_slice(&name);
        let (controls, payload) = rest.split_at_mut(CONTROL_LENGTH);
        controls[..control.bytes().len()].copy_from_slice(control.bytes());
        payload[..PAYLOAD_LENGTH][..packet.len()].copy_from_slice(packet);
        self.source.0.watcher.write(self.slot, &slot)
    }

    /// Empties the notice, so that nothing is sent.
    pub fn clear(&mut self) {
        // This fails only if writing the packet failed, too. Then there is nothing to clear.
        let _ = self.source.0.watcher.write(self.slot, &EMPTY);
    }
}

/// The beginning of an empty slot.
const EMPTY: [u8; 4] = [0; 4];

impl Drop for Notice {
    fn drop(&mut self) {
        self.clear();
        lock(&self.source.0.watcher.slots).give_back(self.slot);
    }
}

/// Allocates numbers from a first one on. A number that is given back is used again.
#[derive(Debug, Default)]
struct Numbers {
    next: u32,
    free: Vec<u32>,
}

impl Numbers {
    fn from(next: u32) -> Self {
        Self {
            next,
            free: Vec::new(),
        }
    }

    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    fn give_back(&mut self, number: u32) {
        self.free.push(number);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{IpAddr, Ipv4Addr, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::sys::process;

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn watcher() -> Arc<Watcher> {
        Arc::new(Watcher::start().unwrap())
    }

    #[test]
    fn there_are_no_more_sources_than_descriptors_and_indices_are_given_back() {
        let watcher = watcher();
        let sender = Sender::bind(HOST).unwrap();
        let mut sources = Vec::new();
        let rejected = loop {
            match watcher.source(&sender) {
                Ok(source) => sources.push(source),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The watcher has not read the earlier commands yet.
                    std::thread::yield_now();
                }
                Err(error) => break error,
            }
            assert!(sources.len() <= MAX_DESCRIPTORS);
        };
        assert_eq!(rejected.kind(), io::ErrorKind::QuotaExceeded);
        let indices = sources.iter().map(|source| source.0.index as usize);
        assert!(indices.max().unwrap() < MAX_DESCRIPTORS);
        let given_back = sources.pop().unwrap().0.index;
        let index = lock(&watcher.free_indices).take();
        assert_eq!(index, given_back);
    }

    #[test]
    fn a_notice_that_is_dropped_is_not_sent_and_its_slot_is_used_again() {
        let watcher = watcher();
        let sender = Sender::bind(HOST).unwrap();
        let source = watcher.source(&sender).unwrap();
        let mut notice = source.notice();
        let route = Route::new(sender.flow_to(HOST));
        notice.set(&sender, &route, b"gone").unwrap();
        let length = |slot: u32| {
            let mut length = EMPTY;
            let offset = u64::from(slot) * SLOT_LENGTH as u64;
            watcher.table.read_exact_at(&mut length, offset).unwrap();
            u32::from_ne_bytes(length)
        };
        let slot = notice.slot;
        assert_eq!(length(slot), 4);
        drop(notice);
        assert_eq!(length(slot), 0);
        assert_eq!(source.notice().slot, slot);
    }

    #[test]
    fn there_are_no_more_notices_than_the_watcher_reads() {
        let watcher = watcher();
        let last = MAX_SLOTS as u32 - 1;
        assert!(watcher.write(last, &EMPTY).is_ok());
        let beyond = watcher.write(last + 1, &EMPTY).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::QuotaExceeded);
    }

    #[test]
    fn a_forked_child_has_neither_the_watcher_nor_its_descriptors() {
        let watcher = watcher();
        let current = Arc::downgrade(&watcher);
        assert!(living(&current).is_some());
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let child = process::fork(|| {
            let has_none = living(&current).is_none();
            // If this fails, the parent reads nothing, and the test fails.
            let _ = theirs.write_all(&[u8::from(has_none)]);
        });
        drop(theirs);
        let mut said = [0];
        ours.read_exact(&mut said).unwrap();
        let behind = [watcher.control.as_fd(), watcher.table.as_fd()].map(|fd| {
            let path = format!("/proc/{child}/fd/{}", fd.as_raw_fd());
            std::fs::read_link(path).unwrap()
        });
        process::end(child);
        assert_eq!(said, [1]);
        assert_eq!(behind, ["/dev/null"; 2].map(PathBuf::from));
    }

    #[test]
    fn a_source_that_is_dropped_leaves_no_socket_with_the_watcher() {
        let watcher = watcher();
        let sender = Sender::bind(HOST).unwrap();
        let source = watcher.source(&sender).unwrap();
        let port = sender.flow_to(HOST).source_port;
        drop((source, sender));
        let begin = Instant::now();
        while UdpSocket::bind((HOST, port)).is_err() {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "the port is held"
            );
            std::thread::yield_now();
        }
    }
}

//! Datagram sockets.
//!
//! The number of such a socket is that of a UDP socket. The first datagrams of a peer come over UDP, with a
//! header that names its queue pair; the reply names ours. Later datagrams go from queue pair to queue pair.
//! Every call receives from both.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{Address, Destination};
use net::socket::interface::source_towards;
use wire::{Gid, QueueKey};

use super::datagram_header::{
    DatagramHeader, MAX_MESSAGE, MAX_UDP_MESSAGE, UdpHeader, UdpOperation,
};
use super::datagram_peers::{Peer, Peers};
use super::datagram_queue_pair::DatagramQueuePair;
use super::epoll_syscalls;
use super::option::SOL_RDMA;
use super::readiness::Readiness;
use super::settings::Flags;
use super::wait::Wait;
use crate::errno::Errno;
use crate::rdmacm::socket_address::{length, stored};

/// The most datagrams that wait to be read; more are dropped, as by any datagram socket.
const BACKLOG: usize = 1024;

/// The Q_Key of all UD queue pairs of the connection manager.
const QUEUE_KEY: QueueKey = QueueKey::new(0x0123_4567);

/// A datagram socket.
pub(super) struct Datagram {
    udp: UdpSocket,
    /// Readable when a datagram has arrived, over UDP or a queue pair.
    epoll: OwnedFd,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Our queue pairs, by their address.
    queue_pairs: HashMap<IpAddr, DatagramQueuePair>,
    peers: Peers,
    arrived: VecDeque<(SocketAddr, Vec<u8>)>,
    connected: Option<SocketAddr>,
    flags: Flags,
    /// How many receives returned EAGAIN.
    would_block_count: u32,
}

impl Datagram {
    pub(super) fn new(family: i32, flags: Flags) -> Result<Self, Errno> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes no pointers.
        let udp = owned(unsafe { libc::socket(family, kind, 0) })?;
        let epoll = owned(epoll_syscalls::epoll_create(libc::EPOLL_CLOEXEC)?)?;
        let datagram = Self {
            udp: udp.into(),
            epoll,
            inner: Mutex::new(Inner {
                flags,
                ..Inner::default()
            }),
        };
        datagram.watch(datagram.number())?;
        Ok(datagram)
    }

    pub(super) fn number(&self) -> RawFd {
        self.udp.as_raw_fd()
    }

    pub(super) fn bind(&self, address: SocketAddr) -> Result<(), Errno> {
        let storage = stored(address);
        // SAFETY: a live address of this length.
        let bound = unsafe {
            libc::bind(
                self.number(),
                (&raw const storage).cast(),
                length(&address) as libc::socklen_t,
            )
        };
        match bound {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    }

    /// Sets an option of the UDP socket. The queue pairs have none.
    ///
    /// # Safety
    /// There are `length` bytes at `value`.
    pub(super) unsafe fn set_option(
        &self,
        level: i32,
        name: i32,
        value: *const libc::c_void,
        length: libc::socklen_t,
    ) -> Result<(), Errno> {
        if level == SOL_RDMA {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        match unsafe { libc::setsockopt(self.number(), level, name, value, length) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    }

    /// Writes an option of the UDP socket.
    ///
    /// # Safety
    /// The requirements of `getsockopt`.
    pub(super) unsafe fn option(
        &self,
        level: i32,
        name: i32,
        value: *mut libc::c_void,
        length: *mut libc::socklen_t,
    ) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        match unsafe { libc::getsockopt(self.number(), level, name, value, length) } {
            0 => Ok(()),
            _ => Err(Errno::UNSUPPORTED),
        }
    }

    /// Sets the destination of `rsend`.
    pub(super) fn connect(&self, peer: SocketAddr) -> Result<(), Errno> {
        let mut inner = self.lock();
        self.peer(&mut inner, peer)?;
        inner.connected = Some(peer);
        Ok(())
    }

    pub(super) fn send(&self, data: &[u8], to: Option<SocketAddr>) -> Result<usize, Errno> {
        let mut inner = self.lock();
        self.progress(&mut inner);
        let to = to.or(inner.connected).ok_or(Errno(libc::EDESTADDRREQ))?;
        let peer = self.peer(&mut inner, to)?;
        let from = SocketAddr::new(peer.ours, self.port());
        if DatagramHeader(from).emit().len() + data.len() > MAX_MESSAGE {
            return Err(Errno(libc::EMSGSIZE));
        }
        match peer.known {
            Some(destination) => {
                let message = [&DatagramHeader(from).emit(), data].concat();
                let queue_pair = inner.queue_pairs.get(&peer.ours).ok_or(Errno::INVALID)?;
                queue_pair.send(&message, destination)?;
            }
            None => self.introduce(&inner, peer.ours, to, UdpOperation::Data, data)?,
        }
        Ok(data.len())
    }

    pub(super) fn receive(
        &self,
        into: &mut [u8],
        flags: i32,
    ) -> Result<(usize, SocketAddr), Errno> {
        loop {
            let mut inner = self.lock();
            self.progress(&mut inner);
            let next = match flags & libc::MSG_PEEK {
                0 => inner.arrived.pop_front(),
                _ => inner.arrived.front().cloned(),
            };
            if let Some((from, data)) = next {
                let length = data.len().min(into.len());
                into[..length].copy_from_slice(&data[..length]);
                return Ok((length, from));
            }
            if inner.flags.nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
                inner.would_block_count = inner.would_block_count.wrapping_add(1);
                return Err(Errno::TRY_AGAIN);
            }
            inner.arm();
            self.progress(&mut inner);
            let is_empty = inner.arrived.is_empty();
            drop(inner);
            if is_empty {
                self.sleep();
            }
        }
    }

    /// What it is ready for now. The next datagram ends the wait, if there is one.
    pub(super) fn readiness(&self, wait: Option<&mut Wait>) -> Readiness {
        let mut inner = self.lock();
        if let Some(wait) = wait {
            inner.arm();
            wait.add_socket(self.epoll.as_raw_fd());
        }
        self.progress(&mut inner);
        Readiness {
            reading: !inner.arrived.is_empty(),
            writing: true,
            changes: u64::from(inner.would_block_count) << 16 | inner.arrived.len() as u64,
            ..Readiness::default()
        }
    }

    pub(super) fn with_flags<T>(&self, act: impl FnOnce(&mut Flags) -> T) -> T {
        act(&mut self.lock().flags)
    }

    pub(super) fn local_address(&self) -> Result<SocketAddr, Errno> {
        Ok(self.udp.local_addr()?)
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        self.lock().connected
    }

    pub(super) fn close(&self) {
        self.lock().queue_pairs.clear();
    }

    /// Receives over UDP and from the queue pairs.
    fn progress(&self, inner: &mut Inner) {
        let mut buffer = [0; MAX_UDP_MESSAGE];
        while let Ok((length, from)) = self.udp.recv_from(&mut buffer) {
            if let Some((header, data)) = UdpHeader::parse(&buffer[..length]) {
                // A peer that we can't answer stays unknown.
                let _ = self.set_peer(inner, from, &header, data);
            }
        }
        let Inner {
            queue_pairs,
            arrived,
            ..
        } = inner;
        for queue_pair in queue_pairs.values() {
            queue_pair.receive(|message| {
                if let Some((sender, data)) = DatagramHeader::parse(message)
                    && arrived.len() < BACKLOG
                {
                    arrived.push_back((sender.0, data.to_vec()));
                }
            });
        }
    }

    /// Stores the queue pair of a peer, and tells it ours.
    fn set_peer(
        &self,
        inner: &mut Inner,
        from: SocketAddr,
        header: &UdpHeader,
        data: &[u8],
    ) -> Result<(), Errno> {
        let peer = self.peer(inner, from)?;
        let queue_pair = inner.queue_pairs.get(&peer.ours).ok_or(Errno::INVALID)?;
        let index = queue_pair.address_index(peer.ours).ok_or(Errno::INVALID)?;
        let known = Destination {
            address: Address::new(Gid::from(from.ip()), index),
            queue_pair: header.queue_pair,
            queue_key: QUEUE_KEY,
        };
        inner.peers.insert(
            from,
            Peer {
                known: Some(known),
                ..peer
            },
        );
        if header.operation == UdpOperation::Data {
            if inner.arrived.len() < BACKLOG {
                inner.arrived.push_back((from, data.to_vec()));
            }
            self.introduce(inner, peer.ours, from, UdpOperation::Control, &[])?;
        }
        Ok(())
    }

    /// Sends the number of our queue pair over UDP.
    fn introduce(
        &self,
        inner: &Inner,
        ours: IpAddr,
        to: SocketAddr,
        operation: UdpOperation,
        data: &[u8],
    ) -> Result<(), Errno> {
        let queue_pair = inner.queue_pairs.get(&ours).ok_or(Errno::INVALID)?;
        let header = UdpHeader {
            operation,
            queue_pair: queue_pair.number(),
            address: ours,
        };
        let message = [&header.emit(), data].concat();
        self.udp.send_to(&message, to)?;
        Ok(())
    }

    /// The entry of a peer, with a queue pair at our address that reaches it.
    fn peer(&self, inner: &mut Inner, peer: SocketAddr) -> Result<Peer, Errno> {
        if let Some(known) = inner.peers.find(peer) {
            return Ok(known);
        }
        let bound = self.udp.local_addr().ok().map(|it| it.ip());
        let ours = match bound.filter(|ip| !ip.is_unspecified()) {
            Some(ip) => ip,
            None => source_towards(peer)?,
        };
        if let Entry::Vacant(entry) = inner.queue_pairs.entry(ours) {
            let queue_pair = DatagramQueuePair::make(ours)?;
            self.watch(queue_pair.descriptor())?;
            entry.insert(queue_pair);
        }
        let new = Peer { ours, known: None };
        inner.peers.insert(peer, new);
        Ok(new)
    }

    fn port(&self) -> u16 {
        self.udp.local_addr().map_or(0, |it| it.port())
    }

    fn watch(&self, descriptor: RawFd) -> Result<(), Errno> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        let (epoll, add) = (self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD);
        // SAFETY: a live structure during the call.
        unsafe { epoll_syscalls::epoll_control(epoll, add, descriptor, &raw mut event) }
    }

    fn sleep(&self) {
        const RECHECK_INTERVAL: Duration = Duration::from_secs(1);
        let mut entry = libc::pollfd {
            fd: self.epoll.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the kernel reads and writes the one live entry.
        let found = unsafe { libc::poll(&raw mut entry, 1, RECHECK_INTERVAL.as_millis() as i32) };
        if found < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // A sandbox may forbid it: it would fail again at once.
            std::thread::sleep(RECHECK_INTERVAL);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Arms the descriptor for the next datagram.
    fn arm(&self) {
        self.queue_pairs.values().for_each(DatagramQueuePair::arm);
    }
}

fn owned(descriptor: RawFd) -> Result<OwnedFd, Errno> {
    if descriptor < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the kernel just returned this descriptor, and it is not shared.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

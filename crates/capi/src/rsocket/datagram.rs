//! Datagram sockets.
//!
//! The number of such a socket is that of a UDP socket. A peer's first datagrams come over UDP, with
//! an introduction that names its queue pair; the answer names ours. From then on datagrams go from
//! queue pair to queue pair. Both ways are looked at in every call.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{Address, Destination};
use net::interface::source_towards;
use wire::{Gid, QueueKey};

use super::kernel;
use super::message::{Introduction, Purpose, Sender};
use super::poll::Readiness;
use super::station::Station;
use crate::errno::Errno;
use crate::rdmacm::address::{length, stored};

/// The longest message, with what goes before the data.
pub(super) const LONGEST: usize = 2048;

/// Datagrams that may wait to be read; more are lost, as they are with any datagram socket.
const BACKLOG: usize = 1024;

/// The Q_Key of all queue pairs that the connection manager makes for datagrams.
const QUEUE_KEY: QueueKey = QueueKey::new(0x0123_4567);

/// A datagram socket.
pub(super) struct Datagram {
    udp: UdpSocket,
    /// Readable when something has come, over whatever way.
    epoll: OwnedFd,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Our queue pairs, by the address that they are at.
    stations: HashMap<IpAddr, Station>,
    /// The peers' queue pairs, and from which address of ours they are reached.
    peers: HashMap<SocketAddr, Peer>,
    arrived: VecDeque<(SocketAddr, Vec<u8>)>,
    connected: Option<SocketAddr>,
    flags: i32,
    /// How many receives would have had to wait.
    refusals: u32,
}

#[derive(Clone, Copy)]
struct Peer {
    ours: IpAddr,
    known: Option<Destination>,
}

impl Datagram {
    pub(super) fn new(family: i32) -> Result<Self, Errno> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes no pointers.
        let udp = owned(unsafe { libc::socket(family, kind, 0) })?;
        let epoll = owned(kernel::epoll_create(libc::EPOLL_CLOEXEC)?)?;
        let datagram = Self {
            udp: udp.into(),
            epoll,
            inner: Mutex::default(),
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

    /// From now on this is whom `rsend` sends to.
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
        if Sender(from).emit().len() + data.len() > LONGEST {
            return Err(Errno(libc::EMSGSIZE));
        }
        match peer.known {
            Some(destination) => {
                let message = [&Sender(from).emit(), data].concat();
                let station = inner.stations.get(&peer.ours).ok_or(Errno::INVALID)?;
                station.send(&message, destination)?;
            }
            None => self.introduce(&inner, peer.ours, to, Purpose::Data, data)?,
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
            if (inner.flags & libc::O_NONBLOCK) | (flags & libc::MSG_DONTWAIT) != 0 {
                inner.refusals = inner.refusals.wrapping_add(1);
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

    pub(super) fn readiness(&self) -> Readiness {
        let mut inner = self.lock();
        inner.arm();
        self.progress(&mut inner);
        Readiness {
            reading: !inner.arrived.is_empty(),
            writing: true,
            changes: u64::from(inner.refusals) << 16 | inner.arrived.len() as u64,
            ..Readiness::default()
        }
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    pub(super) fn set_flags(&self, flags: i32) {
        self.lock().flags = flags;
    }

    pub(super) fn flags(&self) -> i32 {
        self.lock().flags
    }

    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.udp.local_addr().ok()
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        self.lock().connected
    }

    pub(super) fn close(&self) {
        self.lock().stations.clear();
    }

    /// Takes what has come over both ways.
    fn progress(&self, inner: &mut Inner) {
        let mut buffer = [0; LONGEST];
        while let Ok((length, from)) = self.udp.recv_from(&mut buffer) {
            if let Some((introduction, data)) = Introduction::parse(&buffer[..length]) {
                // A peer that we can't answer is one that we don't know.
                let _ = self.meet(inner, from, &introduction, data);
            }
        }
        let Inner {
            stations, arrived, ..
        } = inner;
        for station in stations.values() {
            station.receive(|message| {
                if let Some((sender, data)) = Sender::parse(message)
                    && arrived.len() < BACKLOG
                {
                    arrived.push_back((sender.0, data.to_vec()));
                }
            });
        }
    }

    /// A peer has introduced itself: it learns our queue pair, and we know its own.
    fn meet(
        &self,
        inner: &mut Inner,
        from: SocketAddr,
        introduction: &Introduction,
        data: &[u8],
    ) -> Result<(), Errno> {
        let peer = self.peer(inner, from)?;
        let station = inner.stations.get(&peer.ours).ok_or(Errno::INVALID)?;
        let index = station.address_index(peer.ours).ok_or(Errno::INVALID)?;
        let known = Destination {
            address: Address::new(Gid::from(from.ip()), index),
            queue_pair: introduction.queue_pair,
            queue_key: QUEUE_KEY,
        };
        inner.peers.insert(
            from,
            Peer {
                known: Some(known),
                ..peer
            },
        );
        if introduction.purpose == Purpose::Data {
            if inner.arrived.len() < BACKLOG {
                inner.arrived.push_back((from, data.to_vec()));
            }
            self.introduce(inner, peer.ours, from, Purpose::Control, &[])?;
        }
        Ok(())
    }

    /// Says over UDP where our queue pair is.
    fn introduce(
        &self,
        inner: &Inner,
        ours: IpAddr,
        to: SocketAddr,
        purpose: Purpose,
        data: &[u8],
    ) -> Result<(), Errno> {
        let station = inner.stations.get(&ours).ok_or(Errno::INVALID)?;
        let introduction = Introduction {
            purpose,
            queue_pair: station.number(),
            address: ours,
        };
        let message = [&introduction.emit(), data].concat();
        self.udp.send_to(&message, to)?;
        Ok(())
    }

    /// What we know about a peer, with a queue pair at the address from which it is reached.
    fn peer(&self, inner: &mut Inner, peer: SocketAddr) -> Result<Peer, Errno> {
        if let Some(known) = inner.peers.get(&peer) {
            return Ok(*known);
        }
        let bound = self.udp.local_addr().ok().map(|it| it.ip());
        let ours = match bound.filter(|ip| !ip.is_unspecified()) {
            Some(ip) => ip,
            None => source_towards(peer)?,
        };
        if let Entry::Vacant(place) = inner.stations.entry(ours) {
            let station = Station::make(ours)?;
            self.watch(station.descriptor())?;
            place.insert(station);
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
        // SAFETY: a live structure, for the time of the call.
        unsafe { kernel::epoll_control(epoll, add, descriptor, &raw mut event) }
    }

    fn sleep(&self) {
        const PATIENCE: Duration = Duration::from_secs(1);
        let mut entry = libc::pollfd {
            fd: self.epoll.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the kernel reads and writes the one live entry.
        unsafe { libc::poll(&raw mut entry, 1, PATIENCE.as_millis() as i32) };
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Lets the descriptor tell of what comes next.
    fn arm(&self) {
        self.stations.values().for_each(Station::arm);
    }
}

fn owned(descriptor: RawFd) -> Result<OwnedFd, Errno> {
    if descriptor < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

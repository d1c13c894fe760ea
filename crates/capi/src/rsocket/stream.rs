//! Stream sockets.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use driver::rdma_cm::{CmId, EventChannel, Parameters, PeerParameters, PortSpace};
use driver::{Driver, Watch};
use net::poll::Interest;
use wire::{Key, RnrTimer};

use super::connection::Connection;
use super::protocol::{ConnectionData, Mapping, Message};
use super::readiness::Readiness;
use super::send_side::{FIRST_PIECE, MAX_PIECE};
use super::settings::{Flags, Options, Sizes};
use super::wait::Wait;
use crate::errno::Errno;
use crate::rdmacm::of_bind;

/// A waiting thread checks the connection at least at this interval, even if nothing wakes it.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The limit for resolving an address or a route.
pub(super) const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

const WOULD_BLOCK: Errno = Errno::TRY_AGAIN;
const NOT_CONNECTED: Errno = Errno(libc::ENOTCONN);

/// A stream socket. Its number is the descriptor of its channel.
pub(super) struct Stream {
    channel: EventChannel,
    inner: Mutex<Inner>,
}

pub(super) struct Inner {
    pub(super) cm_id: CmId,
    pub(super) phase: Phase,
    pub(super) connection: Option<Connection>,
    pub(super) sizes: Sizes,
    pub(super) options: Options,
    /// The error of the connection, until it is read.
    pub(super) error: Option<Errno>,
    pub(super) requests: VecDeque<(CmId, PeerParameters)>,
    /// How many calls returned EAGAIN.
    would_block_count: u32,
    pub(super) mapped: Vec<MappedMemory>,
}

/// Memory of the program that the peer may write.
pub(super) struct MappedMemory {
    pub(super) start: usize,
    pub(super) length: usize,
    pub(super) key: Key,
    /// Its entry in the peer's map; `None` if only this side uses it.
    pub(super) entry: Option<u16>,
    pub(super) mapping: Mapping,
    pub(super) published: bool,
}

/// What a call waits for.
#[derive(Clone, Copy)]
enum Direction {
    Send,
    Receive,
}

impl Inner {
    fn is_connected(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.open.connected)
    }

    /// The error of a call that would block. An edge-triggered waiter gets the next event after it.
    fn would_block(&mut self) -> Errno {
        self.would_block_count = self.would_block_count.wrapping_add(1);
        WOULD_BLOCK
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Listening,
    /// The address or route is being resolved, or the peer has not answered.
    Opening,
    /// Accepted; the peer has not confirmed.
    Accepting,
    Connected,
    Failed,
}

impl Stream {
    pub(super) fn new(family: i32, flags: Flags) -> Result<Self, Errno> {
        let channel = EventChannel::new()?;
        let cm_id = channel.create_id(PortSpace::Tcp);
        cm_id.set_rnr_timer(rnr_timer())?;
        let stream = Self::of(channel, cm_id, Phase::New, None, Sizes::default());
        stream.lock().options = Options {
            flags,
            is_ipv6: family == libc::AF_INET6,
            ..Options::default()
        };
        Ok(stream)
    }

    fn of(
        channel: EventChannel,
        cm_id: CmId,
        phase: Phase,
        connection: Option<Connection>,
        sizes: Sizes,
    ) -> Self {
        Self {
            channel,
            inner: Mutex::new(Inner {
                cm_id,
                phase,
                connection,
                sizes,
                options: Options::default(),
                error: None,
                requests: VecDeque::new(),
                would_block_count: 0,
                mapped: Vec::new(),
            }),
        }
    }

    pub(super) fn number(&self) -> RawFd {
        self.channel.as_fd().as_raw_fd()
    }

    pub(super) fn bind(&self, address: SocketAddr) -> Result<(), Errno> {
        let inner = self.lock();
        if inner.phase != Phase::New {
            return Err(Errno::INVALID);
        }
        inner.cm_id.bind(address).map_err(of_bind)?;
        Ok(())
    }

    pub(super) fn listen(&self, backlog: i32) -> Result<(), Errno> {
        let mut inner = self.lock();
        match inner.phase {
            Phase::Listening => return Ok(()),
            Phase::New => {}
            _ => return Err(Errno::INVALID),
        }
        inner.cm_id.listen(usize::try_from(backlog).unwrap_or(0))?;
        inner.phase = Phase::Listening;
        Ok(())
    }

    /// Accepts the next connection.
    pub(super) fn accept(&self) -> Result<Self, Errno> {
        loop {
            let mut inner = self.lock();
            if inner.phase != Phase::Listening {
                return Err(Errno(libc::EBADF));
            }
            inner.handle_events(&self.channel);
            if let Some((cm_id, offer)) = inner.requests.pop_front() {
                let (sizes, options) = (inner.sizes, inner.options);
                drop(inner);
                // A peer that is not an rsocket is rejected, and the next one is tried.
                match Self::accept_request(cm_id, &offer, sizes, options) {
                    Ok(accepted) => return Ok(accepted),
                    Err(_) => continue,
                }
            }
            if inner.options.flags.nonblocking() {
                return Err(inner.would_block());
            }
            drop(inner);
            self.wait_for_event();
        }
    }

    fn accept_request(
        cm_id: CmId,
        offer: &PeerParameters,
        sizes: Sizes,
        options: Options,
    ) -> Result<Self, Errno> {
        let peer = ConnectionData::parse(&offer.private_data).ok_or(Errno::INVALID)?;
        let channel = EventChannel::new()?;
        cm_id.migrate(&channel);
        cm_id.set_rnr_timer(rnr_timer())?;
        let mut connection = Connection::make(&cm_id, sizes)?;
        connection.set_peer(peer, &cm_id)?;
        let connection_data = connection.connection_data().emit();
        cm_id.accept(&Parameters {
            private_data: &connection_data,
            responder_resources: 0,
            initiator_depth: 0,
            ..Parameters::new(connection.number())
        })?;
        let stream = Self::of(channel, cm_id, Phase::Accepting, Some(connection), sizes);
        if !options.flags.nonblocking() {
            let inner = stream.lock();
            drop(stream.wait_until_open(inner)?);
        }
        Ok(stream)
    }

    pub(super) fn connect(&self, peer: SocketAddr) -> Result<(), Errno> {
        let mut inner = self.lock();
        match inner.phase {
            Phase::New => {
                inner.cm_id.resolve_address(None, peer, RESOLVE_TIMEOUT)?;
                inner.phase = Phase::Opening;
            }
            Phase::Opening => {}
            // Another call may have seen the answer before.
            Phase::Connected if inner.is_connected() => return Ok(()),
            Phase::Connected | Phase::Failed => return Err(NOT_CONNECTED),
            Phase::Listening | Phase::Accepting => return Err(Errno::INVALID),
        }
        match self.wait_until_open(inner) {
            Err(WOULD_BLOCK) => Err(Errno(libc::EINPROGRESS)),
            opened => opened.map(drop),
        }
    }

    /// Waits until the connection is established or has failed.
    fn wait_until_open<'s>(
        &'s self,
        mut inner: MutexGuard<'s, Inner>,
    ) -> Result<MutexGuard<'s, Inner>, Errno> {
        loop {
            inner.handle_events(&self.channel);
            match inner.phase {
                Phase::Connected => return Ok(inner),
                Phase::Opening | Phase::Accepting => {}
                Phase::Failed => return Err(inner.error.take().unwrap_or(NOT_CONNECTED)),
                Phase::New | Phase::Listening => return Err(NOT_CONNECTED),
            }
            if inner.options.flags.nonblocking() {
                return Err(inner.would_block());
            }
            drop(inner);
            self.wait_for_event();
            inner = self.lock();
        }
    }

    /// Sends data. Returns how much: all of it, unless the call must not block or the connection ends.
    pub(super) fn send(&self, data: &[u8], flags: i32) -> Result<usize, Errno> {
        self.send_with(data, flags, |connection, rest, limit, _| {
            connection.send_piece(rest, limit).map(Some)
        })
    }

    /// Sends piece by piece with `send`, until it returns `None`.
    pub(super) fn send_with(
        &self,
        data: &[u8],
        flags: i32,
        send: impl Fn(&mut Connection, &[u8], usize, usize) -> Result<Option<usize>, Errno>,
    ) -> Result<usize, Errno> {
        let mut inner = self.wait_until_open(self.lock())?;
        let nonblocking = inner.options.flags.nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        inner.send_mappings()?;
        let (mut sent, mut piece) = (0, FIRST_PIECE);
        while sent < data.len() {
            let able = |connection: &Connection| connection.can_send() || !connection.open.writing;
            inner = match self.wait(inner, Direction::Send, nonblocking, able) {
                Ok(inner) => inner,
                Err(_) if sent > 0 => return Ok(sent),
                Err(errno) => return Err(errno),
            };
            let connection = inner.connection.as_mut().ok_or(NOT_CONNECTED)?;
            if !connection.open.writing {
                return match sent {
                    0 => Err(connection.open.error.unwrap_or(Errno(libc::ECONNRESET))),
                    sent => Ok(sent),
                };
            }
            let Some(length) = send(connection, &data[sent..], piece, sent)? else {
                break;
            };
            sent += length;
            piece = (piece * 2).min(MAX_PIECE);
        }
        Ok(sent)
    }

    /// Receives data. Returns how much: 0 when the peer sends no more data.
    pub(super) fn receive(&self, into: &mut [u8], flags: i32) -> Result<usize, Errno> {
        let mut inner = self.wait_until_open(self.lock())?;
        let nonblocking = inner.options.flags.nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        let peek = flags & libc::MSG_PEEK != 0;
        let all = flags & libc::MSG_WAITALL != 0 && !peek;
        let mut received = 0;
        while received < into.len() {
            let able = |connection: &Connection| connection.has_data() || !connection.open.reading;
            inner = match self.wait(inner, Direction::Receive, nonblocking, able) {
                Ok(inner) => inner,
                Err(_) if received > 0 => break,
                Err(errno) => return Err(errno),
            };
            let connection = inner.connection.as_mut().ok_or(NOT_CONNECTED)?;
            let copied = connection.receive_into(&mut into[received..], peek);
            received += copied;
            // Space is free again, and the peer may be waiting for it.
            connection.handle_completions();
            match (copied, connection.open.error) {
                (0, Some(errno)) if received == 0 => return Err(errno),
                (0, _) => break,
                _ if !all => break,
                _ => {}
            }
        }
        Ok(received)
    }

    /// The most bytes that can wait to be read.
    pub(super) fn receive_buffer(&self) -> usize {
        let inner = self.lock();
        let sizes = inner.connection.as_ref().map_or(inner.sizes, |it| it.sizes);
        sizes.receive_buffer as usize
    }

    /// Shuts down one direction, or both.
    pub(super) fn shut_down(&self, how: i32) -> Result<(), Errno> {
        if !matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR) {
            return Err(Errno::INVALID);
        }
        let mut inner = self.lock();
        inner.handle_events(&self.channel);
        let Some(connection) = inner.connection.as_mut() else {
            return Err(NOT_CONNECTED);
        };
        // Threads that wait check the connection again when this one has released it.
        connection.waiting.wake_all();
        if how == libc::SHUT_RD {
            connection.open.reading = false;
            if connection.open.writing {
                return Ok(());
            }
        }
        if !connection.open.connected {
            return Ok(());
        }
        connection.open.writing = false;
        if how == libc::SHUT_RDWR {
            connection.open.reading = false;
        }
        let message = if connection.open.reading {
            Message::Shutdown
        } else {
            Message::Disconnect
        };
        inner = self.wait(inner, Direction::Send, false, |connection| {
            connection.can_send_control() || !connection.open.connected
        })?;
        let connection = inner.connection.as_mut().ok_or(NOT_CONNECTED)?;
        if connection.open.connected {
            connection.send_control(message)?;
        }
        let mut inner = self.wait(inner, Direction::Send, false, |connection| {
            connection.is_idle() || !connection.open.connected
        })?;
        if message == Message::Disconnect
            && let Some(connection) = inner.connection.as_mut()
        {
            connection.end_connection();
            connection.stop_queue_pair();
        }
        Ok(())
    }

    /// Closes the socket.
    pub(super) fn close(&self) {
        // After a failure there is no peer to notify.
        let _ = self.shut_down(libc::SHUT_RDWR);
        self.lock().deregister_mappings();
    }

    /// Waits until the condition holds.
    fn wait<'s>(
        &'s self,
        mut inner: MutexGuard<'s, Inner>,
        awaited: Direction,
        nonblocking: bool,
        wanted: impl Fn(&Connection) -> bool,
    ) -> Result<MutexGuard<'s, Inner>, Errno> {
        loop {
            inner.handle_events(&self.channel);
            let connection = inner.connection.as_mut().ok_or(NOT_CONNECTED)?;
            connection.handle_completions();
            if nonblocking && !wanted(connection) {
                connection.progress();
            }
            if wanted(connection) {
                return Ok(inner);
            }
            if nonblocking {
                return Err(match awaited {
                    // The next message counts as news by itself.
                    Direction::Receive => WOULD_BLOCK,
                    Direction::Send => inner.would_block(),
                });
            }
            // It is watched first and then checked, so that no change is missed.
            let mut watch = Watch::new();
            connection.watch(&mut watch);
            if wanted(connection) {
                return Ok(inner);
            }
            let driver = Arc::clone(&connection.driver);
            drop(inner);
            self.sleep(&driver, &watch)?;
            inner = self.lock();
        }
    }

    fn sleep(&self, driver: &Driver, watch: &Watch) -> Result<(), Errno> {
        let until = Instant::now() + RECHECK_INTERVAL;
        let events = [Interest::readable(self.channel.as_fd())];
        driver.sleep_watching(watch, &events, until)?;
        Ok(())
    }

    fn wait_for_event(&self) {
        if let Some(event) = self.channel.wait_for(RECHECK_INTERVAL) {
            self.lock().handle(event);
        }
    }

    /// What it is ready for now. Every change from now on ends the wait, if there is one.
    pub(super) fn readiness(&self, wait: Option<&mut Wait>) -> Readiness {
        let mut inner = self.lock();
        inner.handle_events(&self.channel);
        let requests = inner.requests.len() as u64;
        let would_block_count = u64::from(inner.would_block_count);
        let phase = inner.phase;
        let mut connection = inner.connection.as_mut();
        connection = connection.filter(|_| phase == Phase::Connected);
        if let Some(connection) = &mut connection {
            connection.handle_completions();
        }
        if let Some(wait) = wait {
            wait.add_socket(self.number());
            if let Some(connection) = &mut connection {
                wait.add_connection(connection);
            }
        }
        match (phase, connection) {
            (_, Some(connection)) => Readiness {
                reading: connection.has_data() || !connection.open.reading,
                writing: connection.can_send(),
                unread: connection.has_data(),
                hung_up: !connection.open.connected,
                error: connection.open.error.is_some(),
                changes: would_block_count << 16 | u64::from(connection.receive.received_data),
            },
            (Phase::Listening, _) => Readiness {
                reading: requests > 0,
                changes: would_block_count << 16 | requests,
                ..Readiness::default()
            },
            (Phase::Failed, _) => Readiness {
                reading: true,
                writing: true,
                hung_up: true,
                error: true,
                ..Readiness::default()
            },
            _ => Readiness::default(),
        }
    }

    /// Receives the packets that have arrived for it, and for all others that the same lane serves. Leaves out a lane that is among
    /// `served`, and adds its own.
    pub(super) fn receive_packets(&self, served: &mut Vec<Arc<Driver>>) {
        let mut inner = self.lock();
        if let (Phase::Connected, Some(connection)) = (inner.phase, inner.connection.as_mut())
            && !served
                .iter()
                .any(|it| it.shares_lane_with(&connection.driver))
        {
            connection.progress();
            served.push(Arc::clone(&connection.driver));
        }
    }

    /// Its local address; the unspecified one of its family if it has none.
    pub(super) fn local_address(&self) -> SocketAddr {
        let inner = self.lock();
        let nowhere = if inner.options.is_ipv6 {
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))
        } else {
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
        };
        inner.cm_id.local_address().unwrap_or(nowhere)
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        self.lock().cm_id.peer_address()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a peer waits when no receive is posted. This happens, because credits count only messages with
/// data. 0.64 ms instead of the usual 655 ms.
fn rnr_timer() -> RnrTimer {
    const CODE: u8 = 12;
    RnrTimer::new(CODE).expect("a code has five bits")
}

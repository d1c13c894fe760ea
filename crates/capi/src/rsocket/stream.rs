//! Stream sockets.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rocinante::rdma_cm::{EventChannel, Identifier, Offer, Parameters, PortSpace};
use wire::RnrTimer;

use super::direct::Mapped;
use super::opening::RESOLVING;
use super::option::Options;
use super::outgoing::{FIRST_PIECE, LONGEST_PIECE};
use super::pipe::Pipe;
use super::poll::Readiness;
use super::protocol::{Greeting, Message};
use super::sizes::Sizes;
use crate::errno::Errno;

/// Who waits looks again by himself after so long, should nobody wake him.
const PATIENCE: Duration = Duration::from_secs(1);

const WOULD_BLOCK: Errno = Errno::TRY_AGAIN;
const NOT_CONNECTED: Errno = Errno(libc::ENOTCONN);

/// A stream socket. Its number is the descriptor of its channel.
pub(super) struct Stream {
    channel: EventChannel,
    inner: Mutex<Inner>,
    /// Told to those who wait while another one sleeps for them.
    changed: Condvar,
}

pub(super) struct Inner {
    pub(super) identifier: Identifier,
    pub(super) phase: Phase,
    pub(super) pipe: Option<Pipe>,
    pub(super) sizes: Sizes,
    pub(super) options: Options,
    /// Why there is no connection, until somebody asks.
    pub(super) error: Option<Errno>,
    pub(super) requests: VecDeque<(Identifier, Offer)>,
    /// Whether somebody sleeps on the pipe for all.
    served: bool,
    /// How many calls would have had to wait.
    refusals: u32,
    pub(super) mapped: Vec<Mapped>,
}

impl Inner {
    /// What a call is told that would have to wait. Whoever waits for changes hears of the next one.
    fn refuse(&mut self) -> Errno {
        self.refusals = self.refusals.wrapping_add(1);
        WOULD_BLOCK
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Listening,
    /// Addresses and routes are looked for, or the peer is asked.
    Opening,
    /// We agreed; the peer is about to be ready.
    Accepting,
    Connected,
    Failed,
}

impl Stream {
    pub(super) fn new() -> Result<Self, Errno> {
        let channel = EventChannel::new()?;
        let identifier = channel.create(PortSpace::Tcp);
        identifier.set_rnr_timer(not_ready())?;
        Ok(Self::of(
            channel,
            identifier,
            Phase::New,
            None,
            Sizes::default(),
        ))
    }

    fn of(
        channel: EventChannel,
        identifier: Identifier,
        phase: Phase,
        pipe: Option<Pipe>,
        sizes: Sizes,
    ) -> Self {
        Self {
            channel,
            inner: Mutex::new(Inner {
                identifier,
                phase,
                pipe,
                sizes,
                options: Options::default(),
                error: None,
                requests: VecDeque::new(),
                served: false,
                refusals: 0,
                mapped: Vec::new(),
            }),
            changed: Condvar::new(),
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
        inner.identifier.bind(address)?;
        Ok(())
    }

    pub(super) fn listen(&self, backlog: i32) -> Result<(), Errno> {
        let mut inner = self.lock();
        match inner.phase {
            Phase::Listening => return Ok(()),
            Phase::New => {}
            _ => return Err(Errno::INVALID),
        }
        inner
            .identifier
            .listen(usize::try_from(backlog).unwrap_or(0))?;
        inner.phase = Phase::Listening;
        Ok(())
    }

    /// The next connection, of which the peer knows as soon as it is asked for something.
    pub(super) fn accept(&self) -> Result<Self, Errno> {
        loop {
            let mut inner = self.lock();
            if inner.phase != Phase::Listening {
                return Err(Errno(libc::EBADF));
            }
            inner.pump(&self.channel);
            if let Some((identifier, offer)) = inner.requests.pop_front() {
                let (sizes, options) = (inner.sizes, inner.options);
                drop(inner);
                // A peer that is no socket is refused, and the next one has its turn.
                match Self::welcome(identifier, &offer, sizes, options) {
                    Ok(accepted) => return Ok(accepted),
                    Err(_) => continue,
                }
            }
            if inner.options.nonblocking {
                return Err(inner.refuse());
            }
            drop(inner);
            self.wait_for_event();
        }
    }

    fn welcome(
        identifier: Identifier,
        offer: &Offer,
        sizes: Sizes,
        options: Options,
    ) -> Result<Self, Errno> {
        let peer = Greeting::parse(&offer.private_data).ok_or(Errno::INVALID)?;
        let channel = EventChannel::new()?;
        identifier.migrate(&channel);
        identifier.set_rnr_timer(not_ready())?;
        let mut pipe = Pipe::make(&identifier, sizes)?;
        pipe.meet(peer, &identifier)?;
        let greeting = pipe.greeting().emit();
        identifier.accept(&Parameters {
            private_data: &greeting,
            responder_resources: 0,
            initiator_depth: 0,
            ..Parameters::new(pipe.number())
        })?;
        let stream = Self::of(channel, identifier, Phase::Accepting, Some(pipe), sizes);
        if !options.nonblocking {
            let inner = stream.lock();
            drop(stream.wait_until_open(inner)?);
        }
        Ok(stream)
    }

    pub(super) fn connect(&self, peer: SocketAddr) -> Result<(), Errno> {
        let mut inner = self.lock();
        match inner.phase {
            Phase::New => {
                inner.identifier.resolve_address(None, peer, RESOLVING)?;
                inner.phase = Phase::Opening;
            }
            Phase::Opening => {}
            Phase::Connected => return Err(Errno(libc::EISCONN)),
            _ => return Err(Errno::INVALID),
        }
        match self.wait_until_open(inner) {
            Err(WOULD_BLOCK) => Err(Errno(libc::EINPROGRESS)),
            opened => opened.map(drop),
        }
    }

    /// Waits until the connection is there, or is known not to come.
    fn wait_until_open<'s>(
        &'s self,
        mut inner: MutexGuard<'s, Inner>,
    ) -> Result<MutexGuard<'s, Inner>, Errno> {
        loop {
            inner.pump(&self.channel);
            match inner.phase {
                Phase::Connected => return Ok(inner),
                Phase::Opening | Phase::Accepting => {}
                Phase::Failed => return Err(inner.error.take().unwrap_or(NOT_CONNECTED)),
                Phase::New | Phase::Listening => return Err(NOT_CONNECTED),
            }
            if inner.options.nonblocking {
                return Err(inner.refuse());
            }
            drop(inner);
            self.wait_for_event();
            inner = self.lock();
        }
    }

    /// Sends data; how much, which is all unless it must not wait or the connection ends.
    pub(super) fn send(&self, data: &[u8], flags: i32) -> Result<usize, Errno> {
        self.send_with(data, flags, |pipe, rest, most, _| {
            pipe.send_piece(rest, most).map(Some)
        })
    }

    /// Sends piece by piece, as `send` does it; stops where it says that there is nowhere to.
    pub(super) fn send_with(
        &self,
        data: &[u8],
        flags: i32,
        send: impl Fn(&mut Pipe, &[u8], usize, usize) -> Result<Option<usize>, Errno>,
    ) -> Result<usize, Errno> {
        let mut inner = self.wait_until_open(self.lock())?;
        let nonblocking = inner.options.nonblocking || flags & libc::MSG_DONTWAIT != 0;
        inner.publish_mappings()?;
        let (mut sent, mut piece) = (0, FIRST_PIECE);
        while sent < data.len() {
            let able = |pipe: &Pipe| pipe.can_send() || !pipe.open.writing;
            inner = match self.wait(inner, nonblocking, able) {
                Ok(inner) => inner,
                Err(_) if sent > 0 => return Ok(sent),
                Err(errno) => return Err(errno),
            };
            let pipe = inner.pipe.as_mut().ok_or(NOT_CONNECTED)?;
            if !pipe.open.writing {
                return match sent {
                    0 => Err(pipe.open.error.unwrap_or(Errno(libc::ECONNRESET))),
                    sent => Ok(sent),
                };
            }
            let Some(length) = send(pipe, &data[sent..], piece, sent)? else {
                break;
            };
            sent += length;
            piece = (piece * 2).min(LONGEST_PIECE);
        }
        Ok(sent)
    }

    /// Receives data; how much, which is nothing when the peer sends nothing any more.
    pub(super) fn receive(&self, into: &mut [u8], flags: i32) -> Result<usize, Errno> {
        let mut inner = self.wait_until_open(self.lock())?;
        let nonblocking = inner.options.nonblocking || flags & libc::MSG_DONTWAIT != 0;
        let peek = flags & libc::MSG_PEEK != 0;
        let all = flags & libc::MSG_WAITALL != 0 && !peek;
        let mut received = 0;
        while received < into.len() {
            let able = |pipe: &Pipe| pipe.has_data() || !pipe.open.reading;
            inner = match self.wait(inner, nonblocking, able) {
                Ok(inner) => inner,
                Err(_) if received > 0 => break,
                Err(errno) => return Err(errno),
            };
            let pipe = inner.pipe.as_mut().ok_or(NOT_CONNECTED)?;
            let copied = pipe.receive_into(&mut into[received..], peek);
            received += copied;
            // What was read is free again: the peer may be waiting to hear that.
            pipe.progress();
            match (copied, pipe.open.error) {
                (0, Some(errno)) if received == 0 => return Err(errno),
                (0, _) => break,
                _ if !all => break,
                _ => {}
            }
        }
        Ok(received)
    }

    /// Ends one direction, or both.
    pub(super) fn shut_down(&self, how: i32) -> Result<(), Errno> {
        let mut inner = self.lock();
        inner.pump(&self.channel);
        let Some(pipe) = inner.pipe.as_mut() else {
            return Err(NOT_CONNECTED);
        };
        if how == libc::SHUT_RD {
            pipe.open.reading = false;
            return Ok(());
        }
        if !pipe.open.connected {
            return Ok(());
        }
        pipe.open.writing = false;
        if how == libc::SHUT_RDWR {
            pipe.open.reading = false;
        }
        let message = if pipe.open.reading {
            Message::Shutdown
        } else {
            Message::Disconnect
        };
        inner = self.wait(inner, false, |pipe| pipe.can_say() || !pipe.open.connected)?;
        let pipe = inner.pipe.as_mut().ok_or(NOT_CONNECTED)?;
        if pipe.open.connected {
            pipe.say(message)?;
        }
        let mut inner = self.wait(inner, false, |pipe| pipe.is_idle() || !pipe.open.connected)?;
        if message == Message::Disconnect
            && let Some(pipe) = inner.pipe.as_mut()
        {
            pipe.part();
            pipe.shut();
        }
        Ok(())
    }

    /// The socket is not wanted any more.
    pub(super) fn close(&self) {
        // A connection that broke has nobody left to tell.
        let _ = self.shut_down(libc::SHUT_RDWR);
        self.lock().forget_mappings();
    }

    /// Waits until the pipe is as wanted. One of those who wait sleeps for all; it wakes the others.
    fn wait<'s>(
        &'s self,
        mut inner: MutexGuard<'s, Inner>,
        nonblocking: bool,
        wanted: impl Fn(&Pipe) -> bool,
    ) -> Result<MutexGuard<'s, Inner>, Errno> {
        loop {
            inner.pump(&self.channel);
            let served = inner.served;
            let pipe = inner.pipe.as_mut().ok_or(NOT_CONNECTED)?;
            pipe.progress();
            if !wanted(pipe) && !nonblocking && !served {
                pipe.arm();
                pipe.progress();
            }
            if wanted(pipe) {
                self.changed.notify_all();
                return Ok(inner);
            }
            if nonblocking {
                return Err(inner.refuse());
            }
            inner = if served {
                let waited = self.changed.wait_timeout(inner, PATIENCE);
                waited.unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.sleep(inner)?
            };
        }
    }

    fn sleep<'s>(
        &'s self,
        mut inner: MutexGuard<'s, Inner>,
    ) -> Result<MutexGuard<'s, Inner>, Errno> {
        let pipe = inner.pipe.as_ref().ok_or(NOT_CONNECTED)?;
        let (context, bell) = (pipe.context.clone(), pipe.bell.clone());
        inner.served = true;
        drop(inner);
        let slept = context.raw().sleep(&bell, Some(Instant::now() + PATIENCE));
        while bell.answer().is_some() {}
        let mut inner = self.lock();
        inner.served = false;
        self.changed.notify_all();
        slept?;
        Ok(inner)
    }

    fn wait_for_event(&self) {
        if let Some(event) = self.channel.wait_for(PATIENCE) {
            self.lock().handle(event);
        }
    }

    /// What it is ready for now. If it is `armed`, its descriptor becomes readable when that changes.
    pub(super) fn readiness(&self, armed: bool) -> Readiness {
        let mut inner = self.lock();
        inner.pump(&self.channel);
        let requests = inner.requests.len() as u64;
        let refusals = u64::from(inner.refusals);
        let phase = inner.phase;
        match (phase, inner.pipe.as_mut()) {
            (Phase::Connected, Some(pipe)) => {
                if armed {
                    while pipe.bell.answer().is_some() {}
                    pipe.arm();
                }
                pipe.progress();
                Readiness {
                    reading: pipe.has_data() || !pipe.open.reading,
                    writing: pipe.can_send(),
                    unread: pipe.has_data(),
                    hung_up: !pipe.open.connected,
                    error: pipe.open.error.is_some(),
                    changes: refusals << 16 | u64::from(pipe.receive.received),
                }
            }
            (Phase::Listening, _) => Readiness {
                reading: requests > 0,
                changes: refusals << 16 | requests,
                ..Readiness::default()
            },
            (Phase::Failed, _) => Readiness {
                writing: true,
                hung_up: true,
                error: true,
                ..Readiness::default()
            },
            _ => Readiness::default(),
        }
    }

    /// What to wait for until its readiness changes.
    pub(super) fn descriptor(&self) -> RawFd {
        let inner = self.lock();
        match (&inner.pipe, inner.phase) {
            (Some(pipe), Phase::Connected) => pipe.bell.expose().as_raw_fd(),
            _ => self.number(),
        }
    }

    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.lock().identifier.local_address()
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        self.lock().identifier.peer_address()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a peer waits when no receive is posted. Credits count messages with data only, so that it
/// happens; 0.64 ms instead of the usual 655.
fn not_ready() -> RnrTimer {
    const CODE: u8 = 12;
    RnrTimer::new(CODE).expect("a code has five bits")
}

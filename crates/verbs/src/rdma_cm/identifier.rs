//! Ids: what an application holds while it listens, connects or talks.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cm::{EventKind, Failure, Kind, Manager, Parameters};
use engine::Attributes;
use wire::cm::{PortSpace, RejectReason};
use wire::{AckTimeout, RnrTimer};

use super::channel::{EventChannel, Token};
use super::queue::{self, Notice};
use super::seat::{Seat, Wishes};
use super::{ConnectionError, attributes, devices};
use crate::context::Context;
use crate::narrator;

/// How often another port is tried when the choice is ours and another process has it.
const ATTEMPTS: usize = 64;

/// One end of a conversation, like `rdma_cm_id`. Dropping it ends the conversation.
pub struct Identifier {
    token: u64,
    space: PortSpace,
    kind: Kind,
    inner: Mutex<Inner>,
}

struct Inner {
    channel: EventChannel,
    wishes: Wishes,
    /// The device that it has to be at, if the application has chosen one.
    chosen: Option<Context>,
    place: Place,
}

/// Where an id is.
enum Place {
    /// Nobody has said yet.
    Nowhere,
    /// At one device.
    At(Seat),
    /// At all devices: bound to no particular address.
    Everywhere(Vec<Seat>),
}

impl Identifier {
    pub(super) fn new(channel: &EventChannel, space: PortSpace, kind: Kind) -> Self {
        Self {
            token: queue::next_token(),
            space,
            kind,
            inner: Mutex::new(Inner {
                channel: channel.clone(),
                wishes: Wishes::default(),
                chosen: None,
                place: Place::Nowhere,
            }),
        }
    }

    /// The id that a request brought; nothing if it is gone again.
    pub(super) fn of_request(channel: &EventChannel, notice: &Notice) -> Option<Self> {
        let context = Context::upgrade(&notice.context)?;
        let seat = Seat::of(&context, notice.id?);
        let (space, kind) = seat
            .manage(|manager, _, id| {
                manager.request_taken(id)?;
                Ok(manager.described(id)?)
            })
            .ok()?;
        Some(Self {
            token: notice.token,
            space,
            kind,
            inner: Mutex::new(Inner {
                channel: channel.clone(),
                wishes: Wishes::default(),
                chosen: None,
                place: Place::At(seat),
            }),
        })
    }

    /// Its name in events.
    #[must_use]
    pub fn token(&self) -> Token {
        Token(self.token)
    }

    /// Its port space.
    #[must_use]
    pub fn port_space(&self) -> PortSpace {
        self.space
    }

    /// The kind of its queue pair.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The device that it is at, once that is known.
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        match &self.inner().place {
            Place::At(seat) => Some(seat.context.clone()),
            _ => None,
        }
    }

    /// Keeps it to one device, before it has an address.
    pub fn choose(&self, context: &Context) {
        self.inner().chosen = Some(context.clone());
    }

    /// Its own address, once it has one.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.ask(Manager::local_address)
    }

    /// The peer's address, once there is one.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.ask(Manager::peer_address)
    }

    /// How far it has come; nothing before it is at a device.
    #[must_use]
    pub fn state(&self) -> Option<cm::State> {
        self.ask(Manager::state)
    }

    /// The traffic class (ToS) of everything that it sends.
    pub fn set_traffic_class(&self, class: u8) -> Result<(), ConnectionError> {
        self.wish(|wishes| wishes.traffic_class = Some(class))
    }

    /// The acknowledge timeout of its queue pair.
    pub fn set_ack_timeout(&self, timeout: AckTimeout) -> Result<(), ConnectionError> {
        self.wish(|wishes| wishes.ack_timeout = Some(timeout))
    }

    /// How long the peer has to wait when no receive is posted.
    pub fn set_rnr_timer(&self, timer: RnrTimer) -> Result<(), ConnectionError> {
        self.wish(|wishes| wishes.rnr_timer = Some(timer))
    }

    /// Lets several ids share a port, as long as none of them listens.
    pub fn set_reuse_address(&self, reuse: bool) -> Result<(), ConnectionError> {
        self.wish(|wishes| wishes.reuse_address = Some(reuse))
    }

    /// Whether a listener on all addresses keeps to its own address family.
    pub fn set_family_only(&self, only: bool) -> Result<(), ConnectionError> {
        self.wish(|wishes| wishes.family_only = Some(only))
    }

    /// Gives it an address and a port of this machine. An unspecified address stands for all; with
    /// port 0 the choice is ours. Returns what it got.
    pub fn bind(&self, address: SocketAddr) -> Result<SocketAddr, ConnectionError> {
        let mut inner = self.inner();
        if !matches!(inner.place, Place::Nowhere) {
            return Err(ConnectionError::AlreadyBound);
        }
        let (contexts, address) = match &inner.chosen {
            Some(context) => (vec![context.clone()], address),
            None => devices::having(address)?,
        };
        let (seats, bound) = self.bind_at(&contexts, &inner, address)?;
        inner.place = place(seats, address.ip());
        Ok(bound)
    }

    /// Waits for requests from now on; `backlog` of them may wait for the application.
    pub fn listen(&self, backlog: usize) -> Result<(), ConnectionError> {
        if matches!(self.inner().place, Place::Nowhere) {
            self.bind(SocketAddr::from(([0, 0, 0, 0], 0)))?;
        }
        let inner = self.inner();
        let seats = match &inner.place {
            Place::Nowhere => &[],
            Place::At(seat) => std::slice::from_ref(seat),
            Place::Everywhere(seats) => &seats[..],
        };
        for seat in seats {
            seat.manage(|manager, _, id| Ok(manager.listen(id, backlog)?))?;
        }
        Ok(())
    }

    /// Starts to look for the way to a peer, and binds the id if it is not bound. An event tells how
    /// it ended.
    pub fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Result<(), ConnectionError> {
        let peer = devices::or_loopback(peer);
        let mut inner = self.inner();
        match self.go_towards(&mut inner, source, peer) {
            Ok(()) => {}
            Err(
                error @ (ConnectionError::NoRoute { .. }
                | ConnectionError::NoDevice(_)
                | ConnectionError::Open(_)),
            ) => {
                self.tell_unresolved(&inner, source, peer, &error);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let Place::At(seat) = &inner.place else {
            return Err(ConnectionError::NotBound);
        };
        seat.manage(|manager, now, id| Ok(manager.resolve_address(now, id, None, peer, timeout)?))
    }

    /// Starts to ask about the path. An event tells how it ended.
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), ConnectionError> {
        self.act(|manager, now, id| Ok(manager.resolve_route(now, id, timeout)?))
    }

    /// Asks the peer for a connection, or for its datagram service.
    pub fn connect(&self, parameters: &Parameters<'_>) -> Result<(), ConnectionError> {
        self.act(|manager, now, id| Ok(manager.connect(now, id, parameters)?))
    }

    /// The queue pair is ready: tells the peer so, after its response.
    pub fn establish(&self) -> Result<(), ConnectionError> {
        self.act(|manager, _, id| Ok(manager.establish(id)?))
    }

    /// The peer accepted, but the queue pair could not be made ready.
    pub fn connect_failed(&self, failure: Failure) -> Result<(), ConnectionError> {
        self.act(|manager, _, id| Ok(manager.connect_failed(id, failure)?))
    }

    /// Agrees to a connection or serves a datagram service.
    pub fn accept(&self, parameters: &Parameters<'_>) -> Result<(), ConnectionError> {
        self.act(|manager, now, id| Ok(manager.accept(now, id, parameters)?))
    }

    /// Refuses a connection or a datagram service.
    pub fn reject(&self, reason: RejectReason, private_data: &[u8]) -> Result<(), ConnectionError> {
        self.act(|manager, now, id| Ok(manager.reject(now, id, reason, private_data)?))
    }

    /// Ends a connection, or agrees to its end. The queue pair breaks.
    pub fn disconnect(&self) -> Result<(), ConnectionError> {
        self.act(|manager, now, id| Ok(manager.disconnect(now, id)?))
    }

    /// A packet has come to its queue pair: the peer must be ready.
    pub fn notify_established(&self, number: wire::Qpn) -> Result<bool, ConnectionError> {
        self.act(|manager, _, _| Ok(manager.notify_established(number)))
    }

    /// Joins a multicast group. An event tells how to reach it.
    pub fn join(&self, group: IpAddr, send_only: bool) -> Result<(), ConnectionError> {
        self.act(|manager, _, id| Ok(manager.join(id, group, send_only)?))
    }

    /// Leaves a multicast group.
    pub fn leave(&self, group: IpAddr) -> Result<(), ConnectionError> {
        self.act(|manager, _, id| Ok(manager.leave(id, group)?))
    }

    /// What its queue pair must be told to become initialized.
    pub fn init_attributes(&self) -> Result<Attributes, ConnectionError> {
        let told = self.act(|manager, _, id| Ok(manager.init_attributes(id)?))?;
        Ok(attributes::init(&told))
    }

    /// What its queue pair must be told to become ready to receive.
    pub fn receive_attributes(&self) -> Result<Attributes, ConnectionError> {
        if self.kind == Kind::Datagram {
            return Ok(attributes::datagram_receive());
        }
        let told = self.act(|manager, _, id| Ok(manager.receive_attributes(id)?))?;
        let context = self.context().ok_or(ConnectionError::NotBound)?;
        Ok(attributes::receive(&context, &told))
    }

    /// What its queue pair must be told to become ready to send.
    pub fn send_attributes(&self) -> Result<Attributes, ConnectionError> {
        if self.kind == Kind::Datagram {
            return Ok(attributes::datagram_send());
        }
        let told = self.act(|manager, _, id| Ok(manager.send_attributes(id)?))?;
        Ok(attributes::send(&told))
    }

    /// Puts an event of the application's own into its channel.
    pub fn write_event(&self, code: u32, status: i32, argument: u64) {
        let kind = EventKind::Application {
            code,
            status,
            argument,
        };
        self.tell(&self.inner(), kind);
    }

    /// Tells its events to another channel from now on, those too that nobody has taken yet.
    pub fn migrate(&self, channel: &EventChannel) {
        let mut inner = self.inner();
        match &inner.place {
            Place::Nowhere => {}
            Place::At(seat) => seat.watch(channel, self.token),
            Place::Everywhere(seats) => {
                for seat in seats {
                    seat.watch(channel, self.token);
                }
            }
        }
        for notice in inner.channel.queue().take_of(self.token) {
            channel.queue().push(notice);
        }
        inner.channel = channel.clone();
    }

    /// Binds at each of the devices, with the same port everywhere.
    fn bind_at(
        &self,
        contexts: &[Context],
        inner: &Inner,
        address: SocketAddr,
    ) -> Result<(Vec<Seat>, SocketAddr), ConnectionError> {
        let attempts = if address.port() == 0 { ATTEMPTS } else { 1 };
        let mut refused = ConnectionError::NoDevice(address.ip());
        for _ in 0..attempts {
            match self.bind_once(contexts, inner, address) {
                Err(error @ (ConnectionError::Service(_) | ConnectionError::Bind(_))) => {
                    refused = error;
                }
                outcome => return outcome,
            }
        }
        Err(refused)
    }

    fn bind_once(
        &self,
        contexts: &[Context],
        inner: &Inner,
        mut address: SocketAddr,
    ) -> Result<(Vec<Seat>, SocketAddr), ConnectionError> {
        let mut seats = Vec::with_capacity(contexts.len());
        for context in contexts {
            let mut seat = self.seat(context, inner)?;
            address = seat.bind(self.space, address)?;
            seats.push(seat);
        }
        match seats.is_empty() {
            true => Err(ConnectionError::NoDevice(address.ip())),
            false => Ok((seats, address)),
        }
    }

    fn seat(&self, context: &Context, inner: &Inner) -> Result<Seat, ConnectionError> {
        let made_for = (self.space, self.kind);
        Seat::take(context, &inner.channel, self.token, made_for, &inner.wishes)
    }

    /// Makes sure that it is at the device that leads to a peer.
    fn go_towards(
        &self,
        inner: &mut Inner,
        source: Option<SocketAddr>,
        peer: SocketAddr,
    ) -> Result<(), ConnectionError> {
        let source = source.filter(|it| !it.ip().is_unspecified() || it.port() != 0);
        let port = match &inner.place {
            Place::At(_) => return Ok(()),
            Place::Nowhere => source.map_or(0, |source| source.port()),
            Place::Everywhere(seats) => bound_port(seats).unwrap_or(0),
        };
        let (context, address) = match (&inner.chosen, source) {
            (Some(context), _) => (context.clone(), own_address(context, peer)?),
            (None, Some(source)) if !source.ip().is_unspecified() => {
                (devices::at(source.ip())?, source.ip())
            }
            (None, _) => devices::towards(peer)?,
        };
        // Its port must be free again before it can be had at that device alone.
        inner.place = Place::Nowhere;
        let mut seat = self.seat(&context, inner)?;
        match port {
            // Nobody looks for an id that only connects: its port needs no claim.
            0 => seat.manage(|manager, _, id| {
                manager.bind(id, SocketAddr::new(address, 0))?;
                Ok(())
            })?,
            port => drop(seat.bind(self.space, SocketAddr::new(address, port))?),
        }
        inner.place = Place::At(seat);
        Ok(())
    }

    /// No device leads to the peer: Linux tells that by an event, too.
    fn tell_unresolved(
        &self,
        inner: &Inner,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        error: &ConnectionError,
    ) {
        let failure = Failure::Os(devices::number(error));
        narrator::tell_unresolved(source, peer, failure.status(), error);
        self.tell(inner, EventKind::AddressError(failure));
    }

    /// Puts an event into its channel that no manager knows of.
    fn tell(&self, inner: &Inner, kind: EventKind) {
        inner.channel.queue().push(Notice {
            token: self.token,
            listener: None,
            id: None,
            context: std::sync::Weak::new(),
            kind,
        });
    }

    fn wish(&self, wish: impl FnOnce(&mut Wishes)) -> Result<(), ConnectionError> {
        let mut inner = self.inner();
        let mut new = Wishes::default();
        wish(&mut new);
        match &inner.place {
            Place::Nowhere => {}
            Place::At(seat) => seat.wish(&new)?,
            Place::Everywhere(seats) => seats.iter().try_for_each(|seat| seat.wish(&new))?,
        }
        inner.wishes.update(&new);
        Ok(())
    }

    /// Does something that needs a device.
    fn act<R>(
        &self,
        work: impl FnOnce(&mut Manager, Instant, cm::Id) -> Result<R, ConnectionError>,
    ) -> Result<R, ConnectionError> {
        match &self.inner().place {
            Place::At(seat) => seat.manage(work),
            _ => Err(ConnectionError::NotBound),
        }
    }

    fn ask<R>(&self, question: impl Fn(&Manager, cm::Id) -> Option<R>) -> Option<R> {
        let inner = self.inner();
        let seat = match &inner.place {
            Place::Nowhere => None,
            Place::At(seat) => Some(seat),
            Place::Everywhere(seats) => seats.first(),
        }?;
        let asked = seat.manage(|manager, _, id| Ok(question(manager, id)));
        asked.ok().flatten()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        let inner = self.inner();
        // First the seats, so that nothing more can happen; then what nobody has taken.
        let place = &inner.place;
        if let Place::At(seat) = place {
            seat.context.driver().watch(seat.id, None);
        }
        drop(inner.channel.queue().take_of(self.token));
    }
}

impl fmt::Debug for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identifier")
            .field("token", &self.token)
            .field("space", &self.space)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

fn place(mut seats: Vec<Seat>, ip: IpAddr) -> Place {
    match ip.is_unspecified() {
        false if seats.len() == 1 => Place::At(seats.remove(0)),
        _ => Place::Everywhere(seats),
    }
}

fn bound_port(seats: &[Seat]) -> Option<u16> {
    let seat = seats.first()?;
    let bound = seat.manage(|manager, _, id| Ok(manager.local_address(id)));
    bound.ok().flatten().map(|address| address.port())
}

/// The address of a chosen device from which a peer can be reached.
fn own_address(context: &Context, peer: SocketAddr) -> Result<IpAddr, ConnectionError> {
    let entries = &context.device().gids;
    let own: Vec<IpAddr> = entries.iter().map(|entry| entry.address).collect();
    let usual = net::interface::source_towards(peer).ok();
    let same_family = || own.iter().find(|it| it.is_ipv4() == peer.is_ipv4());
    let found = own
        .iter()
        .find(|it| Some(**it) == usual)
        .or_else(same_family);
    found.copied().ok_or(ConnectionError::NoDevice(peer.ip()))
}

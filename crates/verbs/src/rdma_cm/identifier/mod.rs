//! Ids: what an application holds while it listens, connects or talks.
//!
//! An [`Identifier`] has a [`place`]: nowhere at first, then at a device or at all of them, once it
//! has an [`address`]. There it begins a [`conversation`]. What the application sets before are
//! [`wishes`], which go along.

mod address;
mod conversation;
mod place;
mod wishes;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cm::{EventKind, Manager, QueuePairType};
use wire::cm::PortSpace;

use super::ConnectionError;
use super::channel::{EventChannel, Token};
use super::queue::{self, Notice};
use super::seat::{Seat, Wishes};
use crate::context::Context;
use place::Place;

/// One end of a conversation, like `rdma_cm_id`. Dropping it ends the conversation.
pub struct Identifier {
    token: u64,
    space: PortSpace,
    kind: QueuePairType,
    inner: Mutex<Inner>,
}

struct Inner {
    channel: EventChannel,
    wishes: Wishes,
    /// The device that it has to be at, if the application has chosen one.
    chosen: Option<Context>,
    place: Place,
}

impl Identifier {
    pub(super) fn new(channel: &EventChannel, space: PortSpace, kind: QueuePairType) -> Self {
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
                Ok(manager.port_space_and_type(id)?)
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
    pub fn kind(&self) -> QueuePairType {
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
        for seat in inner.place.seats() {
            seat.watch(channel, self.token);
        }
        for notice in inner.channel.queue().take_of(self.token) {
            channel.queue().push(notice);
        }
        inner.channel = channel.clone();
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
        let seat = inner.place.seats().first()?;
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
            seat.context.driver().subscribe(seat.id, None);
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

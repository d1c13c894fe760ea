//! Event channels for ids of both kinds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
#[cfg(feature = "async")]
use std::{
    pin::Pin,
    task::{Context as TaskContext, Poll, ready},
};

use driver::clock::deadline;
use driver::rdma_cm::{self as software, EventKind, PortSpace, ServiceType, Token};

use super::cm_id::CmId;
#[cfg(feature = "async")]
use crate::{context::Context, task_timer::TaskTimer};

/// An event of an id.
#[derive(Debug)]
#[non_exhaustive]
pub struct Event {
    /// The id of the event.
    pub id: Token,
    /// For a request: the listener.
    pub listener: Option<Token>,
    /// For a request: the new id. Dropping it rejects the request.
    pub request: Option<CmId>,
    /// The kind of event.
    pub kind: EventKind,
}

/// The queue for the events of ids.
///
/// Cheap to clone. Its descriptor is readable while there is an event.
#[derive(Clone, Debug)]
pub struct EventChannel {
    /// It also has the events of ids at devices of the system.
    pub(super) software: software::EventChannel,
    /// Whether the end of a connection is confirmed to the peer at once.
    pub(super) confirms_end: bool,
}

impl EventChannel {
    /// A channel without ids.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            software: software::EventChannel::new()?,
            confirms_end: false,
        })
    }

    /// A channel without a descriptor, for a program that waits only in the library. Its ids
    /// disconnect at once when their peer disconnects.
    pub fn private() -> Self {
        Self {
            software: software::EventChannel::private(),
            confirms_end: true,
        }
    }

    /// A new id, for the queue pair type of the port space.
    #[must_use]
    pub fn create_id(&self, space: PortSpace) -> CmId {
        self.create_id_for(space, ServiceType::of(space))
    }

    /// A new id for a queue pair type.
    #[must_use]
    pub fn create_id_for(&self, space: PortSpace, service_type: ServiceType) -> CmId {
        CmId::create(self, space, service_type)
    }

    /// The next event, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<Event> {
        std::iter::from_fn(|| self.software.poll()).find_map(|event| self.event(event))
    }

    /// The next event. Waits for it, but not longer than `timeout`.
    #[must_use]
    pub fn wait_for(&self, timeout: Duration) -> Option<Event> {
        self.wait_until(deadline(timeout))
    }

    /// The next event. Waits for it.
    #[must_use]
    pub fn wait(&self) -> Event {
        loop {
            if let Some(event) = self.event(self.software.wait()) {
                return event;
            }
        }
    }

    /// The next event. Waits for it until `deadline`, if there is one.
    #[must_use]
    pub fn wait_until(&self, deadline: Option<Instant>) -> Option<Event> {
        loop {
            let event = self.software.wait_until(deadline)?;
            if let Some(event) = self.event(event) {
                return Some(event);
            }
        }
    }

    /// Sleeps until there may be an event, but not longer than `timeout`. A signal ends the sleep,
    /// too. Returns whether one did.
    pub fn sleep_for(&self, timeout: Duration) -> bool {
        self.software.sleep_for(timeout)
    }

    /// The next event, as soon as there is one.
    #[cfg(feature = "async")]
    pub fn next(&self) -> NextEvent<'_> {
        NextEvent(self)
    }

    /// The next event; `None` if there is none before `deadline`. A thread of this device runs the timer.
    #[cfg(feature = "async")]
    pub fn next_until<'c>(
        &'c self,
        context: &Context,
        deadline: Option<Instant>,
    ) -> EventUntil<'c> {
        EventUntil {
            channel: self,
            deadline,
            timer: TaskTimer::new(context),
        }
    }

    /// An event; `None` if it is a request that does not exist any more, or one at a device that was not chosen.
    fn event(&self, event: software::Event) -> Option<Event> {
        let is_request = matches!(event.kind, EventKind::ConnectRequest { .. });
        let (id, listener, request) = match event.request {
            Some(id) => (event.id, event.listener, Some(CmId::of_software(id))),
            None if is_request => {
                let id = CmId::of_system_request(self, event.id)?;
                (id.token(), Some(event.id), Some(id))
            }
            None => (event.id, event.listener, None),
        };
        Some(Event {
            id,
            listener,
            request,
            kind: event.kind,
        })
    }
}

impl AsFd for EventChannel {
    /// Readable while there is an event.
    ///
    /// # Panics
    /// If the channel is [private](Self::private), which has no descriptor.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.software.as_fd()
    }
}

/// Waits for an event.
#[cfg(feature = "async")]
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct NextEvent<'c>(&'c EventChannel);

#[cfg(feature = "async")]
impl Future for NextEvent<'_> {
    type Output = Event;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Event> {
        loop {
            let event = ready!(Pin::new(&mut self.0.software.next()).poll(task));
            if let Some(event) = self.0.event(event) {
                return Poll::Ready(event);
            }
        }
    }
}

/// Waits for an event until a deadline.
#[cfg(feature = "async")]
#[must_use = "futures do nothing unless they are awaited"]
#[derive(Debug)]
pub struct EventUntil<'c> {
    channel: &'c EventChannel,
    deadline: Option<Instant>,
    timer: TaskTimer,
}

#[cfg(feature = "async")]
impl Future for EventUntil<'_> {
    type Output = Option<Event>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Event>> {
        if let Poll::Ready(event) = Pin::new(&mut self.channel.next()).poll(task) {
            return Poll::Ready(Some(event));
        }
        let Some(deadline) = self.deadline else {
            return Poll::Pending;
        };
        self.timer.poll(deadline, task.waker()).map(|()| None)
    }
}

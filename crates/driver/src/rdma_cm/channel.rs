//! Event channels, which deliver the events of ids.
//!
//! An event names its id, an id names its channel, and `id_on_device` adds events to it, as in `rdma_cm`. So `channel`, `cm_id` and
//! `id_on_device` import each other.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use cm::{EventKind, ServiceType};
use net::poll::{Ready, wait};
use wire::cm::PortSpace;

use super::cm_id::CmId;
use super::event_queue::{EventQueue, QueuedEvent};
use crate::Driver;
use crate::blocked_calls::{BlockedCall, Situation};
use crate::clock::{deadline, now};
use crate::fabric::here;
use crate::lane::Awaited;
use crate::times::RECHECK;
use crate::waiting::notifier::Notifier;

/// The name of an id in events. It is unique in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub(super) u64);

impl Token {
    /// As a number, for programs that keep tables.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }
}

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
#[derive(Clone)]
pub struct EventChannel(Arc<Inner>);

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel").finish_non_exhaustive()
    }
}

struct Inner {
    queue: Arc<EventQueue>,
    /// The devices of its ids.
    devices: Mutex<Vec<Weak<Driver>>>,
}

impl EventChannel {
    /// A channel without ids.
    pub fn new() -> io::Result<Self> {
        Ok(Self::with(EventQueue::new(Notifier::new()?, false)))
    }

    /// A channel without a descriptor, for a program that waits only in the library. Its ids
    /// disconnect at once when their peer disconnects.
    pub fn private() -> Self {
        Self::with(EventQueue::new(Notifier::without_descriptor(), true))
    }

    fn with(queue: EventQueue) -> Self {
        Self(Arc::new(Inner {
            queue: Arc::new(queue),
            devices: Mutex::default(),
        }))
    }

    /// A new id, for the queue pair type of the port space.
    #[must_use]
    pub fn create_id(&self, space: PortSpace) -> CmId {
        self.create_id_for(space, ServiceType::of(space))
    }

    /// A new id for a queue pair type.
    #[must_use]
    pub fn create_id_for(&self, space: PortSpace, service_type: ServiceType) -> CmId {
        CmId::new(self, space, service_type)
    }

    /// The next event, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<Event> {
        // A request whose device has been closed since then is not an event any more.
        let event = std::iter::from_fn(|| self.0.queue.pop()).find_map(|queued| self.event(queued));
        if event.is_none() {
            here(|machine| machine.note_idle_poll());
        }
        event
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
            if let Some(event) = self.wait_until(None) {
                return event;
            }
        }
    }

    /// The next event. Waits for it until `deadline`, if there is one.
    #[must_use]
    pub fn wait_until(&self, deadline: Option<Instant>) -> Option<Event> {
        let mut listed = None;
        loop {
            if let Some(event) = self.poll() {
                return Some(event);
            }
            if deadline.is_some_and(|at| at <= now()) {
                return None;
            }
            listed.get_or_insert_with(|| {
                BlockedCall::begin("the wait for an event of a connection", || {
                    || Situation::without_problem("Its channel has no event.")
                })
            });
            self.sleep(deadline);
        }
    }

    /// Sleeps until there may be an event, but not longer than `timeout`. A signal ends the sleep,
    /// too. Returns whether one did.
    pub fn sleep_for(&self, timeout: Duration) -> bool {
        self.sleep(deadline(timeout))
    }

    /// The next event, as soon as there is one.
    #[cfg(feature = "async")]
    pub fn next(&self) -> NextEvent<'_> {
        NextEvent(self)
    }

    /// If all ids are at a single device, the sleeping thread serves that device, which saves
    /// waking another thread.
    fn sleep(&self, deadline: Option<Instant>) -> bool {
        here(|machine| machine.note_block());
        let notifier = self.0.queue.notifier();
        if let [driver] = &self.drivers()[..] {
            let awaited = Awaited::Notification(notifier);
            return driver.sleep(&awaited, deadline);
        }
        let sleeper = notifier.waiting().enter();
        if notifier.has_notification() {
            return false;
        }
        let now = now();
        let again = sleeper.next_check(now);
        let until = deadline.into_iter().chain(again).min();
        let timeout = until.map(|at| at.saturating_duration_since(now));
        let interests: Vec<_> = sleeper.interest().into_iter().collect();
        let waited = wait(&interests, timeout);
        if waited.is_err() {
            // It would fail again at once.
            std::thread::sleep(RECHECK);
        }
        waited.is_ok_and(Ready::was_interrupted)
    }

    fn drivers(&self) -> Vec<Arc<Driver>> {
        let mut devices = self.devices();
        devices.retain(|it| it.strong_count() > 0);
        devices.iter().filter_map(Weak::upgrade).collect()
    }

    fn devices(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Driver>>> {
        let devices = self.0.devices.lock();
        devices.unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that one of its ids is at this device.
    pub(super) fn note_device(&self, driver: &Arc<Driver>) {
        let weak = Arc::downgrade(driver);
        let mut devices = self.devices();
        if !devices.iter().any(|it| it.ptr_eq(&weak)) {
            devices.push(weak);
        }
    }

    pub(super) fn queue(&self) -> &Arc<EventQueue> {
        &self.0.queue
    }

    fn event(&self, queued: QueuedEvent) -> Option<Event> {
        let request = match queued.listener {
            Some(_) => Some(CmId::of_request(self, &queued)?),
            None => None,
        };
        Some(Event {
            id: Token(queued.token),
            listener: queued.listener.map(Token),
            request,
            kind: queued.kind,
        })
    }
}

impl AsFd for EventChannel {
    /// Readable while there is an event.
    ///
    /// # Panics
    /// If the channel is [private](Self::private), which has no descriptor.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.queue.notifier().expose()
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

    fn poll(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Event> {
        if let Some(event) = self.0.poll() {
            return std::task::Poll::Ready(event);
        }
        // Add the waker first, then poll again, so that no event is missed in between.
        self.0
            .queue()
            .notifier()
            .waiting()
            .add_task(context.waker());
        match self.0.poll() {
            Some(event) => std::task::Poll::Ready(event),
            None => {
                let what = || "an event of the connection manager".to_owned();
                here(|machine| machine.note_wait(&what));
                std::task::Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OpenOptions;

    /// A server's channel has an id for each connection, all at one device.
    #[test]
    fn a_device_of_many_ids_is_noted_once() {
        let channel = EventChannel::new().expect("a descriptor");
        let [first, second] = ["127.58.91.11", "127.58.91.12"]
            .map(|address| Driver::open(address, &OpenOptions::default()).expect("an address"));
        for driver in [&first, &first, &second, &first] {
            channel.note_device(driver);
        }
        assert_eq!(channel.devices().len(), 2);
    }
}

//! Ids: one end of a connection, or a listener.
//!
//! A [`CmId`] has a [`bind_state`]: unbound at first, then at one device or at all, once it
//! has an [`address`]. There it begins a [`connection`] with a peer. Options that the application
//! sets before ([`options`]) are applied at the device.

mod address;
mod bind_state;
mod connection;
mod options;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cm::{EventKind, Manager, ServiceType};
use wire::cm::PortSpace;

use super::CmError;
use super::channel::{EventChannel, Token};
use super::event_queue::{self, QueuedEvent};
use super::id_on_device::{IdOnDevice, IdOptions};
use crate::Driver;
use crate::waiting::deferred_wakeups;
use bind_state::BindState;

/// One end of a connection, or a listener, like `rdma_cm_id`. Dropping it ends the connection.
pub struct CmId {
    token: u64,
    space: PortSpace,
    service_type: ServiceType,
    inner: Mutex<Inner>,
}

struct Inner {
    channel: EventChannel,
    options: IdOptions,
    /// The device that the application has chosen, if any.
    chosen: Option<Arc<Driver>>,
    bind_state: BindState,
}

impl Inner {
    fn new(channel: &EventChannel, bind_state: BindState) -> Self {
        Self {
            channel: channel.clone(),
            options: IdOptions::default(),
            chosen: None,
            bind_state,
        }
    }
}

impl CmId {
    pub(super) fn new(channel: &EventChannel, space: PortSpace, service_type: ServiceType) -> Self {
        let inner = Inner::new(channel, BindState::Unbound);
        Self {
            token: event_queue::next_token(),
            space,
            service_type,
            inner: Mutex::new(inner),
        }
    }

    /// The id of a request; `None` if it does not exist any more.
    pub(super) fn of_request(channel: &EventChannel, queued: &QueuedEvent) -> Option<Self> {
        let driver = queued.driver.upgrade()?;
        let device_id = IdOnDevice::new(&driver, queued.id?);
        let (space, service_type) = device_id
            .call_manager(|manager, _, id| {
                manager.request_taken(id)?;
                Ok(manager.port_space_and_type(id)?)
            })
            .ok()?;
        // The listener may have moved to this channel after the request arrived.
        device_id.subscribe(channel, queued.token);
        let inner = Inner::new(channel, BindState::OneDevice(device_id));
        Some(Self {
            token: queued.token,
            space,
            service_type,
            inner: Mutex::new(inner),
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

    /// Its queue pair type.
    #[must_use]
    pub fn service_type(&self) -> ServiceType {
        self.service_type
    }

    /// Its device, once that is known.
    #[must_use]
    pub fn driver(&self) -> Option<Arc<Driver>> {
        match &self.inner().bind_state {
            BindState::OneDevice(device_id) => Some(Arc::clone(&device_id.driver)),
            _ => None,
        }
    }

    /// Restricts it to one device, before it has an address.
    ///
    /// # Errors
    /// If the device is not one of ours.
    pub fn choose<D: TryInto<Arc<Driver>>>(&self, device: D) -> Result<(), D::Error> {
        let chosen = device.try_into()?;
        let former = self.with_inner(|inner| inner.chosen.replace(chosen));
        // Not under the lock: it may be the last handle, and close the device.
        drop(former);
        Ok(())
    }

    /// Its local address, once it has one.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.query_manager(Manager::local_address)
    }

    /// The peer's address, once there is one.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.query_manager(Manager::peer_address)
    }

    /// Its state; `None` before it is at a device.
    #[must_use]
    pub fn state(&self) -> Option<cm::State> {
        self.query_manager(Manager::state)
    }

    /// Whether its peer has disconnected, and the application has not taken the event.
    #[must_use]
    pub fn has_unnoticed_end(&self) -> bool {
        let is_end = |kind: &EventKind| matches!(kind, EventKind::Disconnected { .. });
        self.inner().channel.queue().holds(self.token, is_end)
    }

    /// Adds an event of the application to its channel.
    pub fn write_event(&self, code: u32, status: i32, argument: u64) {
        self.report(EventKind::Application {
            code,
            status,
            argument,
        });
    }

    /// Adds an event that another connection manager reports about it to its channel.
    pub fn report(&self, kind: EventKind) {
        self.with_inner(|inner| self.push_event(inner, kind));
    }

    /// Delivers its events to another channel from now on, including those that were not taken yet.
    pub fn migrate(&self, channel: &EventChannel) {
        self.with_inner(|inner| {
            for device_id in inner.bind_state.device_ids() {
                device_id.subscribe(channel, self.token);
            }
            for queued in inner.channel.queue().take_of(self.token) {
                channel.queue().push(queued);
            }
            inner.channel = channel.clone();
        });
    }

    /// Adds an event that does not come from a manager to its channel.
    fn push_event(&self, inner: &Inner, kind: EventKind) {
        inner.channel.queue().push(QueuedEvent {
            token: self.token,
            listener: None,
            id: None,
            driver: std::sync::Weak::new(),
            kind,
        });
    }

    /// Performs an operation that needs a device.
    fn with_manager<R>(
        &self,
        work: impl FnOnce(&mut Manager, Instant, cm::Id) -> Result<R, CmError>,
    ) -> Result<R, CmError> {
        self.with_inner(|inner| match &inner.bind_state {
            BindState::OneDevice(device_id) => device_id.call_manager(work),
            _ => Err(CmError::NotBound),
        })
    }

    fn query_manager<R>(&self, question: impl Fn(&Manager, cm::Id) -> Option<R>) -> Option<R> {
        self.with_inner(|inner| {
            let device_id = inner.bind_state.device_ids().first()?;
            let asked = device_id.call_manager(|manager, _, id| Ok(question(manager, id)));
            asked.ok().flatten()
        })
    }

    /// Runs `work` under its lock, and wakes afterwards what that wants to wake: a waker may poll its task at once, and the
    /// task may use this id.
    fn with_inner<R>(&self, work: impl FnOnce(&mut Inner) -> R) -> R {
        deferred_wakeups::deliver_after(|| work(&mut self.inner()))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        // First the ids on devices, so that there are no new events; then the events that were not
        // taken.
        let bind_state = &inner.bind_state;
        if let BindState::OneDevice(device_id) = bind_state {
            device_id.driver.subscribe(device_id.id, None);
        }
        drop(inner.channel.queue().take_of(self.token));
    }
}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CmId")
            .field("token", &self.token)
            .field("space", &self.space)
            .field("service_type", &self.service_type)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "async"))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};
    use std::time::Duration;

    use super::*;

    /// Whether its id could be used when it was woken.
    struct Task {
        id: CmId,
        could_use_id: AtomicBool,
    }

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            let is_free = self.id.inner.try_lock().is_ok();
            self.could_use_id.store(is_free, Ordering::Relaxed);
        }
    }

    /// A waker may poll its task at once, and the task may use the id.
    #[test]
    fn a_reported_event_wakes_tasks_when_the_id_is_free() {
        let channel = EventChannel::private();
        let task = Arc::new(Task {
            id: channel.create_id(PortSpace::Tcp),
            could_use_id: AtomicBool::new(false),
        });
        let waiting = channel.queue().notifier().waiting();
        waiting.add_task(&Waker::from(Arc::clone(&task)));
        task.id.report(EventKind::Disconnected { timed_out: false });
        assert!(task.could_use_id.load(Ordering::Relaxed));
    }

    #[test]
    fn an_event_of_a_call_wakes_tasks_when_the_id_is_free() {
        const TIMEOUT: Duration = Duration::from_secs(20);
        let channel = EventChannel::private();
        let task = Arc::new(Task {
            id: channel.create_id(PortSpace::Tcp),
            could_use_id: AtomicBool::new(false),
        });
        let own = "127.58.91.13:0".parse().expect("an address");
        task.id.bind(own).expect("a free port");
        let wakes = |call: &dyn Fn() -> Result<(), CmError>| {
            let waiting = channel.queue().notifier().waiting();
            waiting.add_task(&Waker::from(Arc::clone(&task)));
            call().expect("the id is in the right state");
            let event = channel.wait_for(TIMEOUT).expect("an event").kind;
            (event, task.could_use_id.swap(false, Ordering::Relaxed))
        };
        let peer = "127.58.91.14:7".parse().expect("an address");
        let resolved = wakes(&|| task.id.resolve_address(None, peer, TIMEOUT));
        assert_eq!(resolved, (EventKind::AddressResolved, true));
        let resolved = wakes(&|| task.id.resolve_route(TIMEOUT));
        assert_eq!(resolved, (EventKind::RouteResolved, true));
    }
}

//! Ids: ends of connections, and listeners.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use abi::{ibv_qp_attr, rdma_cm_id};
use engine::{Attributes, State, SystemRefusal};

use super::CreateError;
use super::address::CAddress;
use super::dispatcher::{Dispatcher, binding_of};
use super::event::{Event, Parameters};
use super::event_queue::EventQueue;
use super::task_timers::TimerKey;
use crate::verbs::{QueuePair, attributes_from, last_error};

/// An id of the connection manager, for reliable connections. Dropping it ends its connection.
#[derive(Debug)]
pub struct Id {
    raw: NonNull<rdma_cm_id>,
    queue: Arc<EventQueue>,
    dispatcher: Arc<Dispatcher>,
}

// SAFETY: the functions of librdmacm may be called from any thread, and calls that use the structure hold the lock of the
// calls.
unsafe impl Send for Id {}

// SAFETY: as for `Send`.
unsafe impl Sync for Id {}

impl Id {
    /// Creates an id without an address.
    pub fn create() -> Result<Self, CreateError> {
        let dispatcher = Dispatcher::running()?;
        let mut raw = ptr::null_mut();
        let space = abi::RDMA_PS_TCP as c_int;
        // SAFETY: the channel exists, and the function writes one pointer.
        let result = unsafe {
            (dispatcher.functions.rdma_create_id)(
                dispatcher.channel(),
                &raw mut raw,
                ptr::null_mut(),
                space,
            )
        };
        let raw = NonNull::new(raw).filter(|_| result == 0);
        let raw = raw.ok_or_else(|| last_error("rdma_create_id"))?;
        Ok(Self {
            queue: dispatcher.add(raw),
            raw,
            dispatcher,
        })
    }

    /// The id of a request.
    ///
    /// # Safety
    /// The id must exist and have no other owner, and the lock of the calls must be held.
    pub(super) unsafe fn of_request(
        dispatcher: &Arc<Dispatcher>,
        raw: NonNull<rdma_cm_id>,
    ) -> Self {
        let queue = dispatcher.add(raw);
        // SAFETY: by the caller's promise.
        queue.set_binding(unsafe { binding_of(raw) });
        Self {
            raw,
            queue,
            dispatcher: Arc::clone(dispatcher),
        }
    }

    /// Calls a function that returns zero, or sets `errno`.
    fn call(
        &self,
        name: &'static str,
        function: impl FnOnce(*mut rdma_cm_id) -> c_int,
    ) -> Result<(), SystemRefusal> {
        let _calls = self.dispatcher.lock_calls();
        match function(self.raw.as_ptr()) {
            0 => Ok(()),
            _ => Err(last_error(name)),
        }
    }

    /// As [`call`](Self::call), for a function that librdmacm allows only to ids with a device: it does not check that itself.
    fn call_at_device(
        &self,
        call: &'static str,
        function: impl FnOnce(*mut rdma_cm_id) -> c_int,
    ) -> Result<(), SystemRefusal> {
        if self.device().is_none() {
            let number = libc::EINVAL;
            return Err(SystemRefusal::Call { call, number });
        }
        self.call(call, function)
    }

    /// Binds it to a local address. Port 0 selects a free one.
    pub fn bind(&self, address: SocketAddr) -> Result<(), SystemRefusal> {
        let mut address = CAddress::new(address);
        let bind = self.dispatcher.functions.rdma_bind_addr;
        self.call("rdma_bind_addr", |id| {
            // SAFETY: the id exists, and the address has the length that its family has.
            let result = unsafe { bind(id, address.as_mut_ptr()) };
            // SAFETY: the id exists, and `call` holds the lock.
            self.queue.set_binding(unsafe { binding_of(self.raw) });
            result
        })
    }

    /// Accepts requests from now on. At most `backlog` of them wait until they are taken.
    pub fn listen(&self, backlog: u16) -> Result<(), SystemRefusal> {
        let listen = self.dispatcher.functions.rdma_listen;
        // SAFETY: the id exists.
        self.call("rdma_listen", |id| unsafe { listen(id, backlog.into()) })
    }

    /// Starts to resolve the address of a peer.
    pub fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Result<(), SystemRefusal> {
        let mut source = source.map(CAddress::new);
        let mut peer = CAddress::new(peer);
        let source = source
            .as_mut()
            .map_or(ptr::null_mut(), CAddress::as_mut_ptr);
        let resolve = self.dispatcher.functions.rdma_resolve_addr;
        self.call("rdma_resolve_addr", |id| {
            // SAFETY: the id exists, and each address has the length that its family has; the first may be null.
            unsafe { resolve(id, source, peer.as_mut_ptr(), milliseconds(timeout)) }
        })
    }

    /// Starts to resolve the route to the peer, whose address is resolved.
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), SystemRefusal> {
        let resolve = self.dispatcher.functions.rdma_resolve_route;
        self.call_at_device("rdma_resolve_route", |id| {
            // SAFETY: the id exists and has a device.
            unsafe { resolve(id, milliseconds(timeout)) }
        })
    }

    /// Asks the server for a connection of this queue pair.
    pub fn connect(
        &self,
        queue_pair: &Arc<QueuePair>,
        parameters: Parameters<'_>,
    ) -> Result<(), SystemRefusal> {
        let connect = self.dispatcher.functions.rdma_connect;
        let call = "rdma_connect";
        let mut wanted = parameters
            .to_c(queue_pair.number())
            .ok_or_else(|| too_long(call))?;
        self.queue.set_queue_pair(Arc::downgrade(queue_pair));
        // SAFETY: the id exists and has a device. The private data lives until the call returns.
        self.call_at_device(call, |id| unsafe { connect(id, &raw mut wanted) })
    }

    /// Accepts the request of a client, with this queue pair.
    pub fn accept(
        &self,
        queue_pair: &Arc<QueuePair>,
        parameters: Parameters<'_>,
    ) -> Result<(), SystemRefusal> {
        let accept = self.dispatcher.functions.rdma_accept;
        let call = "rdma_accept";
        let mut wanted = parameters
            .to_c(queue_pair.number())
            .ok_or_else(|| too_long(call))?;
        self.queue.set_queue_pair(Arc::downgrade(queue_pair));
        // SAFETY: as in `connect`.
        self.call_at_device(call, |id| unsafe { accept(id, &raw mut wanted) })
    }

    /// Rejects the request of a client.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), SystemRefusal> {
        let reject = self.dispatcher.functions.rdma_reject;
        let call = "rdma_reject";
        let length = u8::try_from(private_data.len()).map_err(|_| too_long(call))?;
        self.call_at_device(call, |id| {
            // SAFETY: the id exists, and the private data has this length.
            unsafe { reject(id, private_data.as_ptr().cast(), length) }
        })
    }

    /// Confirms the response of the server, once the queue pair is ready.
    pub fn establish(&self) -> Result<(), SystemRefusal> {
        let establish = self.dispatcher.functions.rdma_establish;
        // SAFETY: the id exists and has a device.
        self.call_at_device("rdma_establish", |id| unsafe { establish(id) })
    }

    /// Ends the connection. Outstanding requests are flushed.
    pub fn disconnect(&self) -> Result<(), SystemRefusal> {
        self.queue.fail_queue_pair();
        let disconnect = self.dispatcher.functions.rdma_disconnect;
        // SAFETY: the id exists and has a device.
        self.call_at_device("rdma_disconnect", |id| unsafe { disconnect(id) })
    }

    /// The attributes that bring its queue pair to a state.
    pub fn attributes(&self, state: State) -> Result<Attributes, SystemRefusal> {
        let mut found = ibv_qp_attr {
            qp_state: state as u32,
            ..ibv_qp_attr::default()
        };
        let mut mask: c_int = 0;
        let init = self.dispatcher.functions.rdma_init_qp_attr;
        self.call_at_device("rdma_init_qp_attr", |id| {
            // SAFETY: the id exists, and the structure has the size that a test compares with the header.
            unsafe { init(id, &raw mut found, &raw mut mask) }
        })?;
        Ok(attributes_from(&found, mask.cast_unsigned()))
    }

    /// The name of its device, once it has one.
    pub fn device(&self) -> Option<String> {
        self.queue.binding().device
    }

    /// The local address, once it has one.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.queue.binding().local
    }

    /// The address of the peer, once it is resolved.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.queue.binding().peer
    }

    /// The next event, if there is one.
    pub fn poll(&self) -> Option<Event> {
        self.queue.poll()
    }

    /// The next event. Waits for it until the deadline, if there is one.
    pub fn wait_until(&self, deadline: Option<Instant>) -> Option<Event> {
        self.queue.wait_until(deadline)
    }

    /// The next event. Without one, the task is woken when there is one.
    pub fn poll_task(&self, waker: &Waker) -> Option<Event> {
        self.queue.poll_task(waker)
    }

    /// Wakes a task at a time.
    pub fn set_task_timer(&self, at: Instant, waker: &Waker) -> TimerKey {
        let (key, is_first) = self.dispatcher.task_timers.set(at, waker);
        if is_first {
            self.dispatcher.wake_thread();
        }
        key
    }

    /// Removes a timer, if it is not due yet.
    pub fn cancel_task_timer(&self, key: TimerKey) {
        self.dispatcher.task_timers.cancel(key);
    }
}

/// Private data that is longer than its field.
fn too_long(call: &'static str) -> SystemRefusal {
    let number = libc::EINVAL;
    SystemRefusal::Call { call, number }
}

fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}

impl Drop for Id {
    fn drop(&mut self) {
        self.dispatcher.remove(self.raw);
        // Not under the lock: it waits until the dispatcher has acknowledged the events of the id.
        // SAFETY: it exists, is destroyed once, and no event of it is handed out any more.
        unsafe { (self.dispatcher.functions.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}

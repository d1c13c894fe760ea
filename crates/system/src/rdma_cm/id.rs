//! Ids: ends of connections, and listeners.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use abi::{ibv_qp_attr, rdma_cm_id, rdma_cm_join_mc_attr_ex};
use engine::{Attributes, State, SystemRefusal};
use wire::{AckTimeout, Qpn};

use super::CreateError;
use super::address::CAddress;
use super::delivery::{Delivery, Receiver};
use super::dispatcher::{Dispatcher, binding_of};
use super::parameters::Parameters;
use crate::verbs::{QueuePair, attributes_from, last_error};

/// The level of the options of an id (`RDMA_OPTION_ID`).
const OPTION_OF_ID: c_int = 0;

/// The parts of the structure of a multicast group: its address, and whether the id only sends to it.
const GROUP_AND_FLAGS: u32 = 3;

/// What an id is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connections.
    Connections,
    /// Datagram services and multicast groups.
    Datagrams,
}

/// An option of an id.
#[derive(Clone, Copy, Debug)]
pub enum IdOption {
    /// The traffic class of all that it sends.
    TrafficClass(u8),
    /// Whether ids that do not listen may share a port.
    ReuseAddress(bool),
    /// Whether a listener at all addresses accepts its own address family only.
    FamilyOnly(bool),
    /// The acknowledge timeout of its queue pair.
    AckTimeout(AckTimeout),
}

/// An id of the connection manager. Dropping it ends its connection, and leaves its multicast groups.
#[derive(Debug)]
pub struct Id {
    raw: NonNull<rdma_cm_id>,
    delivery: Arc<Delivery>,
    dispatcher: Arc<Dispatcher>,
}

// SAFETY: the functions of librdmacm may be called from any thread, and calls that use the structure hold the lock of the
// calls.
unsafe impl Send for Id {}

// SAFETY: as for `Send`.
unsafe impl Sync for Id {}

impl Id {
    /// Creates an id without an address.
    pub fn create(service: Service) -> Result<Self, CreateError> {
        let dispatcher = Dispatcher::running()?;
        let mut raw = ptr::null_mut();
        let space = match service {
            Service::Connections => abi::RDMA_PS_TCP,
            Service::Datagrams => abi::RDMA_PS_UDP,
        };
        // SAFETY: the channel exists, and the function writes one pointer.
        let result = unsafe {
            (dispatcher.functions.rdma_create_id)(
                dispatcher.channel(),
                &raw mut raw,
                ptr::null_mut(),
                space as c_int,
            )
        };
        let raw = NonNull::new(raw).filter(|_| result == 0);
        let raw = raw.ok_or_else(|| last_error("rdma_create_id"))?;
        Ok(Self {
            delivery: dispatcher.add(raw),
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
        let delivery = dispatcher.add(raw);
        // SAFETY: by the caller's promise.
        delivery.set_binding(unsafe { binding_of(raw) });
        Self {
            raw,
            delivery,
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
            return Err(not_at_device(call));
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
            self.delivery.set_binding(unsafe { binding_of(self.raw) });
            result
        })
    }

    /// Sets an option.
    pub fn set_option(&self, option: IdOption) -> Result<(), SystemRefusal> {
        let set = self.dispatcher.functions.rdma_set_option;
        let (name, byte, flag): (_, Option<u8>, c_int) = match option {
            IdOption::TrafficClass(class) => (0, Some(class), 0),
            IdOption::ReuseAddress(reuse) => (1, None, reuse.into()),
            IdOption::FamilyOnly(only) => (2, None, only.into()),
            IdOption::AckTimeout(timeout) => (3, Some(timeout.code()), 0),
        };
        let (mut byte, mut flag, is_byte) = (byte.unwrap_or(0), flag, byte.is_some());
        let (value, length) = if is_byte {
            ((&raw mut byte).cast(), size_of::<u8>())
        } else {
            ((&raw mut flag).cast(), size_of::<c_int>())
        };
        self.call("rdma_set_option", |id| {
            // SAFETY: the id exists, and the value has the length that the option has.
            unsafe { set(id, OPTION_OF_ID, name, value, length) }
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

    /// Asks the server for a connection of a queue pair.
    pub fn connect(&self, parameters: Parameters<'_>) -> Result<(), SystemRefusal> {
        let connect = self.dispatcher.functions.rdma_connect;
        let call = "rdma_connect";
        let mut wanted = parameters.to_c().ok_or_else(|| too_long(call))?;
        self.note_queue_pair(parameters.queue_pair);
        self.delivery.set_client();
        if self.device().is_none() {
            return Err(not_at_device(call));
        }
        // Not under the lock: at an iWARP device it waits for the TCP connection. It changes no field of the public structure.
        // SAFETY: the id exists and has a device. The private data lives until the call returns.
        match unsafe { connect(self.raw.as_ptr(), &raw mut wanted) } {
            0 => Ok(()),
            _ => Err(last_error(call)),
        }
    }

    /// Accepts the request of a client, with a queue pair.
    pub fn accept(&self, parameters: Parameters<'_>) -> Result<(), SystemRefusal> {
        let accept = self.dispatcher.functions.rdma_accept;
        let call = "rdma_accept";
        let mut wanted = parameters.to_c().ok_or_else(|| too_long(call))?;
        self.note_queue_pair(parameters.queue_pair);
        // SAFETY: as in `connect`.
        self.call_at_device(call, |id| unsafe { accept(id, &raw mut wanted) })
    }

    /// Notes which queue pair fails when the connection ends. One of another process or device is the program's affair.
    fn note_queue_pair(&self, number: Qpn) {
        let found = self.device().map(|device| QueuePair::find(&device, number));
        self.delivery.set_queue_pair(found.unwrap_or_default());
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
        if self.delivery.is_established() {
            return Ok(());
        }
        let establish = self.dispatcher.functions.rdma_establish;
        // SAFETY: the id exists and has a device.
        self.call_at_device("rdma_establish", |id| unsafe { establish(id) })
    }

    /// Ends the connection. Outstanding requests are flushed.
    pub fn disconnect(&self) -> Result<(), SystemRefusal> {
        self.delivery.fail_queue_pair();
        let disconnect = self.dispatcher.functions.rdma_disconnect;
        // SAFETY: the id exists and has a device.
        self.call_at_device("rdma_disconnect", |id| unsafe { disconnect(id) })
    }

    /// Starts to join a multicast group. An event has the result.
    pub fn join(&self, group: IpAddr, send_only: bool) -> Result<(), SystemRefusal> {
        let mut address = CAddress::new((group, 0).into());
        let mut wanted = rdma_cm_join_mc_attr_ex {
            comp_mask: GROUP_AND_FLAGS,
            join_flags: send_only.into(),
            addr: address.as_mut_ptr(),
        };
        let name = ptr::without_provenance_mut(self.delivery.place_of(group));
        let join = self.dispatcher.functions.rdma_join_multicast_ex;
        self.call_at_device("rdma_join_multicast", |id| {
            // SAFETY: the id exists and has a device. The address has the length that its family has, and lives until the call
            // returns. The name is not used as a pointer.
            unsafe { join(id, &raw mut wanted, name) }
        })
    }

    /// Leaves a multicast group.
    pub fn leave(&self, group: IpAddr) -> Result<(), SystemRefusal> {
        let mut address = CAddress::new((group, 0).into());
        let leave = self.dispatcher.functions.rdma_leave_multicast;
        // Not under the lock: it waits until the dispatcher has acknowledged the events of the group.
        // SAFETY: the id exists. The function changes only its list of groups, which has a lock of its own.
        match unsafe { leave(self.raw.as_ptr(), address.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(last_error("rdma_leave_multicast")),
        }
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
        self.delivery.binding().device
    }

    /// The local address, once it has one.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.delivery.binding().local
    }

    /// The address of the peer, once it is resolved.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.delivery.binding().peer
    }

    /// Hands its events to a receiver, also those that have happened already.
    pub fn deliver_to(&self, receiver: Receiver) {
        self.delivery.set_receiver(receiver);
    }

    /// Sets whether the end of its connection is confirmed to the peer at once, and fails its queue pair. Otherwise
    /// [`disconnect`](Self::disconnect) does both.
    pub fn confirm_end(&self, at_once: bool) {
        self.delivery.set_confirms_end(at_once);
    }
}

/// A call that needs a device.
fn not_at_device(call: &'static str) -> SystemRefusal {
    let number = libc::EINVAL;
    SystemRefusal::Call { call, number }
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

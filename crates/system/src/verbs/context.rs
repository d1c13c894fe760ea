//! An open device of the system.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::{Duration, Instant};

use abi::{
    ibv_async_event, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_gid, ibv_port_attr,
    ibv_qp, ibv_srq,
};
use engine::SystemRefusal;
use wire::{Gid, PathMtu, Qpn};

use super::descriptor::{set_nonblocking, wait_readable};
use super::error::{OpenError, error_number, last_error};
use super::library::{Functions, functions};

/// An open device. It closes when everything that was made from it is dropped.
pub struct Context {
    pub(super) raw: NonNull<ibv_context>,
    pub(super) functions: &'static Functions,
    name: String,
    /// The bits of `device_cap_flags_ex`.
    pub(super) capabilities: u64,
}

// SAFETY: the functions of libibverbs may be called from any thread, also at the same time.
unsafe impl Send for Context {}

// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.name).finish()
    }
}

/// What a device can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// The limits of `ibv_query_device`, by their names in `verbs.h`.
    pub limits: Vec<(&'static str, u64)>,
    /// The version of the firmware.
    pub firmware: String,
}

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAttributes {
    /// The largest path MTU of the port.
    pub max_mtu: Option<PathMtu>,
    /// The path MTU that it uses.
    pub active_mtu: Option<PathMtu>,
    /// The length of the GID table.
    pub gid_table_length: usize,
}

/// The list of devices, freed when it is dropped.
struct DeviceList {
    functions: &'static Functions,
    first: NonNull<*mut ibv_device>,
}

impl DeviceList {
    fn new(functions: &'static Functions) -> Result<Self, SystemRefusal> {
        // SAFETY: the number of devices need not be asked for.
        let list = unsafe { (functions.ibv_get_device_list)(ptr::null_mut()) };
        let first = NonNull::new(list).ok_or_else(|| last_error("ibv_get_device_list"))?;
        Ok(Self { functions, first })
    }

    fn find(&self, name: &str) -> Option<NonNull<ibv_device>> {
        let mut at = self.first.as_ptr();
        loop {
            // SAFETY: the list ends with a null pointer, and `at` is not behind it.
            let device = NonNull::new(unsafe { at.read() })?;
            // SAFETY: the device is in a list that is not freed.
            let found = unsafe { (self.functions.ibv_get_device_name)(device.as_ptr()) };
            if !found.is_null() && text(found) == name {
                return Some(device);
            }
            // SAFETY: the list has another entry, because this one is not null.
            at = unsafe { at.add(1) };
        }
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: it was returned by `ibv_get_device_list`, and is freed once.
        unsafe { (self.functions.ibv_free_device_list)(self.first.as_ptr()) };
    }
}

/// The text at an address, which must not be null.
fn text(start: *const c_char) -> String {
    // SAFETY: libibverbs returns names that end with a zero byte and live as long as their device.
    let text = unsafe { CStr::from_ptr(start) };
    text.to_string_lossy().into_owned()
}

/// The name of the device of a context.
///
/// # Safety
/// The context must be open.
pub(crate) unsafe fn device_name(context: NonNull<ibv_context>) -> Option<String> {
    let functions = functions().ok()?;
    // SAFETY: the context is open, and its device does not change.
    let device = NonNull::new(unsafe { (*context.as_ptr()).device })?;
    // SAFETY: a device exists as long as a context of it is open.
    let name = unsafe { (functions.ibv_get_device_name)(device.as_ptr()) };
    (!name.is_null()).then(|| text(name))
}

impl Context {
    /// Opens the device with this name.
    pub fn open(name: &str) -> Result<Arc<Self>, OpenError> {
        let functions = functions()?;
        let list = DeviceList::new(functions)?;
        let device = list
            .find(name)
            .ok_or_else(|| OpenError::Unknown(name.to_owned()))?;
        // SAFETY: the device is in the list, which lives until the end of this function.
        let raw = unsafe { (functions.ibv_open_device)(device.as_ptr()) };
        let mut context = Self {
            raw: NonNull::new(raw).ok_or_else(|| last_error("ibv_open_device"))?,
            functions,
            name: name.to_owned(),
            capabilities: 0,
        };
        // Of two threads that see an event, one takes it, and the other must not block.
        set_nonblocking(context.event_descriptor())?;
        context.capabilities = context.query_capabilities();
        Ok(Arc::new(context))
    }

    /// Whether it is an iWARP device.
    pub(super) fn is_iwarp(&self) -> bool {
        // SAFETY: the context is open, and its device does not change.
        let device = unsafe { (*self.raw.as_ptr()).device };
        // SAFETY: a device exists as long as a context of it is open.
        unsafe { (*device).transport_type == abi::IBV_TRANSPORT_IWARP }
    }

    /// The descriptor of asynchronous events.
    fn event_descriptor(&self) -> c_int {
        // SAFETY: the context is open, and its descriptor does not change.
        unsafe { (*self.raw.as_ptr()).async_fd }
    }

    /// Waits for the next asynchronous event, at most this long.
    pub fn wait_event(&self, timeout: Duration) -> Option<AsyncEvent> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(event) = self.take_event() {
                return Some(event);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            wait_readable(self.event_descriptor(), left);
        }
    }

    /// The next asynchronous event, if there is one.
    fn take_event(&self) -> Option<AsyncEvent> {
        let mut found = ibv_async_event::default();
        // SAFETY: the context is open, and its descriptor does not block.
        let taken =
            unsafe { (self.functions.ibv_get_async_event)(self.raw.as_ptr(), &raw mut found) };
        if taken != 0 {
            return None;
        }
        let event = event_of(&found);
        // SAFETY: it was taken, and is acknowledged once.
        unsafe { (self.functions.ibv_ack_async_event)(&raw mut found) };
        Some(event)
    }

    /// The name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the device can do.
    pub fn attributes(&self) -> Result<DeviceAttributes, SystemRefusal> {
        let mut found = ibv_device_attr::default();
        // SAFETY: the context is open, and the structure has the size that a test compares with the header.
        let result =
            unsafe { (self.functions.ibv_query_device)(self.raw.as_ptr(), &raw mut found) };
        if result != 0 {
            return Err(error_number("ibv_query_device", result));
        }
        let limits = [
            ("max_ah", found.max_ah),
            ("max_cq", found.max_cq),
            ("max_cqe", found.max_cqe),
            ("max_mcast_grp", found.max_mcast_grp),
            ("max_mcast_qp_attach", found.max_mcast_qp_attach),
            ("max_mr", found.max_mr),
            ("max_mw", found.max_mw),
            ("max_pd", found.max_pd),
            ("max_qp", found.max_qp),
            ("max_qp_init_rd_atom", found.max_qp_init_rd_atom),
            ("max_qp_rd_atom", found.max_qp_rd_atom),
            ("max_qp_wr", found.max_qp_wr),
            ("max_sge", found.max_sge),
            ("max_sge_rd", found.max_sge_rd),
            ("max_srq", found.max_srq),
            ("max_srq_sge", found.max_srq_sge),
            ("max_srq_wr", found.max_srq_wr),
            ("max_total_mcast_qp_attach", found.max_total_mcast_qp_attach),
        ];
        let limits = limits.map(|(name, limit)| (name, u64::try_from(limit).unwrap_or(0)));
        // A firmware version that fills its field has no zero byte at its end.
        let firmware = found.fw_ver.iter().take_while(|byte| **byte != 0);
        let firmware: Vec<u8> = firmware
            .map(|byte| u8::from_ne_bytes(byte.to_ne_bytes()))
            .collect();
        Ok(DeviceAttributes {
            limits: limits
                .into_iter()
                .chain([("max_mr_size", found.max_mr_size)])
                .collect(),
            firmware: String::from_utf8_lossy(&firmware).into_owned(),
        })
    }

    /// The state of a port.
    pub fn port(&self, number: u8) -> Result<PortAttributes, SystemRefusal> {
        let mut found = ibv_port_attr::default();
        // SAFETY: the context is open. The function writes the older part of the structure; the rest stays zero.
        let result =
            unsafe { (self.functions.ibv_query_port)(self.raw.as_ptr(), number, &raw mut found) };
        if result != 0 {
            return Err(error_number("ibv_query_port", result));
        }
        let mtu = |code: u32| PathMtu::from_code(u8::try_from(code).ok()?);
        Ok(PortAttributes {
            max_mtu: mtu(found.max_mtu),
            active_mtu: mtu(found.active_mtu),
            gid_table_length: usize::try_from(found.gid_tbl_len).unwrap_or(0),
        })
    }

    /// The GID at an index of a port's table; all bytes are zero if the entry is empty.
    pub fn gid(&self, port: u8, index: u8) -> Result<Gid, SystemRefusal> {
        let mut found = ibv_gid::default();
        let (raw, index) = (self.raw.as_ptr(), index.into());
        // SAFETY: the context is open, and the function writes one GID.
        let result = unsafe { (self.functions.ibv_query_gid)(raw, port, index, &raw mut found) };
        match result {
            0 => Ok(Gid::from_bytes(found.raw)),
            _ => Err(last_error("ibv_query_gid")),
        }
    }

    /// The table of the provider for the fast path.
    pub(super) fn operations(&self) -> &abi::ibv_context_ops {
        // SAFETY: the context is open, and the provider fills the table before it returns the context.
        unsafe { &(*self.raw.as_ptr()).ops }
    }
}

/// An asynchronous event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A completion queue overran, with its token.
    CompletionQueueError(u64),
    /// A shared receive queue holds fewer receives than its limit, with its token.
    SharedReceiveLimit(u64),
    /// An event without a queue.
    Other(engine::AsyncEvent),
}

/// An event. It must not be acknowledged yet: what it is about exists until its events are.
fn event_of(found: &ibv_async_event) -> AsyncEvent {
    match found.event_type {
        abi::IBV_EVENT_CQ_ERR => {
            // SAFETY: the type of the event says that it is about a completion queue, which can't be destroyed before the event is acknowledged.
            let token = unsafe { (*found.element.cast::<ibv_cq>()).cq_context };
            AsyncEvent::CompletionQueueError(token.addr() as u64)
        }
        abi::IBV_EVENT_SRQ_LIMIT_REACHED => {
            // SAFETY: as before, about a shared receive queue.
            let token = unsafe { (*found.element.cast::<ibv_srq>()).srq_context };
            AsyncEvent::SharedReceiveLimit(token.addr() as u64)
        }
        _ => AsyncEvent::Other(event_in_engine(found)),
    }
}

/// An event in the engine's terms, as [`event_of`].
fn event_in_engine(found: &ibv_async_event) -> engine::AsyncEvent {
    use engine::AsyncEvent;
    let queue_pair = || {
        // SAFETY: the type of the event says that it is about a queue pair, which can't be destroyed before the event is acknowledged.
        Qpn::new(unsafe { (*found.element.cast::<ibv_qp>()).qp_num })
    };
    match found.event_type {
        abi::IBV_EVENT_QP_FATAL => AsyncEvent::QueuePairFatal(queue_pair()),
        abi::IBV_EVENT_QP_REQ_ERR => AsyncEvent::RequestError(queue_pair()),
        abi::IBV_EVENT_QP_ACCESS_ERR => AsyncEvent::AccessError(queue_pair()),
        abi::IBV_EVENT_COMM_EST => AsyncEvent::CommunicationEstablished(queue_pair()),
        abi::IBV_EVENT_SQ_DRAINED => AsyncEvent::SendQueueDrained(queue_pair()),
        abi::IBV_EVENT_QP_LAST_WQE_REACHED => AsyncEvent::LastReceiveReached(queue_pair()),
        abi::IBV_EVENT_PORT_ERR => AsyncEvent::PortError,
        abi::IBV_EVENT_PORT_ACTIVE => AsyncEvent::PortActive,
        other => AsyncEvent::Other(other),
    }
}

#[cfg(test)]
impl Context {
    /// A device of this library. It is at no address, so the library must not access it.
    pub(super) fn of(functions: Functions) -> Arc<Self> {
        Arc::new(Self {
            raw: NonNull::dangling(),
            functions: Box::leak(Box::new(functions)),
            name: String::new(),
            capabilities: 0,
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: nothing that was made from it exists any more, because all of it has an `Arc` of it.
        unsafe { (self.functions.ibv_close_device)(self.raw.as_ptr()) };
    }
}

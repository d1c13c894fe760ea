//! The handle of an open device, which all other objects use.

use std::collections::HashMap;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use driver::{Awaited, Driver, Notifier};
use engine::{AsyncEvent, CompletionQueue, Id, SharedReceiveQueue, XrcDomain};
use wire::Qpn;

use super::device_list::Device;
use super::event_target::EventTarget;
use super::xrc_target::SharedTarget;
use crate::abi;
use crate::entry::{FromC, Pointer};
use crate::errno::Errno;
use crate::interruption;
use crate::object::Object;

/// A context. C has a pointer to the `ibv_context` inside.
pub(crate) type Context = Object<abi::verbs_context, Arc<OpenDevice>>;

/// An open device. Every object created from it keeps it open.
pub(crate) struct OpenDevice {
    pub(crate) driver: Arc<Driver>,
    pub(crate) device: &'static Device,
    pub(crate) objects: Mutex<ObjectTable>,
    /// The notifier of asynchronous events.
    pub(crate) event_notifier: Arc<Notifier>,
    /// The descriptor `cmd_fd`. `ibv_import_device` recognizes it by its inode.
    pub(super) command: OwnedFd,
    pub(super) next_handle: AtomicU32,
}

/// The objects that are found by number.
#[derive(Default)]
pub(crate) struct ObjectTable {
    pub(crate) queue_pairs: HashMap<Qpn, EventTarget>,
    pub(crate) completion_queues: HashMap<Id<CompletionQueue>, EventTarget>,
    pub(crate) receive_queues: HashMap<Id<SharedReceiveQueue>, EventTarget>,
    pub(crate) shared_xrc_domains: HashMap<(u64, u64), (Id<XrcDomain>, u32)>,
    pub(crate) xrc_targets: HashMap<Qpn, SharedTarget>,
    pub(crate) domains: HashMap<u32, Id<engine::ProtectionDomain>>,
    pub(crate) regions: HashMap<u32, engine::Registration>,
    pub(crate) device_memories: HashMap<u32, Arc<DeviceBuffer>>,
}

/// Device memory, which its handles share. Regions share the buffer alone.
pub(crate) struct DeviceBuffer {
    pub(crate) buffer: Arc<engine::Buffer>,
}

impl<'a> FromC for &'a Context {
    type Raw = *mut abi::ibv_context;

    unsafe fn from_c(raw: *mut abi::ibv_context) -> Result<&'a Context, Errno> {
        if raw.is_null() {
            return Err(Errno::INVALID);
        }
        let whole = raw.wrapping_byte_sub(std::mem::offset_of!(abi::verbs_context, context));
        // SAFETY: by the caller's promise it is inside a context that this library created.
        unsafe { &*whole.cast::<Context>() }.alive()
    }
}

impl Context {
    /// Fails for an object of another device. Its number may be that of an object of this one.
    pub(crate) fn check_owns(&self, open: &Arc<OpenDevice>) -> Result<(), Errno> {
        if Arc::ptr_eq(self, open) {
            Ok(())
        } else {
            Err(Errno::INVALID)
        }
    }

    /// The pointer that C has.
    pub(crate) fn pointer(&self) -> *mut abi::ibv_context {
        let whole = self.c();
        whole
            .wrapping_byte_add(std::mem::offset_of!(abi::verbs_context, context))
            .cast()
    }
}

impl OpenDevice {
    pub(crate) fn objects(&self) -> MutexGuard<'_, ObjectTable> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new handle number, as the kernel would assign it.
    pub(crate) fn handle(&self) -> u32 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends pending acknowledgements.
    ///
    /// Acknowledgements wait for the program's next request, to leave in the same send. Before an object is
    /// destroyed they must be sent, or the peer would retransmit.
    pub(crate) fn flush(&self) {
        self.driver.flush();
    }

    /// Sleeps until there is a notification, but not for long. A signal may end the call with EINTR.
    pub(crate) fn sleep(&self, notifier: &Notifier) -> Result<(), Errno> {
        let until = Instant::now() + interruption::CANCELLATION_CHECK_INTERVAL;
        let awaited = Awaited::Notification(notifier);
        if self.driver.try_sleep(&awaited, Some(until))? && interruption::signals_end_calls() {
            Err(Errno(libc::EINTR))
        } else {
            Ok(())
        }
    }

    /// Fails in the child of a fork: the device belongs to the parent.
    pub(crate) fn check_not_inherited(&self) -> Result<(), Errno> {
        if self.driver.is_inherited() {
            Err(Errno::inherited())
        } else {
            Ok(())
        }
    }

    /// Drops the events of a destroyed queue pair.
    pub(super) fn forget_queue_pair(&self, number: Qpn) {
        self.objects().queue_pairs.remove(&number);
        let gone = |event: &AsyncEvent| queue_pair_of(event) == Some(number);
        self.driver.forget_events(gone);
    }

    /// Drops the events of a destroyed completion queue.
    pub(super) fn forget_completion_queue(&self, id: Id<CompletionQueue>) {
        self.objects().completion_queues.remove(&id);
        let gone = |event: &AsyncEvent| *event == AsyncEvent::CompletionQueueError(id);
        self.driver.forget_events(gone);
    }

    /// Drops the events of a destroyed shared receive queue.
    pub(super) fn forget_receive_queue(&self, id: Id<SharedReceiveQueue>) {
        self.objects().receive_queues.remove(&id);
        let gone = |event: &AsyncEvent| *event == AsyncEvent::SharedReceiveLimit(id);
        self.driver.forget_events(gone);
    }
}

/// The queue pair of an event.
fn queue_pair_of(event: &AsyncEvent) -> Option<Qpn> {
    match *event {
        AsyncEvent::QueuePairFatal(number)
        | AsyncEvent::RequestError(number)
        | AsyncEvent::AccessError(number)
        | AsyncEvent::CommunicationEstablished(number)
        | AsyncEvent::SendQueueDrained(number)
        | AsyncEvent::LastReceiveReached(number) => Some(number),
        AsyncEvent::CompletionQueueError(_)
        | AsyncEvent::SharedReceiveLimit(_)
        | AsyncEvent::PortError
        | AsyncEvent::PortActive
        | AsyncEvent::Other(_) => None,
    }
}

/// Whether the program has set O_NONBLOCK. Fails if it has closed the descriptor.
pub(crate) fn is_nonblocking(descriptor: RawFd) -> Result<bool, Errno> {
    // SAFETY: takes no pointers.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    match flags {
        ..0 => Err(Errno::last()),
        _ => Ok(flags & libc::O_NONBLOCK != 0),
    }
}

/// Device and inode, which all duplicates of a descriptor share.
pub(crate) fn identity(descriptor: RawFd) -> Result<(u64, u64), Errno> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills in the live structure.
    if unsafe { libc::fstat(descriptor, status.as_mut_ptr()) } != 0 {
        return Err(Errno::last());
    }
    // SAFETY: it succeeded, so it filled it in.
    let status = unsafe { status.assume_init() };
    Ok((status.st_dev, status.st_ino))
}

/// The context at a pointer.
pub(crate) fn context_at<'a>(pointer: &Pointer<abi::ibv_context>) -> Result<&'a Context, Errno> {
    crate::object::object_at(pointer.0)
}

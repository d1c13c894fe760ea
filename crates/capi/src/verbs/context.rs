//! Open devices.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Instant;

use engine::{CompletionQueue, Id, SharedReceiveQueue, XrcDomain};
use rocinante::raw::{Bell, Raw};
use wire::Qpn;

use super::async_event::Subject;
use super::device::{self, Device};
use super::{
    completion, device_memory, domain, extended_completion, memory, query, queue_pair, receive,
    send, shared_receive, window, xrc,
};
use crate::abi;
use crate::entry::{FromC, Pointer, entry, guard};
use crate::errno::Errno;
use crate::interruption;
use crate::object::Object;

/// An open device, as C sees it. Its address is that of the `ibv_context` inside.
pub(crate) type Context = Object<abi::verbs_context, Arc<Open>>;

/// An open device. Everything made from it keeps it open.
pub(crate) struct Open {
    pub(crate) context: rocinante::Context,
    pub(crate) device: &'static Device,
    pub(crate) members: Mutex<Members>,
    /// Where descriptors of asynchronous events come from.
    pub(crate) event_bell: Arc<Bell>,
    /// Stands for the device where C wants a descriptor, and is known again by its inode.
    command: OwnedFd,
    next_handle: AtomicU32,
}

/// The objects that are looked for by number.
#[derive(Default)]
pub(crate) struct Members {
    pub(crate) queue_pairs: HashMap<Qpn, Subject>,
    pub(crate) completion_queues: HashMap<Id<CompletionQueue>, Subject>,
    pub(crate) receive_queues: HashMap<Id<SharedReceiveQueue>, Subject>,
    pub(crate) shared_xrc_domains: HashMap<(u64, u64), (Id<XrcDomain>, u32)>,
    pub(crate) domains: HashMap<u32, Id<engine::ProtectionDomain>>,
    pub(crate) regions: HashMap<u32, engine::Registration>,
    pub(crate) device_memories: HashMap<u32, Arc<engine::Buffer>>,
}

/// Every open device of this process, for `ibv_import_device`.
static OPEN: Mutex<Vec<Weak<Open>>> = Mutex::new(Vec::new());

impl<'a> FromC for &'a Context {
    type Raw = *mut abi::ibv_context;

    unsafe fn from_c(raw: *mut abi::ibv_context) -> Result<&'a Context, Errno> {
        if raw.is_null() {
            return Err(Errno::INVALID);
        }
        let whole = raw.wrapping_byte_sub(std::mem::offset_of!(abi::verbs_context, context));
        // SAFETY: by the caller's promise it is the inside of a context that `front` made.
        unsafe { &*whole.cast::<Context>() }.alive()
    }
}

impl Context {
    /// What C calls the context.
    pub(crate) fn pointer(&self) -> *mut abi::ibv_context {
        let whole = self.c();
        whole
            .wrapping_byte_add(std::mem::offset_of!(abi::verbs_context, context))
            .cast()
    }
}

entry! {
    export fn ibv_open_device(device: &Device) -> *mut abi::ibv_context {
        Ok(open(device)?.pointer())
    }

    export fn verbs_open_device(device: &Device, _private: *mut c_void) -> *mut abi::ibv_context {
        Ok(open(device)?.pointer())
    }

    export fn ibv_close_device(context: &Context) -> c_int {
        context.settle();
        context.take_back();
        Ok(0)
    }

    export fn ibv_import_device(command: c_int) -> *mut abi::ibv_context {
        let identity = identity(command)?;
        let mut opened = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|open| open.strong_count() > 0);
        let same = |open: &Arc<Open>| {
            crate::verbs::context::identity(open.command.as_raw_fd()) == Ok(identity)
        };
        let open = opened.iter().filter_map(Weak::upgrade).find(same);
        // A descriptor from another process names nothing here: devices are not shared.
        let open = open.ok_or(Errno::UNSUPPORTED)?;
        let front = front(&open);
        Ok(Context::make(front, open).pointer())
    }
}

fn open<'a>(device: &Device) -> Result<&'a Context, Errno> {
    let options = rocinante::Options::from_env();
    let context = rocinante::Context::open_with(&device.description.name, &options);
    let context = context.map_err(|error| Errno::unopened(&error))?;
    let device = &raw const *device;
    // SAFETY: listed devices live for ever.
    make(context, unsafe { &*device })
}

/// Gives C a device that is open already.
pub(crate) fn adopt<'a>(context: rocinante::Context) -> Result<&'a Context, Errno> {
    let device = device::described(context.description())?;
    make(context, device)
}

fn make<'a>(context: rocinante::Context, device: &'static Device) -> Result<&'a Context, Errno> {
    let event_bell = context.raw().event_bell().ok_or(Errno::NOT_OURS)?;
    let open = Arc::new(Open {
        context,
        device,
        members: Mutex::default(),
        event_bell,
        command: command_descriptor()?,
        next_handle: AtomicU32::new(1),
    });
    remember(&open);
    let front = front(&open);
    Ok(Context::make(front, open))
}

/// Lets `ibv_import_device` find it, and the end of the process.
fn remember(open: &Arc<Open>) {
    static AT_EXIT: Once = Once::new();
    // SAFETY: the function lives as long as this library, which is never unloaded.
    AT_EXIT.call_once(|| unsafe {
        libc::atexit(settle_all);
    });
    let mut opened = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    opened.retain(|open| open.strong_count() > 0);
    opened.push(Arc::downgrade(open));
}

/// A program that ends without closing anything has still received what it received.
extern "C" fn settle_all() {
    guard(|| {
        // Whoever holds the lock now is a thread that the exit has overtaken.
        if let Ok(opened) = OPEN.try_lock() {
            for open in opened.iter().filter_map(Weak::upgrade) {
                open.settle();
                // Not dropped: the device's thread need not be waited for.
                std::mem::forget(open);
            }
        }
        Ok(())
    });
}

impl Open {
    /// The device without handles.
    #[inline]
    pub(crate) fn raw(&self) -> Raw<'_> {
        self.context.raw()
    }

    pub(crate) fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for an object, as the kernel would give it.
    pub(crate) fn handle(&self) -> u32 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends what waits to be sent.
    ///
    /// Answers wait for what the program does next, to travel together with it. Before something
    /// ends they must not wait any longer: the peer would believe that nothing arrived.
    pub(crate) fn settle(&self) {
        self.raw().call(|_| ());
    }

    /// Sleeps until the bell rings, but not for long. A signal may end the whole call.
    pub(crate) fn sleep(&self, bell: &Bell) -> Result<(), Errno> {
        let until = Instant::now() + interruption::PATIENCE;
        if self.raw().sleep(bell, Some(until))? && interruption::signals_end_calls() {
            Err(Errno(libc::EINTR))
        } else {
            Ok(())
        }
    }

    /// Fails in the child of a fork: the device stays with the parent.
    pub(crate) fn check_ours(&self) -> Result<(), Errno> {
        if self.raw().is_inherited() {
            Err(Errno::NOT_OURS)
        } else {
            Ok(())
        }
    }
}

/// Whether a program wants to be told EAGAIN instead of waiting. Fails if it has closed the descriptor.
pub(crate) fn is_nonblocking(descriptor: RawFd) -> Result<bool, Errno> {
    // SAFETY: takes no pointers.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    match flags {
        ..0 => Err(Errno::last()),
        _ => Ok(flags & libc::O_NONBLOCK != 0),
    }
}

fn command_descriptor() -> Result<OwnedFd, Errno> {
    // SAFETY: the name is a text with a zero at its end.
    let mut descriptor = unsafe { libc::memfd_create(c"rocinante".as_ptr(), libc::MFD_CLOEXEC) };
    // A container may forbid files in memory. A socket has an inode of its own, too.
    if descriptor < 0 && matches!(Errno::last().0, libc::EPERM | libc::ENOSYS) {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: takes no pointers.
        descriptor = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    }
    if descriptor < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// What is the same for all duplicates of a descriptor.
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

/// The table of calls. What is not in it is told as EOPNOTSUPP by the functions of the header.
fn front(open: &Arc<Open>) -> abi::verbs_context {
    abi::verbs_context {
        query_port: Some(query::query_port),
        advise_mr: Some(memory::advise_mr),
        alloc_null_mr: Some(memory::alloc_null_mr),
        reg_dm_mr: Some(device_memory::reg_dm_mr),
        alloc_dm: Some(device_memory::alloc_dm),
        free_dm: Some(device_memory::free_dm),
        alloc_parent_domain: Some(domain::alloc_parent_domain),
        dealloc_td: Some(domain::dealloc_td),
        alloc_td: Some(domain::alloc_td),
        modify_cq: Some(completion::modify_cq),
        query_rt_values: Some(query::query_rt_values),
        create_cq_ex: Some(extended_completion::create_cq_ex),
        query_device_ex: Some(query::query_device_ex),
        open_qp: Some(xrc::open_qp),
        create_qp_ex: Some(queue_pair::create_qp_ex),
        get_srq_num: Some(shared_receive::get_srq_num),
        create_srq_ex: Some(shared_receive::create_srq_ex),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        sz: size_of::<abi::verbs_context>(),
        context: abi::ibv_context {
            device: open.device.c().cast(),
            ops: operations(),
            cmd_fd: open.command.as_raw_fd(),
            async_fd: open.event_bell.expose().as_raw_fd(),
            num_comp_vectors: 1,
            abi_compat: ptr::without_provenance_mut(usize::MAX),
            ..Default::default()
        },
        ..Default::default()
    }
}

fn operations() -> abi::ibv_context_ops {
    abi::ibv_context_ops {
        _compat_query_device: Some(query::ibv_query_device),
        _compat_query_port: Some(query::ibv_query_port),
        alloc_mw: Some(window::alloc_mw),
        bind_mw: Some(window::bind_mw),
        dealloc_mw: Some(window::dealloc_mw),
        poll_cq: Some(completion::poll_cq),
        req_notify_cq: Some(completion::req_notify_cq),
        post_srq_recv: Some(receive::post_srq_recv),
        post_send: Some(send::post_send),
        post_recv: Some(receive::post_recv),
        ..Default::default()
    }
}

/// A context that may be missing, where C allows it.
pub(crate) fn context_at<'a>(pointer: &Pointer<abi::ibv_context>) -> Result<&'a Context, Errno> {
    crate::object::behind(pointer.0)
}

//! Opening and closing devices, and the table of operations of a context.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use driver::Driver;

use super::context::{Context, OpenDevice, identity};
use super::device_list::{self, Device};
use super::{
    completion_queue, completion_queue_ex, create_queue_pair, device_memory, memory_region,
    memory_window, post_receive, post_send, protection_domain, query, shared_receive_queue, xrc,
};
use crate::abi;
use crate::entry::{entry, guard};
use crate::errno::Errno;

/// Every open device of this process, for `ibv_import_device`.
static OPEN: Mutex<Vec<Weak<OpenDevice>>> = Mutex::new(Vec::new());

entry! {
    export fn ibv_open_device(device: &Device) -> *mut abi::ibv_context {
        Ok(open(device)?.pointer())
    }

    export fn verbs_open_device(device: &Device, _private: *mut c_void) -> *mut abi::ibv_context {
        Ok(open(device)?.pointer())
    }

    export fn ibv_close_device(context: &Context) -> c_int {
        context.flush();
        context.destroy();
        Ok(0)
    }

    export fn ibv_import_device(command: c_int) -> *mut abi::ibv_context {
        let wanted = identity(command)?;
        let mut opened = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|open| open.strong_count() > 0);
        let same = |open: &Arc<OpenDevice>| identity(open.command.as_raw_fd()) == Ok(wanted);
        let open = opened.iter().filter_map(Weak::upgrade).find(same);
        // Devices are not shared between processes, so a descriptor of another process is rejected.
        let open = open.ok_or(Errno::UNSUPPORTED)?;
        let c_part = c_part(&open);
        Ok(Context::make(c_part, open).pointer())
    }
}

fn open<'a>(device: &Device) -> Result<&'a Context, Errno> {
    let errno = Errno::last();
    let options = driver::OpenOptions::from_env();
    let driver = Driver::open(&device.description.name, &options);
    let driver = driver.map_err(|error| Errno::from_open_error(&error))?;
    let device = &raw const *device;
    // SAFETY: listed devices are never freed.
    let context = make(driver, unsafe { &*device })?;
    // Many programs print `errno` when something else fails, such as a peer that closes its TCP connection. It is not to name a
    // directory that was already there.
    errno.set();
    Ok(context)
}

/// Creates a context for a device that is already open.
pub(crate) fn adopt<'a>(driver: Arc<Driver>) -> Result<&'a Context, Errno> {
    let device = device_list::described(driver.device())?;
    make(driver, device)
}

fn make<'a>(driver: Arc<Driver>, device: &'static Device) -> Result<&'a Context, Errno> {
    let event_notifier = driver.event_notifier().ok_or_else(Errno::inherited)?;
    let open = Arc::new(OpenDevice {
        driver,
        device,
        objects: Mutex::default(),
        event_notifier,
        command: command_descriptor()?,
        next_handle: AtomicU32::new(1),
    });
    remember(&open);
    let c_part = c_part(&open);
    Ok(Context::make(c_part, open))
}

/// Adds it to the list for `ibv_import_device` and for the exit of the process.
fn remember(open: &Arc<OpenDevice>) {
    let mut opened = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    opened.retain(|open| open.strong_count() > 0);
    opened.push(Arc::downgrade(open));
}

/// At exit, sends the acknowledgements that are pending, and the packets that an injected fault holds back: a
/// program that closes nothing has still received and sent its data.
pub(crate) fn flush_all() {
    guard(|| {
        // If the lock is held, another thread is still running during the exit.
        if let Ok(opened) = OPEN.try_lock() {
            for open in opened.iter().filter_map(Weak::upgrade) {
                open.flush();
                open.driver.flush_before_exit();
                // Not dropped, so that the exit does not wait for the device's thread.
                std::mem::forget(open);
            }
        }
        Ok(())
    });
}

fn command_descriptor() -> Result<OwnedFd, Errno> {
    // SAFETY: the name is a string that ends with a zero.
    let mut descriptor = unsafe { libc::memfd_create(c"rocinante".as_ptr(), libc::MFD_CLOEXEC) };
    // A container may forbid `memfd_create`. A socket has an inode of its own, too.
    if descriptor < 0 && matches!(Errno::last().0, libc::EPERM | libc::ENOSYS) {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: takes no pointers.
        descriptor = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    }
    if descriptor < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the kernel just returned this descriptor, and it is not shared.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The table of operations. For a missing one the inline functions of the header return EOPNOTSUPP.
fn c_part(open: &Arc<OpenDevice>) -> abi::verbs_context {
    abi::verbs_context {
        query_port: Some(query::query_port),
        advise_mr: Some(memory_region::advise_mr),
        alloc_null_mr: Some(memory_region::alloc_null_mr),
        reg_dm_mr: Some(device_memory::reg_dm_mr),
        alloc_dm: Some(device_memory::alloc_dm),
        free_dm: Some(device_memory::free_dm),
        alloc_parent_domain: Some(protection_domain::alloc_parent_domain),
        dealloc_td: Some(protection_domain::dealloc_td),
        alloc_td: Some(protection_domain::alloc_td),
        modify_cq: Some(completion_queue::modify_cq),
        query_rt_values: Some(query::query_rt_values),
        create_cq_ex: Some(completion_queue_ex::create_cq_ex),
        query_device_ex: Some(query::query_device_ex),
        open_qp: Some(create_queue_pair::open_qp),
        create_qp_ex: Some(create_queue_pair::create_qp_ex),
        get_srq_num: Some(shared_receive_queue::get_srq_num),
        create_srq_ex: Some(shared_receive_queue::create_srq_ex),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        sz: size_of::<abi::verbs_context>(),
        context: abi::ibv_context {
            device: open.device.c().cast(),
            ops: operations(),
            cmd_fd: open.command.as_raw_fd(),
            async_fd: open.event_notifier.expose().as_raw_fd(),
            num_comp_vectors: open.driver.max_lanes() as c_int,
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
        alloc_mw: Some(memory_window::alloc_mw),
        bind_mw: Some(memory_window::bind_mw),
        dealloc_mw: Some(memory_window::dealloc_mw),
        poll_cq: Some(completion_queue::poll_cq),
        req_notify_cq: Some(completion_queue::req_notify_cq),
        post_srq_recv: Some(post_receive::post_srq_recv),
        post_send: Some(post_send::post_send),
        post_recv: Some(post_receive::post_recv),
        ..Default::default()
    }
}

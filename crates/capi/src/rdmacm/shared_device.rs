//! The devices of ids: each is open once, with a protection domain for ids without their own.

use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use driver::{Driver, rdma_cm};

use crate::abi;
use crate::entry::{Pointer, entry};
use crate::errno::Errno;
use crate::object::object_at;
use crate::verbs::context::Context;
use crate::verbs::protection_domain::Pd;
use crate::verbs::{open_device, protection_domain, xrc};

/// A device that ids share.
pub(super) struct SharedDevice {
    context: &'static Context,
    domain: *mut abi::ibv_pd,
    extended: OnceLock<Handle<abi::ibv_xrcd>>,
}

/// A pointer to an object that lives as long as the process.
#[derive(Clone, Copy)]
struct Handle<T>(*mut T);

// SAFETY: what it points to can be used by any thread, and is never destroyed.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}
// SAFETY: the same holds for the context and the domain.
unsafe impl Send for SharedDevice {}
// SAFETY: as above.
unsafe impl Sync for SharedDevice {}

/// All devices that were used. As in librdmacm they stay open, because programs keep the pointers.
static USED: Mutex<Vec<&'static SharedDevice>> = Mutex::new(Vec::new());

entry! {
    export fn rdma_get_devices(count: Pointer<c_int>) -> *mut *mut abi::ibv_context {
        let tell = |number: usize| {
            if !count.0.is_null() {
                // SAFETY: not null, so by the header's promise a variable.
                unsafe { count.0.write(number as c_int) };
            }
        };
        tell(0);
        let contexts = rdma_cm::listed_devices()?;
        let shared: Result<Vec<_>, Errno> = contexts.iter().map(of).collect();
        let mut pointers: Vec<_> = shared?.iter().map(|it| it.context()).collect();
        tell(pointers.len());
        pointers.push(ptr::null_mut());
        Ok(Box::into_raw(pointers.into_boxed_slice()).cast())
    }

    export fn rdma_free_devices(list: Pointer<*mut abi::ibv_context>) {
        if list.0.is_null() {
            return Ok(());
        }
        let mut length = 0;
        // SAFETY: it ends with a null pointer, which is read last.
        while !unsafe { list.0.wrapping_add(length).read() }.is_null() {
            length += 1;
        }
        let whole = ptr::slice_from_raw_parts_mut(list.0, length + 1);
        // SAFETY: `rdma_get_devices` created it as a boxed slice of this length.
        drop(unsafe { Box::from_raw(whole) });
        Ok(())
    }
}

/// The shared device of a context. A context that a fork copied is not found.
pub(super) fn of(context: &Arc<Driver>) -> Result<&'static SharedDevice, Errno> {
    let mut used = lock();
    let same = |it: &&&SharedDevice| {
        it.context.driver.device().name == context.device().name
            && !it.context.driver.is_inherited()
    };
    if let Some(shared) = used.iter().find(same) {
        return Ok(shared);
    }
    let context = open_device::adopt(context.clone())?;
    // SAFETY: the context was just made.
    let domain = unsafe { protection_domain::ibv_alloc_pd(context.pointer()) };
    let id = object_at::<&Pd, _>(domain).map_err(|_| Errno::last())?.id;
    context
        .driver
        .call_without_transmit(|device| device.leave_domain(id));
    let extended = OnceLock::new();
    let shared: &'static SharedDevice = Box::leak(Box::new(SharedDevice {
        context,
        domain,
        extended,
    }));
    used.push(shared);
    Ok(shared)
}

/// Opens all devices, before an id is bound to all of them. Opening takes milliseconds, so it is done once
/// and not at each listen.
pub(super) fn open_all() -> Result<(), Errno> {
    for context in rdma_cm::reachable_devices()? {
        of(&context)?;
    }
    Ok(())
}

impl SharedDevice {
    pub(super) fn context(&self) -> *mut abi::ibv_context {
        self.context.pointer()
    }

    pub(super) fn domain(&self) -> *mut abi::ibv_pd {
        self.domain
    }

    /// The XRC domain for ids without their own.
    pub(super) fn extended(&self) -> Result<*mut abi::ibv_xrcd, Errno> {
        if let Some(known) = self.extended.get() {
            return Ok(known.0);
        }
        let mut init = abi::ibv_xrcd_init_attr {
            comp_mask: abi::IBV_XRCD_INIT_ATTR_FD | abi::IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: -1,
            oflags: libc::O_CREAT,
        };
        // SAFETY: a live context, and a structure for the time of the call.
        let opened = unsafe { xrc::open_xrcd(self.context.pointer(), &raw mut init) };
        if opened.is_null() {
            return Err(Errno::last());
        }
        Ok(self.extended.get_or_init(|| Handle(opened)).0)
    }
}

fn lock() -> MutexGuard<'static, Vec<&'static SharedDevice>> {
    USED.lock().unwrap_or_else(PoisonError::into_inner)
}

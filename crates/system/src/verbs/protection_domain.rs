//! Protection domains.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use abi::ibv_pd;
use engine::SystemRefusal;
use wire::Key;

use super::context::Context;
use super::error::last_error;
use super::registered_buffers::RegisteredBuffers;
use super::window::Window;

/// A protection domain.
#[derive(Debug)]
pub struct Domain {
    pub(super) raw: NonNull<ibv_pd>,
    pub(super) context: Arc<Context>,
    pub(super) buffers: RegisteredBuffers,
    /// Windows by the keys that requests name them by.
    windows: Mutex<HashMap<Key, Weak<Window>>>,
}

// SAFETY: the functions of libibverbs may be called from any thread, also at the same time.
unsafe impl Send for Domain {}

// SAFETY: as for `Send`.
unsafe impl Sync for Domain {}

impl Domain {
    /// Allocates a protection domain.
    pub fn allocate(context: &Arc<Context>) -> Result<Arc<Self>, SystemRefusal> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.functions.ibv_alloc_pd)(context.raw.as_ptr()) };
        Ok(Arc::new(Self {
            raw: NonNull::new(raw).ok_or_else(|| last_error("ibv_alloc_pd"))?,
            context: Arc::clone(context),
            buffers: RegisteredBuffers::default(),
            windows: Mutex::default(),
        }))
    }

    pub(super) fn windows(&self) -> MutexGuard<'_, HashMap<Key, Weak<Window>>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: nothing that was made from it exists any more, because all of it has an `Arc` of it.
        unsafe { (self.context.functions.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

//! Memory windows.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use abi::{ibv_mr, ibv_mw, ibv_mw_bind_info};
use engine::{Binding, SystemRefusal, WindowKind};
use wire::Key;

use super::error::last_error_or_lack;
use super::protection_domain::Domain;

/// A memory window.
#[derive(Debug)]
pub struct Window {
    pub(super) raw: NonNull<ibv_mw>,
    /// The key at its creation, by which requests name it.
    name: Key,
    /// The key of the last binding.
    key: AtomicU32,
    domain: Arc<Domain>,
}

// SAFETY: the functions of libibverbs may be called from any thread, also at the same time.
unsafe impl Send for Window {}

// SAFETY: as for `Send`.
unsafe impl Sync for Window {}

impl Window {
    /// Allocates a window.
    pub fn allocate(domain: &Arc<Domain>, kind: WindowKind) -> Result<Arc<Self>, SystemRefusal> {
        let allocate = domain.context.operations().alloc_mw;
        let allocate = allocate.ok_or(SystemRefusal::Lacks("memory windows"))?;
        let kind = match kind {
            WindowKind::One => abi::IBV_MW_TYPE_1,
            WindowKind::Two => abi::IBV_MW_TYPE_2,
        };
        // SAFETY: the domain exists, and the new window keeps it alive.
        let raw = unsafe { allocate(domain.raw.as_ptr(), kind) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| last_error_or_lack("ibv_alloc_mw", "memory windows"))?;
        // SAFETY: the window exists.
        let name = Key::new(unsafe { (*raw.as_ptr()).rkey });
        let window = Arc::new(Self {
            raw,
            name,
            key: name.value().into(),
            domain: Arc::clone(domain),
        });
        domain.windows().insert(name, Arc::downgrade(&window));
        Ok(window)
    }

    /// The key at its creation, by which requests name it.
    pub fn name(&self) -> Key {
        self.name
    }

    /// The key of the last binding.
    pub fn remote_key(&self) -> Key {
        Key::new(self.key.load(Ordering::Acquire))
    }

    /// Notes the key of a binding that was posted.
    pub(super) fn set_remote_key(&self, key: Key) {
        self.key.store(key.value(), Ordering::Release);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.domain.windows().remove(&self.name);
        if let Some(free) = self.domain.context.operations().dealloc_mw {
            // SAFETY: it exists, and is freed once. No call uses it, because each has an `Arc` of it.
            unsafe { free(self.raw.as_ptr()) };
        }
    }
}

impl Domain {
    /// The window that a request names.
    pub(super) fn window(&self, name: Key) -> Result<Arc<Window>, SystemRefusal> {
        let found = self.windows().get(&name).and_then(Weak::upgrade);
        found.ok_or(SystemRefusal::Lacks("such memory window"))
    }
}

/// A binding as C has it.
pub(super) fn bind_info(binding: &Binding, region: NonNull<ibv_mr>) -> ibv_mw_bind_info {
    ibv_mw_bind_info {
        mr: region.as_ptr(),
        addr: binding.address,
        length: binding.length,
        mw_access_flags: binding.access.bits(),
    }
}

//! Registered memory.

use std::ffi::c_void;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use abi::ibv_mr;
use engine::{Access, Buffer, Registration, SystemRefusal};
use wire::Key;

use super::error::{error_number, last_error};
use super::protection_domain::Domain;

/// A registered buffer. The device may read and write it at any moment, so programs access it by the atomic copies of
/// [`Buffer`] only.
#[derive(Debug)]
pub struct Region {
    raw: NonNull<ibv_mr>,
    registration: Registration,
    /// The memory, while it is registered.
    buffer: Option<Arc<Buffer>>,
    domain: Arc<Domain>,
}

// SAFETY: the functions of libibverbs may be called from any thread, also at the same time.
unsafe impl Send for Region {}

// SAFETY: as for `Send`.
unsafe impl Sync for Region {}

/// The access rights that every provider knows. Hints for other devices are left out, as the headers do for old providers.
const KNOWN: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::WINDOW_BIND);

/// The rights of peers at devices with FLUSH.
const FLUSH: Access = Access::FLUSH_GLOBAL.union(Access::FLUSH_PERSISTENT);

impl Region {
    /// Registers a buffer.
    pub fn register(
        domain: &Arc<Domain>,
        buffer: &Arc<Buffer>,
        access: Access,
    ) -> Result<Self, SystemRefusal> {
        let known = match domain.context.has_flush() {
            true => KNOWN.union(FLUSH),
            false if access.intersects(FLUSH) => {
                return Err(SystemRefusal::Lacks("memory that can be flushed"));
            }
            false => KNOWN,
        };
        let unknown = access.difference(known.union(Access::RELAXED_ORDERING));
        if !unknown.is_empty() {
            return Err(SystemRefusal::NotOffered(
                "zero-based and on-demand regions",
            ));
        }
        let start: *mut c_void = std::ptr::with_exposed_provenance_mut(buffer.address() as usize);
        let flags = access.intersection(known).bits().cast_signed();
        // SAFETY: the domain is live, and the buffer stays allocated and in place until the memory is deregistered, because
        // the region owns it. The device writes it at any moment, and all other accesses to a `Buffer` are atomic.
        let raw = unsafe {
            (domain.context.functions.ibv_reg_mr)(domain.raw.as_ptr(), start, buffer.len(), flags)
        };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("ibv_reg_mr"))?;
        // SAFETY: the region is registered.
        let found = unsafe { raw.as_ptr().read() };
        let registration = Registration {
            address: buffer.address(),
            length: buffer.len() as u64,
            local_key: Key::new(found.lkey),
            remote_key: Key::new(found.rkey),
        };
        domain.buffers.add(registration.local_key, raw, buffer);
        Ok(Self {
            raw,
            registration,
            buffer: Some(Arc::clone(buffer)),
            domain: Arc::clone(domain),
        })
    }

    /// Its address and its keys.
    pub fn registration(&self) -> Registration {
        self.registration
    }

    /// Deregisters it and releases the memory. After an error it is still registered: the device may write the memory.
    pub fn deregister(&mut self) -> Result<(), SystemRefusal> {
        let Some(buffer) = self.buffer.take() else {
            return Ok(());
        };
        let key = self.registration.local_key;
        self.domain.buffers.remove(key);
        // SAFETY: it is registered, and not deregistered again, because the buffer is taken.
        match unsafe { (self.domain.context.functions.ibv_dereg_mr)(self.raw.as_ptr()) } {
            0 => Ok(()),
            number => {
                self.domain.buffers.add(key, self.raw, &buffer);
                self.buffer = Some(buffer);
                Err(error_number("ibv_dereg_mr", number))
            }
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.deregister().is_err() {
            self.domain.buffers.remove(self.registration.local_key);
            // The device may still write it, so it stays allocated forever.
            mem::forget(self.buffer.take());
        }
    }
}

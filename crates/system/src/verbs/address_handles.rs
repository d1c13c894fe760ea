//! Address handles of a datagram queue pair.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use abi::ibv_ah;
use engine::{Address, SystemRefusal};

use super::convert::address_of;
use super::error::last_error;
use super::protection_domain::Domain;

/// One address handle for each address that the queue pair has sent to. A device may read a handle until the send is executed, so
/// handles live as long as the queue pair.
#[derive(Debug, Default)]
pub(super) struct AddressHandles(Mutex<HashMap<Address, AddressHandle>>);

#[derive(Debug)]
struct AddressHandle {
    raw: NonNull<ibv_ah>,
    domain: Arc<Domain>,
}

// SAFETY: the functions of libibverbs may be called from any thread, also at the same time.
unsafe impl Send for AddressHandle {}

impl AddressHandles {
    /// The handle of an address, created at its first use.
    pub(super) fn get(
        &self,
        domain: &Arc<Domain>,
        address: &Address,
        port: u8,
    ) -> Result<NonNull<ibv_ah>, SystemRefusal> {
        let mut handles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = handles.get(address) {
            return Ok(known.raw);
        }
        let handle = AddressHandle::create(domain, address, port)?;
        let raw = handle.raw;
        handles.insert(*address, handle);
        Ok(raw)
    }
}

impl AddressHandle {
    fn create(domain: &Arc<Domain>, address: &Address, port: u8) -> Result<Self, SystemRefusal> {
        let mut wanted = address_of(address, port);
        let create = domain.context.functions.ibv_create_ah;
        // SAFETY: the domain exists, and the structure has the size that a test compares with the header.
        let raw = unsafe { create(domain.raw.as_ptr(), &raw mut wanted) };
        Ok(Self {
            raw: NonNull::new(raw).ok_or_else(|| last_error("ibv_create_ah"))?,
            domain: Arc::clone(domain),
        })
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: it exists, and is destroyed once. The queue pair that used it is destroyed.
        unsafe { (self.domain.context.functions.ibv_destroy_ah)(self.raw.as_ptr()) };
    }
}

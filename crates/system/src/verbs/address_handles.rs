//! Address handles of a datagram queue pair.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abi::ibv_ah;
use engine::{Address, SystemRefusal};

use super::convert::address_of;
use super::error::last_error;
use super::protection_domain::Domain;

/// The address handles that a queue pair sends with.
///
/// A device may read a handle until the send is executed, so each outstanding send has a share of its handle. Handles of later sends
/// to the same address are kept, but not more than sends may be outstanding: a server may have any number of clients.
#[derive(Debug)]
pub(super) struct AddressHandles<H = AddressHandle> {
    known: Mutex<HashMap<Address, Arc<H>>>,
    most: usize,
}

/// An address handle. It is destroyed when it is dropped.
#[derive(Debug)]
pub(super) struct AddressHandle {
    pub(super) raw: NonNull<ibv_ah>,
    domain: Arc<Domain>,
}

// SAFETY: the functions of libibverbs may be called from any thread, also at the same time.
unsafe impl Send for AddressHandle {}

// SAFETY: as for `Send`.
unsafe impl Sync for AddressHandle {}

impl<H> AddressHandles<H> {
    /// Keeps as many handles as sends may be outstanding.
    pub(super) fn new(max_sends: u32) -> Self {
        Self {
            known: Mutex::default(),
            most: max_sends as usize,
        }
    }

    /// The handle of an address, created if it is not known.
    pub(super) fn get(
        &self,
        address: &Address,
        create: impl FnOnce() -> Result<H, SystemRefusal>,
    ) -> Result<Arc<H>, SystemRefusal> {
        if let Some(known) = self.known().get(address) {
            return Ok(Arc::clone(known));
        }
        let created = Arc::new(create()?);
        let mut known = self.known();
        let unused = if known.len() >= self.most {
            let is_unused = |_: &Address, handle: &mut Arc<H>| Arc::strong_count(handle) == 1;
            known.extract_if(is_unused).collect()
        } else {
            Vec::new()
        };
        let handle = Arc::clone(known.entry(*address).or_insert(created));
        drop(known);
        // Without the lock, because destroying a handle asks the kernel.
        drop(unused);
        Ok(handle)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Address, Arc<H>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AddressHandle {
    pub(super) fn create(
        domain: &Arc<Domain>,
        address: &Address,
        port: u8,
    ) -> Result<Self, SystemRefusal> {
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
        // SAFETY: it exists, and is destroyed once. No outstanding send uses it, because each has a share of it.
        unsafe { (self.domain.context.functions.ibv_destroy_ah)(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use wire::Gid;

    use super::*;

    fn address(client: u32) -> Address {
        Address::new(Gid::from(Ipv4Addr::from(0x0a00_0000 + client)), 0)
    }

    #[test]
    fn handles_of_many_clients_are_dropped() {
        let handles = AddressHandles::new(4);
        let shared = Arc::new(());
        for client in 0..100 {
            let create = || Ok(Arc::clone(&shared));
            handles.get(&address(client), create).expect("a handle");
            // Each handle has a share.
            assert!(Arc::strong_count(&shared) <= 1 + 4, "{client}");
        }
    }

    #[test]
    fn a_known_handle_is_used_again() {
        let handles = AddressHandles::new(4);
        let first = handles.get(&address(1), || Ok(1)).expect("a handle");
        let again = handles.get(&address(1), || Ok(2)).expect("a handle");
        assert!(Arc::ptr_eq(&first, &again));
    }

    #[test]
    fn a_handle_that_no_send_uses_stays_while_there_is_room() {
        let handles = AddressHandles::new(4);
        for client in 1..4 {
            handles
                .get(&address(client), || Ok(client))
                .expect("a handle");
        }
        let again = handles.get(&address(1), || Ok(99)).expect("a handle");
        assert_eq!(*again, 1);
    }

    #[test]
    fn a_handle_lives_while_a_send_uses_it() {
        let handles = AddressHandles::new(1);
        let outstanding = handles.get(&address(0), || Ok(0)).expect("a handle");
        for client in 1..10 {
            handles
                .get(&address(client), || Ok(client))
                .expect("a handle");
        }
        let again = handles.get(&address(0), || Ok(99)).expect("a handle");
        assert!(Arc::ptr_eq(&outstanding, &again));
    }
}

//! Protection domains, and the thread and parent domains on top of them.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use engine::{Device, Id, ProtectionDomain};

use super::context::{Context, OpenDevice, context_at};
use crate::abi;
use crate::entry::{Input, Output, Pointer, entry};
use crate::errno::Errno;
use crate::object::{Object, from_pointer, object_at};

/// A protection domain, or a parent domain that refers to one.
pub(crate) type Pd = Object<abi::ibv_pd, Domain>;

from_pointer!(abi::ibv_pd => Pd);

/// A thread domain. It has no effect here.
pub(crate) type Td = Object<abi::ibv_td, ThreadDomain>;

from_pointer!(abi::ibv_td => Td);

pub(crate) struct Domain {
    pub(crate) open: Arc<OpenDevice>,
    pub(crate) id: Id<ProtectionDomain>,
    kind: DomainKind,
    /// How many address handles and parent domains use it, which the engine does not count.
    dependents: AtomicU32,
}

enum DomainKind {
    Own,
    Imported,
    Parent {
        of: *mut abi::ibv_pd,
        thread: *mut abi::ibv_td,
    },
}

pub(crate) struct ThreadDomain {
    users: AtomicU32,
}

impl Domain {
    fn new(open: &Arc<OpenDevice>, id: Id<ProtectionDomain>, kind: DomainKind) -> Self {
        Self {
            open: Arc::clone(open),
            id,
            kind,
            dependents: AtomicU32::new(0),
        }
    }

    /// Adds a user that the engine does not count.
    pub(crate) fn hold(&self) {
        self.dependents.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes it.
    pub(crate) fn release(&self) {
        self.dependents.fetch_sub(1, Ordering::AcqRel);
    }

    fn check_unused(&self) -> Result<(), Errno> {
        match self.dependents.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(Errno::BUSY),
        }
    }
}

entry! {
    export fn ibv_alloc_pd(context: &Context) -> *mut abi::ibv_pd {
        let id = context.driver.call_without_transmit(Device::allocate_domain)?;
        let handle = context.handle();
        context.objects().domains.insert(handle, id);
        Ok(new_handle(context, handle, Domain::new(context, id, DomainKind::Own)))
    }

    export fn ibv_dealloc_pd(domain: &Pd) -> c_int {
        domain.check_handle()?;
        check_context(domain)?;
        domain.check_unused()?;
        match domain.kind {
            // `ibv_unimport_pd` keeps the domain of an imported handle; this call ends it.
            DomainKind::Own | DomainKind::Imported => {
                domain.open.driver.call_without_transmit(|device| device.free_domain(domain.id))?;
                domain.open.objects().domains.remove(&domain.read().handle);
            }
            DomainKind::Parent { of, thread } => {
                object_at::<&Pd, _>(of)?.release();
                if let Ok(thread) = object_at::<&Td, _>(thread) {
                    thread.users.fetch_sub(1, Ordering::AcqRel);
                }
            }
        }
        domain.destroy();
        Ok(0)
    }

    export fn ibv_import_pd(context: &Context, handle: u32) -> *mut abi::ibv_pd {
        let id = context.objects().domains.get(&handle).copied();
        let id = id.ok_or(Errno::NO_ENTRY)?;
        Ok(new_handle(context, handle, Domain::new(context, id, DomainKind::Imported)))
    }

    export fn ibv_unimport_pd(domain: &Pd) {
        if matches!(domain.kind, DomainKind::Imported) {
            domain.destroy();
        }
        Ok(())
    }

    op fn alloc_td(context: &Context, init: Input<abi::ibv_td_init_attr>) -> *mut abi::ibv_td {
        if init.0.comp_mask != 0 {
            return Err(Errno::INVALID);
        }
        context.check_not_inherited()?;
        let c_part = abi::ibv_td { context: context.pointer() };
        Ok(Td::new_pointer(c_part, ThreadDomain { users: AtomicU32::new(0) }))
    }

    op fn dealloc_td(thread: &Td) -> c_int {
        if thread.users.load(Ordering::Acquire) > 0 {
            return Err(Errno::BUSY);
        }
        thread.destroy();
        Ok(0)
    }

    /// Allocators, and the permission to share memory with the host of a confidential machine, have no effect: there are no
    /// hardware queues to allocate.
    op fn alloc_parent_domain(
        context: &Context,
        init: Output<abi::ibv_parent_domain_init_attr>,
    ) -> *mut abi::ibv_pd {
        const KNOWN: u32 = 7;
        let init = init.get();
        if init.comp_mask & !KNOWN != 0 {
            return Err(Errno::INVALID);
        }
        let base: &Pd = object_at(init.pd)?;
        if let Ok(thread) = object_at::<&Td, _>(init.td) {
            thread.users.fetch_add(1, Ordering::AcqRel);
        }
        base.hold();
        let kind = DomainKind::Parent { of: init.pd, thread: init.td };
        let handle = base.read().handle;
        Ok(new_handle(context, handle, Domain::new(context, base.id, kind)))
    }
}

/// Fails if the program has put another device into the domain: a kernel would look for the handle there. A device that is closed
/// leaves its domains.
fn check_context(domain: &Pd) -> Result<(), Errno> {
    match context_at(&Pointer(domain.read().context)) {
        Ok(other) if !Arc::ptr_eq(other, &domain.open) => Err(Errno::NO_ENTRY),
        _ => Ok(()),
    }
}

fn new_handle(context: &Context, handle: u32, domain: Domain) -> *mut abi::ibv_pd {
    let c_part = abi::ibv_pd {
        context: context.pointer(),
        handle,
    };
    Pd::new_pointer(c_part, domain)
}

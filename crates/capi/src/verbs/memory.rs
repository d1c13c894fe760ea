//! Memory regions.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use engine::{Access, Extent, Registration};

use super::buffer::{Buffer, DmaHandle};
use super::context::Open;
use super::domain::Pd;
use super::{faults, foreign, pages};
use crate::abi;
use crate::entry::{Place, Pointer, entry};
use crate::errno::Errno;
use crate::object::{Object, behind, from_pointer};

/// A memory region.
pub(crate) type Mr = Object<abi::ibv_mr, Region>;

from_pointer!(abi::ibv_mr => Mr);

pub(crate) struct Region {
    pub(crate) open: Arc<Open>,
    pub(crate) registration: Registration,
    imported: bool,
    /// Keeps the hints that it was registered with from being freed.
    hints: OnceLock<Arc<()>>,
}

entry! {
    export fn ibv_reg_mr(
        domain: &Pd,
        address: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut abi::ibv_mr {
        register(domain, address, length, address.addr() as u64, access.cast_unsigned())
    }

    export fn ibv_reg_mr_iova(
        domain: &Pd,
        address: *mut c_void,
        length: usize,
        called: u64,
        access: c_int,
    ) -> *mut abi::ibv_mr {
        register(domain, address, length, called, access.cast_unsigned())
    }

    export fn ibv_reg_mr_iova2(
        domain: &Pd,
        address: *mut c_void,
        length: usize,
        called: u64,
        access: u32,
    ) -> *mut abi::ibv_mr {
        register(domain, address, length, called, access)
    }

    export fn ibv_reg_mr_ex(domain: &Pd, init: Place<abi::ibv_mr_init_attr>) -> *mut abi::ibv_mr {
        let at = init.pointer();
        let init = init.get();
        let asks = |mask| init.comp_mask & mask != 0;
        if asks(!abi::IBV_REG_MR_MASK_ALL) {
            return Err(Errno::UNSUPPORTED);
        }
        if asks(abi::IBV_REG_MR_MASK_BUF) {
            if asks(abi::IBV_REG_MR_MASK_FD | abi::IBV_REG_MR_MASK_FD_OFFSET) {
                return Err(Errno::INVALID);
            }
            buffer_of(at)?.check(domain, init.addr, init.length)?;
        }
        // Memory of other devices can't be reached.
        if asks(abi::IBV_REG_MR_MASK_FD | abi::IBV_REG_MR_MASK_FD_OFFSET) {
            return Err(Errno::UNSUPPORTED);
        }
        if !asks(abi::IBV_REG_MR_MASK_ADDR) {
            return Err(Errno::INVALID);
        }
        let hints = if asks(abi::IBV_REG_MR_MASK_DMAH) {
            Some(behind::<&DmaHandle, _>(init.dmah)?)
        } else {
            None
        };
        // As with the kernel: hints are for memory that is pinned.
        if hints.is_some() && access_of(init.access.cast_unsigned())?.contains(Access::ON_DEMAND) {
            return Err(Errno::UNSUPPORTED);
        }
        let called = if asks(abi::IBV_REG_MR_MASK_IOVA) {
            init.iova
        } else {
            init.addr.addr() as u64
        };
        let region = register(domain, init.addr, init.length, called, init.access.cast_unsigned())?;
        if let Some(hints) = hints {
            region_at(region)?.hints.get_or_init(|| Arc::clone(&hints.0));
        }
        Ok(region)
    }

    export fn ibv_rereg_mr(
        region: &Mr,
        flags: c_int,
        domain: Option<&Pd>,
        address: *mut c_void,
        length: usize,
        access: c_int,
    ) -> c_int {
        // Not an error number: negative, and it says who found the fault, the library or its device.
        if !is_sensible(flags, domain, address, length) {
            Errno::INVALID.set();
            return Ok(abi::IBV_REREG_MR_ERR_INPUT);
        }
        Ok(match reregister(region, flags, domain, address, length, access.cast_unsigned()) {
            Ok(()) => 0,
            Err(errno) => {
                errno.set();
                abi::IBV_REREG_MR_ERR_CMD
            }
        })
    }

    export fn ibv_dereg_mr(region: &Mr) -> c_int {
        region.check_handle()?;
        let key = region.registration.local_key;
        region.open.raw().tell(|device| device.deregister(key))?;
        region.open.members().regions.remove(&region.read().handle);
        region.take_back();
        Ok(0)
    }

    export fn ibv_import_mr(domain: &Pd, handle: u32) -> *mut abi::ibv_mr {
        let registration = domain.open.members().regions.get(&handle).copied();
        let registration = registration.ok_or(Errno::NO_ENTRY)?;
        Ok(give(domain, std::ptr::null_mut(), handle, registration, true))
    }

    export fn ibv_unimport_mr(region: &Mr) {
        if region.imported {
            region.take_back();
        }
        Ok(())
    }

    op fn alloc_null_mr(domain: &Pd) -> *mut abi::ibv_mr {
        let extent = Extent::discarding(u64::MAX);
        add(domain, std::ptr::null_mut(), extent, 0, Access::LOCAL_WRITE)
    }

    op fn advise_mr(
        domain: &Pd,
        advice: u32,
        flags: u32,
        segments: Pointer<abi::ibv_sge>,
        count: u32,
    ) -> c_int {
        if advice > abi::IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
            || flags & !abi::IBV_ADVISE_MR_FLAG_FLUSH != 0
            || count == 0
            || segments.0.is_null()
        {
            return Err(Errno::INVALID);
        }
        // SAFETY: not null, so by the header's promise `count` segments.
        let segments = unsafe { std::slice::from_raw_parts(segments.0, count as usize) };
        advise(domain, advice, segments)
    }
}

/// The buffer that `ibv_reg_mr_ex` is given.
fn buffer_of<'a>(init: *mut abi::ibv_mr_init_attr) -> Result<&'a Buffer, Errno> {
    let init = init.cast::<abi::ibv_mr_init_attr_with_buf>();
    // SAFETY: the structure of a program that sets the bit for this field has the field.
    behind(unsafe { (*init).buf })
}

pub(super) fn register(
    domain: &Pd,
    address: *mut c_void,
    length: usize,
    called: u64,
    access: u32,
) -> Result<*mut abi::ibv_mr, Errno> {
    domain.open.check_ours()?;
    let access = access_of(access)?;
    let (extent, called) = extent(address, length, called, access)?;
    add(domain, address, extent, called, access)
}

/// Registers memory and gives C its region.
pub(super) fn add(
    domain: &Pd,
    address: *mut c_void,
    extent: Extent,
    called: u64,
    access: Access,
) -> Result<*mut abi::ibv_mr, Errno> {
    let registration = domain
        .open
        .raw()
        .tell(|device| device.register(domain.id, extent, called, access))?;
    let handle = domain.open.handle();
    domain.open.members().regions.insert(handle, registration);
    Ok(give(domain, address, handle, registration, false))
}

fn give(
    domain: &Pd,
    address: *mut c_void,
    handle: u32,
    registration: Registration,
    imported: bool,
) -> *mut abi::ibv_mr {
    let front = abi::ibv_mr {
        context: domain.read().context,
        pd: domain.c(),
        addr: address,
        length: registration.length as usize,
        handle,
        lkey: registration.local_key.value(),
        rkey: registration.remote_key.value(),
    };
    let region = Region {
        open: Arc::clone(&domain.open),
        registration,
        imported,
        hints: OnceLock::new(),
    };
    Mr::give(front, region)
}

/// The rights that a program asks for. Bits that it marks as optional may be unknown.
pub(super) fn access_of(flags: u32) -> Result<Access, Errno> {
    let required = flags & !abi::IBV_ACCESS_OPTIONAL_RANGE;
    let known = Access::from_bits(required).ok_or(Errno::INVALID)?;
    Ok(known | Access::from_bits_truncate(flags))
}

/// The program's memory, and what its first byte is called.
pub(crate) fn extent(
    address: *mut c_void,
    length: usize,
    called: u64,
    access: Access,
) -> Result<(Extent, u64), Errno> {
    let on_demand = access.contains(Access::ON_DEMAND);
    let everything = on_demand && address.is_null() && length == usize::MAX;
    // All memory there is, from its second byte on: at the first one there never is any.
    let (start, length, called) = if everything {
        (NonNull::dangling(), u64::MAX - 1, 1)
    } else {
        let start = NonNull::new(address.cast::<u8>()).ok_or(Errno::FAULT)?;
        (start, length as u64, called)
    };
    if !everything {
        pages::check(address.addr(), length as usize, access)?;
    }
    faults::install();
    let access = if on_demand {
        &foreign::ON_DEMAND
    } else {
        &foreign::PINNED
    };
    // SAFETY: those functions find out when the memory is not there. It is C's memory: nobody has Rust
    // references to it.
    Ok((unsafe { Extent::foreign(start, length, access) }, called))
}

/// Whether what is asked for could be done at all.
fn is_sensible(flags: c_int, domain: Option<&Pd>, address: *mut c_void, length: usize) -> bool {
    const ALL: c_int = abi::IBV_REREG_MR_CHANGE_TRANSLATION
        | abi::IBV_REREG_MR_CHANGE_PD
        | abi::IBV_REREG_MR_CHANGE_ACCESS;
    let moves = flags & abi::IBV_REREG_MR_CHANGE_TRANSLATION != 0;
    let changes_domain = flags & abi::IBV_REREG_MR_CHANGE_PD != 0;
    flags & !ALL == 0
        && (!moves || (length != 0 && !address.is_null()))
        && (!changes_domain || domain.is_some())
}

fn reregister(
    region: &Mr,
    flags: c_int,
    domain: Option<&Pd>,
    address: *mut c_void,
    length: usize,
    access: u32,
) -> Result<(), Errno> {
    if flags == 0 {
        return Err(Errno::INVALID);
    }
    region.check_handle()?;
    let asks = |flag| flags & flag != 0;
    let access = if asks(abi::IBV_REREG_MR_CHANGE_ACCESS) {
        Some(access_of(access)?)
    } else {
        None
    };
    let domain = if asks(abi::IBV_REREG_MR_CHANGE_PD) {
        Some(domain.ok_or(Errno::INVALID)?)
    } else {
        None
    };
    let place = if asks(abi::IBV_REREG_MR_CHANGE_TRANSLATION) {
        let rights = access.unwrap_or(Access::LOCAL_WRITE);
        Some(extent(address, length, address.addr() as u64, rights)?)
    } else {
        None
    };
    let moved = place.is_some();
    let key = region.registration.local_key;
    let into = domain.map(|domain| domain.id);
    region
        .open
        .raw()
        .tell(|device| device.reregister(key, into, place, access))?;
    let handle = region.read().handle;
    if moved && let Some(known) = region.open.members().regions.get_mut(&handle) {
        known.address = address.addr() as u64;
        known.length = length as u64;
    }
    region.change(|c| {
        if moved {
            c.addr = address;
            c.length = length;
        }
        if let Some(domain) = domain {
            c.pd = domain.c();
        }
    });
    Ok(())
}

/// Makes pages present, as asked; they would come by themselves.
fn advise(domain: &Pd, advice: u32, segments: &[abi::ibv_sge]) -> Result<c_int, Errno> {
    for segment in segments {
        let known = {
            let members = domain.open.members();
            let mut regions = members.regions.values();
            let found = regions.find(|region| region.local_key.value() == segment.lkey);
            found.copied().ok_or(Errno::INVALID)?
        };
        let offset = segment.addr.checked_sub(known.address);
        let end = offset.and_then(|offset| offset.checked_add(u64::from(segment.length)));
        if end.is_none_or(|end| end > known.length) {
            return Err(Errno::FAULT);
        }
        let access = match advice {
            abi::IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => Access::LOCAL_WRITE,
            _ => Access::empty(),
        };
        if advice != abi::IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT {
            pages::check(segment.addr as usize, segment.length as usize, access)?;
        }
    }
    Ok(0)
}

/// The region that a window or a request names.
pub(super) fn region_at<'a>(pointer: *mut abi::ibv_mr) -> Result<&'a Mr, Errno> {
    behind(pointer)
}

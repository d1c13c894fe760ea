//! Device memory: ordinary memory that programs can't point into.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use engine::{Access, Buffer, Extent};

use super::context::{Context, Open};
use super::domain::Pd;
use super::memory;
use super::query::MAX_DEVICE_MEMORY;
use crate::abi;
use crate::entry::{Given, entry};
use crate::errno::Errno;
use crate::object::{Object, from_pointer};

/// Device memory.
pub(crate) type Dm = Object<abi::ibv_dm, DeviceMemory>;

from_pointer!(abi::ibv_dm => Dm);

pub(crate) struct DeviceMemory {
    open: Arc<Open>,
    buffer: Arc<Buffer>,
    imported: bool,
}

/// Copies go in units of this many bytes, as a NIC's memory is reached over its bus.
const UNIT: u64 = 4;

/// The object itself, and the list of those that can be imported. A region is another one.
const OWNERS_WITHOUT_REGIONS: usize = 2;

entry! {
    op fn alloc_dm(context: &Context, init: Given<abi::ibv_alloc_dm_attr>) -> *mut abi::ibv_dm {
        let init = init.0;
        if init.comp_mask != 0 || init.length == 0 {
            return Err(Errno::INVALID);
        }
        let too_strict = init.log_align_req > MAX_DEVICE_MEMORY.ilog2();
        if init.length as u64 > MAX_DEVICE_MEMORY || too_strict {
            return Err(Errno::NO_MEMORY);
        }
        let buffer = Buffer::try_zeroed(init.length).ok_or(Errno::NO_MEMORY)?;
        let handle = context.handle();
        // The child of a fork may have some too, but can't register it.
        if context.check_ours().is_ok() {
            context.members().device_memories.insert(handle, Arc::clone(&buffer));
        }
        Ok(give(context, handle, buffer, false))
    }

    op fn free_dm(memory: &Dm) -> c_int {
        if Arc::strong_count(&memory.buffer) > OWNERS_WITHOUT_REGIONS {
            return Err(Errno::BUSY);
        }
        if memory.open.check_ours().is_ok() {
            memory.open.members().device_memories.remove(&memory.read().handle);
        }
        memory.take_back();
        Ok(0)
    }

    export fn ibv_import_dm(context: &Context, handle: u32) -> *mut abi::ibv_dm {
        let buffer = context.members().device_memories.get(&handle).cloned();
        Ok(give(context, handle, buffer.ok_or(Errno::NO_ENTRY)?, true))
    }

    export fn ibv_unimport_dm(memory: &Dm) {
        if memory.imported {
            memory.take_back();
        }
        Ok(())
    }

    op fn reg_dm_mr(
        domain: &Pd,
        memory: &Dm,
        offset: u64,
        length: usize,
        access: u32,
    ) -> *mut abi::ibv_mr {
        let access = memory::access_of(access)?;
        // Device memory has no addresses but those from 0 on.
        if !access.contains(Access::ZERO_BASED) {
            return Err(Errno::INVALID);
        }
        let whole = Extent::from(Arc::clone(&memory.buffer));
        let part = whole.part(offset, length as u64).ok_or(Errno::INVALID)?;
        memory::add(domain, std::ptr::null_mut(), part, 0, access)
    }

    op fn memcpy_to_dm(memory: &Dm, offset: u64, from: *const c_void, length: usize) -> c_int {
        check_range(memory, offset, length)?;
        if is_nothing(from, length)? {
            return Ok(0);
        }
        // SAFETY: not null, and the program says that `length` bytes can be read there.
        let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) };
        memory.open.raw().exclusively(|| memory.buffer.write(offset as usize, from));
        Ok(0)
    }

    op fn memcpy_from_dm(into: *mut c_void, memory: &Dm, offset: u64, length: usize) -> c_int {
        check_range(memory, offset, length)?;
        if is_nothing(into, length)? {
            return Ok(0);
        }
        // SAFETY: not null, and the program says that `length` bytes can be written there, for this call.
        let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), length) };
        memory.open.raw().exclusively(|| memory.buffer.read(offset as usize, into));
        Ok(0)
    }
}

fn give(context: &Context, handle: u32, buffer: Arc<Buffer>, imported: bool) -> *mut abi::ibv_dm {
    let front = abi::ibv_dm {
        context: context.pointer(),
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: HANDLE_IS_VALID,
        handle,
    };
    let memory = DeviceMemory {
        open: Arc::clone(context),
        buffer,
        imported,
    };
    Dm::give(front, memory)
}

const HANDLE_IS_VALID: u32 = 1;

/// Whether there is nothing to copy. Fails if there is something, but nowhere.
fn is_nothing(memory: *const c_void, length: usize) -> Result<bool, Errno> {
    if memory.is_null() && length > 0 {
        Err(Errno::INVALID)
    } else {
        Ok(length == 0)
    }
}

fn check_range(memory: &DeviceMemory, offset: u64, length: usize) -> Result<(), Errno> {
    let end = offset.checked_add(length as u64).ok_or(Errno::INVALID)?;
    let in_units = offset.is_multiple_of(UNIT) && (length as u64).is_multiple_of(UNIT);
    if end <= memory.buffer.len() as u64 && in_units {
        Ok(())
    } else {
        Err(Errno::INVALID)
    }
}

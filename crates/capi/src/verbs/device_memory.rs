//! Device memory: ordinary memory that programs can't point into.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use driver::{DeviceMemoryMistake, Misuse};
use engine::{Access, Buffer, Extent};

use super::context::{Context, DeviceBuffer, OpenDevice};
use super::memory_region::{self, RegionKind};
use super::protection_domain::Pd;
use super::query::MAX_DEVICE_MEMORY;
use crate::abi;
use crate::entry::{Input, entry};
use crate::errno::Errno;
use crate::object::{Object, from_pointer};

/// Device memory.
pub(crate) type Dm = Object<abi::ibv_dm, DeviceMemory>;

from_pointer!(abi::ibv_dm => Dm);

pub(crate) struct DeviceMemory {
    open: Arc<OpenDevice>,
    /// Shared with imported handles.
    shared: Arc<DeviceBuffer>,
    imported: bool,
}

/// Offsets and lengths of copies must be multiples of this, as for device memory on a bus.
const UNIT: u64 = 4;

entry! {
    op fn alloc_dm(context: &Context, init: Input<abi::ibv_alloc_dm_attr>) -> *mut abi::ibv_dm {
        let init = init.0;
        if init.comp_mask != 0 || init.length == 0 {
            return Err(Errno::INVALID);
        }
        let too_strict = init.log_align_req > MAX_DEVICE_MEMORY.ilog2();
        let length = init.length as u64;
        if length > MAX_DEVICE_MEMORY {
            let mistake = DeviceMemoryMistake::TooLarge { length, max: MAX_DEVICE_MEMORY };
            report(context, "ibv_alloc_dm", mistake);
        }
        if length > MAX_DEVICE_MEMORY || too_strict {
            return Err(Errno::NO_MEMORY);
        }
        let buffer = Buffer::try_zeroed(init.length).ok_or(Errno::NO_MEMORY)?;
        let shared = Arc::new(DeviceBuffer { buffer });
        let handle = context.handle();
        // The child of a fork may allocate device memory, but can't register it.
        if !context.driver.is_inherited() {
            context.objects().device_memories.insert(handle, Arc::clone(&shared));
        }
        Ok(new_handle(context, handle, shared, false))
    }

    op fn free_dm(memory: &Dm) -> c_int {
        let is_registered = Arc::strong_count(&memory.shared.buffer) > 1;
        if is_registered {
            report(&memory.open, "ibv_free_dm", DeviceMemoryMistake::Registered);
            return Err(Errno::BUSY);
        }
        if !memory.open.driver.is_inherited() {
            memory.open.objects().device_memories.remove(&memory.read().handle);
        }
        memory.destroy();
        Ok(0)
    }

    export fn ibv_import_dm(context: &Context, handle: u32) -> *mut abi::ibv_dm {
        let shared = context.objects().device_memories.get(&handle).cloned();
        Ok(new_handle(context, handle, shared.ok_or(Errno::NO_ENTRY)?, true))
    }

    export fn ibv_unimport_dm(memory: &Dm) {
        if memory.imported {
            memory.destroy();
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
        let access = memory_region::access_of(access)?;
        // Device memory has only zero-based addresses.
        if !access.contains(Access::ZERO_BASED) {
            report(&memory.open, "ibv_reg_dm_mr", DeviceMemoryMistake::NotZeroBased);
            return Err(Errno::INVALID);
        }
        let whole = Extent::from(Arc::clone(&memory.shared.buffer));
        let length = length as u64;
        let part = whole.part(offset, length).ok_or_else(|| {
            report(&memory.open, "ibv_reg_dm_mr", out_of_range(memory, offset, length));
            Errno::INVALID
        })?;
        let kind = RegionKind::Device;
        memory_region::add(domain, std::ptr::null_mut(), part, 0, access, kind)
    }

    op fn memcpy_to_dm(memory: &Dm, offset: u64, from: *const c_void, length: usize) -> c_int {
        check_range(memory, "ibv_memcpy_to_dm", offset, length)?;
        if is_nothing(from, length)? {
            return Ok(0);
        }
        // SAFETY: not null, and the program says that `length` bytes can be read there.
        let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) };
        memory.open.driver.with_device_locked(|| memory.shared.buffer.write(offset as usize, from));
        Ok(0)
    }

    op fn memcpy_from_dm(into: *mut c_void, memory: &Dm, offset: u64, length: usize) -> c_int {
        check_range(memory, "ibv_memcpy_from_dm", offset, length)?;
        if is_nothing(into, length)? {
            return Ok(0);
        }
        // SAFETY: not null, and the program says that `length` bytes can be written there, for this call.
        let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), length) };
        memory.open.driver.with_device_locked(|| memory.shared.buffer.read(offset as usize, into));
        Ok(0)
    }
}

fn new_handle(
    context: &Context,
    handle: u32,
    shared: Arc<DeviceBuffer>,
    imported: bool,
) -> *mut abi::ibv_dm {
    let c_part = abi::ibv_dm {
        context: context.pointer(),
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: HANDLE_IS_VALID,
        handle,
    };
    let memory = DeviceMemory {
        open: Arc::clone(context),
        shared,
        imported,
    };
    Dm::new_pointer(c_part, memory)
}

const HANDLE_IS_VALID: u32 = 1;

/// Whether there is nothing to copy. Fails for a null pointer with a length.
fn is_nothing(memory: *const c_void, length: usize) -> Result<bool, Errno> {
    if memory.is_null() && length > 0 {
        Err(Errno::INVALID)
    } else {
        Ok(length == 0)
    }
}

fn check_range(
    memory: &DeviceMemory,
    call: &'static str,
    offset: u64,
    length: usize,
) -> Result<(), Errno> {
    let length = length as u64;
    let end = offset.checked_add(length);
    let mistake = if end.is_none_or(|end| end > memory.shared.buffer.len() as u64) {
        out_of_range(memory, offset, length)
    } else if !offset.is_multiple_of(UNIT) || !length.is_multiple_of(UNIT) {
        let unit = UNIT;
        DeviceMemoryMistake::NotInUnits {
            offset,
            length,
            unit,
        }
    } else {
        return Ok(());
    };
    report(&memory.open, call, mistake);
    Err(Errno::INVALID)
}

fn out_of_range(memory: &DeviceMemory, offset: u64, length: u64) -> DeviceMemoryMistake {
    DeviceMemoryMistake::OutOfRange {
        offset,
        length,
        size: memory.shared.buffer.len() as u64,
    }
}

fn report(open: &OpenDevice, call: &'static str, mistake: DeviceMemoryMistake) {
    let misuse = Misuse::DeviceMemory { call, mistake };
    open.driver.report_misuse(None, misuse);
}

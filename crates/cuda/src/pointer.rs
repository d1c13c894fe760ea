//! What libcuda knows about an address.

use std::ffi::c_int;

use crate::driver::{Context, Driver};

const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;

/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE: u64 = 2;

/// The context of memory of a GPU; `None` if the address is not one of a GPU.
pub(crate) fn context_of(driver: &Driver, address: u64) -> Option<Context> {
    // The attribute has 32 bits.
    let kind = driver.attribute(MEMORY_TYPE, address)? & 0xffff_ffff;
    let is_managed = driver.attribute(IS_MANAGED, address).unwrap_or(0) & 0xffff_ffff != 0;
    // Managed memory moves to the processor when that accesses it.
    if kind != DEVICE || is_managed {
        return None;
    }
    let context = driver.attribute(CONTEXT, address);
    context.and_then(Driver::context_at).or_else(|| {
        // Memory that is mapped piece by piece (`cuMemMap`), or comes from a pool, belongs to no context.
        let ordinal = driver.attribute(DEVICE_ORDINAL, address)?;
        driver.primary_context(ordinal & 0xffff_ffff)
    })
}

/// How many of `length` bytes at an address are memory of its GPU. They may be in several allocations, as those that are
/// mapped one after the other (`cuMemMap`).
pub(crate) fn extent_at(driver: &Driver, address: u64, length: u64) -> u64 {
    let Some(end) = address.checked_add(length) else {
        return 0;
    };
    let ordinal = driver.attribute(DEVICE_ORDINAL, address);
    let mut known = address;
    while known < end {
        let of_this_gpu = driver.attribute(DEVICE_ORDINAL, known) == ordinal
            && driver
                .attribute(MEMORY_TYPE, known)
                .map(|kind| kind & 0xffff_ffff)
                == Some(DEVICE);
        let range = driver
            .attribute(RANGE_START, known)
            .zip(driver.attribute(RANGE_SIZE, known));
        match range {
            Some((start, size)) if of_this_gpu && start.saturating_add(size) > known => {
                known = start.saturating_add(size);
            }
            _ => break,
        }
    }
    known.min(end) - address
}

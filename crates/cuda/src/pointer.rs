//! What libcuda knows about an address.

use std::ffi::c_int;

use crate::driver::Driver;

const MEMORY_TYPE: c_int = 2;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;

/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE: u64 = 2;

/// The number of the GPU whose memory is at an address; `None` if the address is not one of a GPU.
pub(crate) fn gpu_of(driver: &Driver, address: u64) -> Option<u64> {
    // These attributes have 32 bits.
    let attribute = |it| Some(driver.attribute(it, address)? & 0xffff_ffff);
    // Managed memory moves to the processor when that accesses it.
    let is_managed = attribute(IS_MANAGED).is_some_and(|it| it != 0);
    if attribute(MEMORY_TYPE)? != DEVICE || is_managed {
        return None;
    }
    attribute(DEVICE_ORDINAL)
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

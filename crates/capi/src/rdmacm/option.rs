//! `rdma_set_option`.

use std::ffi::{c_int, c_void};

use wire::{AckTimeout, RnrTimer};

use super::id::Id;
use crate::abi;
use crate::entry::{MinusOne, Pointer, entry};
use crate::errno::Errno;

const LEVEL_ID: c_int = 0;
const LEVEL_IB: c_int = 1;

const TYPE_OF_SERVICE: c_int = 0;
const REUSE_ADDRESS: c_int = 1;
const FAMILY_ONLY: c_int = 2;
const ACK_TIMEOUT: c_int = 3;
const RNR_TIMER: c_int = 4;
const IB_PATH: c_int = 1;

entry! {
    export fn rdma_set_option(
        id: &Id,
        level: c_int,
        name: c_int,
        value: Pointer<c_void>,
        length: usize,
    ) -> MinusOne {
        let cm_id = id.cm_id()?;
        match (level, name) {
            (LEVEL_ID, TYPE_OF_SERVICE) => cm_id.set_traffic_class(byte(value.0, length)?)?,
            (LEVEL_ID, REUSE_ADDRESS) => cm_id.set_reuse_address(flag(value.0, length)?)?,
            (LEVEL_ID, FAMILY_ONLY) => cm_id.set_family_only(flag(value.0, length)?)?,
            (LEVEL_ID, ACK_TIMEOUT) => {
                let kind = id.read().qp_type;
                if kind != abi::IBV_QPT_RC && kind != abi::IBV_QPT_XRC_SEND {
                    return Err(Errno::INVALID);
                }
                let timeout = AckTimeout::new(byte(value.0, length)?).ok_or(Errno::INVALID)?;
                cm_id.set_ack_timeout(timeout)?;
            }
            (LEVEL_ID, RNR_TIMER) => {
                let timer = RnrTimer::new(byte(value.0, length)?).ok_or(Errno::INVALID)?;
                cm_id.set_rnr_timer(timer)?;
            }
            // Ethernet has no subnet manager's paths.
            (LEVEL_IB, IB_PATH) => return Err(Errno::INVALID),
            _ => return Err(Errno::NO_CALL),
        }
        Ok(MinusOne::DONE)
    }
}

fn byte(value: *const c_void, length: usize) -> Result<u8, Errno> {
    if value.is_null() || length != size_of::<u8>() {
        return Err(Errno::INVALID);
    }
    // SAFETY: not null, and the program says that there is a byte.
    Ok(unsafe { value.cast::<u8>().read() })
}

fn flag(value: *const c_void, length: usize) -> Result<bool, Errno> {
    if value.is_null() || length != size_of::<c_int>() {
        return Err(Errno::INVALID);
    }
    // SAFETY: not null, and the program says that there is an int, with any alignment.
    Ok(unsafe { value.cast::<c_int>().read_unaligned() } != 0)
}

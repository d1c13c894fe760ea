//! Functions that must exist for the loader and do nothing.
//!
//! rdma-core's drivers and tools link against private symbols of libibverbs. None of them is useful without
//! the kernel's device file, but all must exist, or a program that refers to one does not start. Each
//! function here implements many symbols, which the table of symbols lists.

use std::ffi::{c_int, c_void};

use crate::entry::entry;
use crate::errno::Errno;

entry! {
    /// A command for the kernel's device file.
    export fn no_kernel() -> c_int {
        Err(Errno::NO_CALL)
    }

    /// The same where a pointer is expected.
    export fn no_kernel_object() -> *mut c_void {
        Err(Errno::NO_CALL)
    }

    /// Registering a driver, logging a message, setting a driver's table: not needed.
    export fn ignored() {
        Ok(())
    }

    /// A feature of hardware devices.
    export fn unsupported() -> c_int {
        Err(Errno::UNSUPPORTED)
    }

    /// The same where a pointer is expected.
    export fn unsupported_object() -> *mut c_void {
        Err(Errno::UNSUPPORTED)
    }

    /// The same where a descriptor is expected.
    export fn unsupported_descriptor() -> crate::entry::MinusOne {
        Err(Errno::UNSUPPORTED)
    }

    /// For programs linked in 2006 or earlier, whose structures have another layout.
    export fn old_abi() -> c_int {
        Err(Errno::NO_CALL)
    }

    /// The same where a pointer is expected.
    export fn old_abi_object() -> *mut c_void {
        Err(Errno::NO_CALL)
    }
}

/// Drivers set it if they survive the removal of their device. One byte, like C's `bool`.
#[unsafe(export_name = "roci_verbs_allow_disassociate_destroy")]
pub(crate) static ALLOW_DISASSOCIATE_DESTROY: std::sync::atomic::AtomicBool =
    std::sync::atomic::AtomicBool::new(false);

//! What must be there for the loader, and does nothing.
//!
//! rdma-core's drivers and tools link against private symbols of libibverbs. None of them is of use
//! without the kernel's device file, but all must exist, or a program that mentions one does not
//! start. Each stands for many symbols: the table of symbols says which.

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

    /// A driver registers itself, a message is logged, a driver's table is set: not needed.
    export fn ignored() {
        Ok(())
    }

    /// A feature that only hardware can have.
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

    /// A program linked in 2006 or before, when the structures had another shape.
    export fn old_abi() -> c_int {
        Err(Errno::NO_CALL)
    }

    /// The same where a pointer is expected.
    export fn old_abi_object() -> *mut c_void {
        Err(Errno::NO_CALL)
    }
}

/// Drivers set it to say that they survive the removal of their device. One byte, as C's `bool`.
#[unsafe(export_name = "roci_verbs_allow_disassociate_destroy")]
pub(crate) static ALLOW_DISASSOCIATE_DESTROY: std::sync::atomic::AtomicBool =
    std::sync::atomic::AtomicBool::new(false);

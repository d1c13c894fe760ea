//! libibverbs, loaded when the first device is opened.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use abi::{
    ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
    ibv_device_attr, ibv_gid, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_ex,
    ibv_qp_init_attr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
};

use crate::loader::{Handle, LibraryError, Name, functions};

/// The library.
const NAME: Name = Name {
    file: c"libibverbs.so.1",
    library: "libibverbs",
    package: "libibverbs1 ibverbs-providers",
};

/// A function of librdmacm. rdma-core has it in another library; ours has all functions in one.
const OF_CONNECTION_MANAGER: &CStr = c"rdma_create_id";

functions! {
    ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list(*mut *mut ibv_device) -> ();
    ibv_get_device_name(*mut ibv_device) -> *const c_char;
    ibv_open_device(*mut ibv_device) -> *mut ibv_context;
    ibv_close_device(*mut ibv_context) -> c_int;
    ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    ibv_query_gid(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
    ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibv_dereg_mr(*mut ibv_mr) -> c_int;
    ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibv_resize_cq(*mut ibv_cq, c_int) -> c_int;
    ibv_destroy_cq(*mut ibv_cq) -> c_int;
    ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events(*mut ibv_cq, u32) -> ();
    ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ibv_ack_async_event(*mut ibv_async_event) -> ();
    ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_destroy_qp(*mut ibv_qp) -> c_int;
    ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_query_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    ibv_qp_to_qp_ex(*mut ibv_qp) -> *mut ibv_qp_ex;
    ibv_attach_mcast(*mut ibv_qp, *const ibv_gid, u16) -> c_int;
    ibv_detach_mcast(*mut ibv_qp, *const ibv_gid, u16) -> c_int;
    ibv_create_srq(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_modify_srq(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
    ibv_destroy_srq(*mut ibv_srq) -> c_int;
    ibv_create_ah(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    ibv_destroy_ah(*mut ibv_ah) -> c_int;
}

/// The functions of the system's libibverbs, loaded at the first call.
pub(super) fn functions() -> Result<&'static Functions, LibraryError> {
    static LOADED: OnceLock<Result<Functions, LibraryError>> = OnceLock::new();
    LOADED
        .get_or_init(|| match NAME.stand_in() {
            // Tests use our own on purpose.
            Some(stand_in) => Functions::find(&Handle::open(stand_in)?),
            None => load(NAME),
        })
        .as_ref()
        .map_err(Clone::clone)
}

/// Whether a library that needs libibverbs has found the loaded one. Our librdmacm has functions of its own instead.
pub(crate) fn is_used_by(library: &Handle) -> Result<bool, LibraryError> {
    let open: unsafe extern "C" fn(_) -> _ = functions()?.ibv_open_device;
    let found = library.symbol(c"ibv_open_device");
    Ok(found.is_some_and(|found| found.addr() == open as usize))
}

fn load(name: Name) -> Result<Functions, LibraryError> {
    let library = Handle::open(name)?;
    if library.symbol(OF_CONNECTION_MANAGER).is_some() {
        return Err(LibraryError::Ours);
    }
    Functions::find(&library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_without_verbs_is_refused() {
        let name = Name {
            file: c"libc.so.6",
            ..NAME
        };
        let error = load(name).err();
        assert_eq!(error, Some(LibraryError::Incomplete("ibv_get_device_list")));
    }
}

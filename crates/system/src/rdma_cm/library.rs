//! librdmacm, loaded when the first id is created.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use abi::{
    ibv_qp_attr, rdma_cm_event, rdma_cm_id, rdma_cm_join_mc_attr_ex, rdma_conn_param,
    rdma_event_channel,
};
use libc::sockaddr;

use crate::loader::{Handle, LibraryError, Name, functions};
use crate::verbs::is_used_by;

/// The library.
const NAME: Name = Name {
    file: c"librdmacm.so.1",
    library: "librdmacm",
    package: "librdmacm1",
};

functions! {
    rdma_create_event_channel() -> *mut rdma_event_channel;
    rdma_destroy_event_channel(*mut rdma_event_channel) -> ();
    rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int;
    rdma_destroy_id(*mut rdma_cm_id) -> c_int;
    rdma_bind_addr(*mut rdma_cm_id, *mut sockaddr) -> c_int;
    rdma_listen(*mut rdma_cm_id, c_int) -> c_int;
    rdma_resolve_addr(*mut rdma_cm_id, *mut sockaddr, *mut sockaddr, c_int) -> c_int;
    rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int;
    rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int;
    rdma_establish(*mut rdma_cm_id) -> c_int;
    rdma_disconnect(*mut rdma_cm_id) -> c_int;
    rdma_join_multicast_ex(*mut rdma_cm_id, *mut rdma_cm_join_mc_attr_ex, *mut c_void) -> c_int;
    rdma_leave_multicast(*mut rdma_cm_id, *mut sockaddr) -> c_int;
    rdma_set_option(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int;
    rdma_init_qp_attr(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
    rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
}

/// The functions of the system's librdmacm, loaded at the first call.
pub(super) fn functions() -> Result<&'static Functions, LibraryError> {
    static LOADED: OnceLock<Result<Functions, LibraryError>> = OnceLock::new();
    LOADED
        .get_or_init(|| load(NAME.stand_in().unwrap_or(NAME)))
        .as_ref()
        .map_err(Clone::clone)
}

fn load(name: Name) -> Result<Functions, LibraryError> {
    let library = Handle::open(name)?;
    if !is_used_by(&library)? {
        return Err(LibraryError::Ours);
    }
    Functions::find(&library)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The system's libibverbs, without which nothing can be said about others.
    fn has_verbs() -> bool {
        let verbs = Name {
            file: c"libibverbs.so.1",
            ..NAME
        };
        Handle::open(verbs).is_ok_and(|library| is_used_by(&library) == Ok(true))
    }

    #[test]
    fn a_library_that_does_not_use_libibverbs_is_refused() {
        if has_verbs() {
            let name = Name {
                file: c"libc.so.6",
                ..NAME
            };
            assert_eq!(load(name).err(), Some(LibraryError::Ours));
        }
    }

    #[test]
    fn a_library_without_a_connection_manager_is_refused() {
        if has_verbs() {
            let name = Name {
                file: c"libibverbs.so.1",
                ..NAME
            };
            let missing = LibraryError::Incomplete("rdma_create_event_channel");
            assert_eq!(load(name).err(), Some(missing));
        }
    }
}

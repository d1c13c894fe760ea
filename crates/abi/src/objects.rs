//! The handles that programs hold.

use std::ffi::{c_char, c_int, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::declare_struct::{MUTEX, c_structs};
use super::{ibv_context, ibv_device};

/// `union ibv_gid`: sixteen bytes with the alignment of two words.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
#[allow(non_camel_case_types, reason = "the name that it has in C")]
pub struct ibv_gid {
    pub raw: [u8; 16],
}

/// Copies bytes between device memory and the program's memory.
pub type MemcpyToDm = unsafe extern "C" fn(*mut ibv_dm, u64, *const c_void, usize) -> c_int;
pub type MemcpyFromDm = unsafe extern "C" fn(*mut c_void, *mut ibv_dm, u64, usize) -> c_int;

c_structs! {
    struct ibv_pd [16] {
        context: *mut ibv_context,
        handle: u32,
    }

    struct ibv_td [8] {
        context: *mut ibv_context,
    }

    struct ibv_xrcd [8] {
        context: *mut ibv_context,
    }

    struct ibv_mr [48] {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    struct ibv_mw [32] {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        rkey: u32,
        handle: u32,
        r#type: u32,
    }

    struct ibv_ah [24] {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        handle: u32,
    }

    struct ibv_dm [32] {
        context: *mut ibv_context,
        memcpy_to_dm: Option<MemcpyToDm>,
        memcpy_from_dm: Option<MemcpyFromDm>,
        comp_mask: u32,
        handle: u32,
    }

    struct ibv_comp_channel [16] {
        context: *mut ibv_context,
        fd: c_int,
        refcnt: c_int,
    }

    struct ibv_srq [88 + MUTEX] {
        context: *mut ibv_context,
        srq_context: *mut c_void,
        pd: *mut ibv_pd,
        handle: u32,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }
}

/// `struct ibv_dmah`, since release 59.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "the name that it has in C")]
pub struct ibv_dmah {
    pub context: *mut ibv_context,
}

/// `struct ibv_buf`, since release 64. Its content is private.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "the name that it has in C")]
pub struct ibv_buf {
    pub pd: *mut ibv_pd,
}

/// The structure around an `ibv_device` in rdma-core.
///
/// Its header is not installed, but its drivers compare `ops` to recognize their devices.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name that it has in C")]
pub struct verbs_device {
    pub device: ibv_device,
    pub ops: *const verbs_device_ops,
    pub refcount: c_int,
    pub entry: [*mut c_void; 2],
    pub sysfs: *mut c_void,
    pub core_support: u64,
}

/// The operations of an rdma-core driver. Ours are never called; only their address must be different.
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name that it has in C")]
pub struct verbs_device_ops {
    pub name: *const c_char,
    pub abi_versions: [u32; 2],
    pub callbacks: [*const c_void; 6],
}

// SAFETY: it points to constants.
unsafe impl Sync for verbs_device_ops {}

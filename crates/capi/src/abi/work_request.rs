//! Work requests.

use std::ffi::c_int;

use super::layout::c_structs;
use super::{ibv_ah, ibv_mw, ibv_mw_bind_info};

c_structs! {
    struct ibv_sge [16] {
        addr: u64,
        length: u32,
        lkey: u32,
    }

    struct ibv_data_buf [16] {
        addr: *mut std::ffi::c_void,
        length: usize,
    }

    struct ibv_recv_wr [32] {
        wr_id: u64,
        next: *mut ibv_recv_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
    }
}

/// `struct ibv_send_wr`, whose unions are flattened by hand below.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "the name that it has in C")]
pub(crate) struct ibv_send_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_send_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: u32,
    pub(crate) send_flags: u32,
    /// Immediate data in network order, or the key to invalidate in host order.
    pub(crate) imm_data: [u8; 4],
    pub(crate) wr: WorkTarget,
    pub(crate) remote_srqn: u32,
    pub(crate) bind_mw: BindWindow,
}

/// `ibv_send_wr.wr`: opcode and queue pair type select the member.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union WorkTarget {
    pub(crate) rdma: RdmaTarget,
    pub(crate) atomic: AtomicTarget,
    pub(crate) ud: DatagramTarget,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RdmaTarget {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AtomicTarget {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DatagramTarget {
    pub(crate) ah: *mut ibv_ah,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

/// `ibv_send_wr.bind_mw`, in a union with segmentation offload.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BindWindow {
    pub(crate) mw: *mut ibv_mw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

const _: () = assert!(size_of::<ibv_send_wr>() == 128);

//! Work requests.

use std::ffi::c_int;

use super::declare_struct::c_structs;
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
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: u32,
    /// Immediate data in network order, or the key to invalidate in host order.
    pub imm_data: [u8; 4],
    pub wr: WorkTarget,
    pub remote_srqn: u32,
    pub bind_mw: BindWindow,
}

/// `ibv_send_wr.wr`: opcode and queue pair type select the member.
#[repr(C)]
#[derive(Clone, Copy)]
pub union WorkTarget {
    pub rdma: RdmaTarget,
    pub atomic: AtomicTarget,
    pub ud: DatagramTarget,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RdmaTarget {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AtomicTarget {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DatagramTarget {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// `ibv_send_wr.bind_mw`, in a union with segmentation offload.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BindWindow {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

const _: () = assert!(size_of::<ibv_send_wr>() == 128);

//! Queue pairs, and the `ibv_wr_*` operations.

use std::ffi::{c_int, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::declare_struct::{MUTEX, c_structs};
use super::{
    ibv_ah, ibv_context, ibv_cq, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_pd, ibv_sge, ibv_srq,
};

type Me = *mut ibv_qp_ex;

c_structs! {
    struct ibv_qp [120 + MUTEX] {
        context: *mut ibv_context,
        qp_context: *mut c_void,
        pd: *mut ibv_pd,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        handle: u32,
        qp_num: u32,
        state: u32,
        qp_type: u32,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }

    struct ibv_qp_ex [312 + MUTEX] {
        qp_base: ibv_qp,
        comp_mask: u64,
        wr_id: u64,
        wr_flags: u32,
        wr_atomic_cmp_swp: Option<unsafe extern "C" fn(Me, u32, u64, u64, u64)>,
        wr_atomic_fetch_add: Option<unsafe extern "C" fn(Me, u32, u64, u64)>,
        wr_bind_mw: Option<unsafe extern "C" fn(Me, *mut ibv_mw, u32, *mut ibv_mw_bind_info)>,
        wr_local_inv: Option<unsafe extern "C" fn(Me, u32)>,
        wr_rdma_read: Option<unsafe extern "C" fn(Me, u32, u64)>,
        wr_rdma_write: Option<unsafe extern "C" fn(Me, u32, u64)>,
        wr_rdma_write_imm: Option<unsafe extern "C" fn(Me, u32, u64, u32)>,
        wr_send: Option<unsafe extern "C" fn(Me)>,
        wr_send_imm: Option<unsafe extern "C" fn(Me, u32)>,
        wr_send_inv: Option<unsafe extern "C" fn(Me, u32)>,
        wr_send_tso: Option<unsafe extern "C" fn(Me, *mut c_void, u16, u16)>,
        wr_set_ud_addr: Option<unsafe extern "C" fn(Me, *mut ibv_ah, u32, u32)>,
        wr_set_xrc_srqn: Option<unsafe extern "C" fn(Me, u32)>,
        wr_set_inline_data: Option<unsafe extern "C" fn(Me, *mut c_void, usize)>,
        wr_set_inline_data_list: Option<unsafe extern "C" fn(Me, usize, *const ibv_data_buf)>,
        wr_set_sge: Option<unsafe extern "C" fn(Me, u32, u64, u32)>,
        wr_set_sge_list: Option<unsafe extern "C" fn(Me, usize, *const ibv_sge)>,
        wr_start: Option<unsafe extern "C" fn(Me)>,
        wr_complete: Option<unsafe extern "C" fn(Me) -> c_int>,
        wr_abort: Option<unsafe extern "C" fn(Me)>,
        wr_atomic_write: Option<unsafe extern "C" fn(Me, u32, u64, *const c_void)>,
    }
}

/// The field that newer headers have after `ibv_qp_ex`.
pub type Flush = unsafe extern "C" fn(Me, u32, u64, usize, u8, u8);

//! Completion queues and completions.

use std::ffi::{c_int, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::declare_struct::{MUTEX, c_structs};
use super::{ibv_comp_channel, ibv_context};

type Reader<T> = Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> T>;

c_structs! {
    struct ibv_wc [48] {
        wr_id: u64,
        status: u32,
        opcode: u32,
        vendor_err: u32,
        byte_len: u32,
        imm_data: [u8; 4],
        qp_num: u32,
        src_qp: u32,
        wc_flags: u32,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }

    struct ibv_cq [88 + MUTEX] {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
    }

    struct ibv_poll_cq_attr [4] {
        comp_mask: u32,
    }

    struct ibv_cq_ex [248 + MUTEX] {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
        comp_mask: u32,
        status: u32,
        wr_id: u64,
        start_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int>,
        next_poll: Reader<c_int>,
        end_poll: Reader<()>,
        read_opcode: Reader<u32>,
        read_vendor_err: Reader<u32>,
        read_byte_len: Reader<u32>,
        read_imm_data: Reader<u32>,
        read_qp_num: Reader<u32>,
        read_src_qp: Reader<u32>,
        read_wc_flags: Reader<u32>,
        read_slid: Reader<u32>,
        read_sl: Reader<u8>,
        read_dlid_path_bits: Reader<u8>,
        read_completion_ts: Reader<u64>,
        read_cvlan: Reader<u16>,
        read_flow_tag: Reader<u32>,
        read_tm_info: *mut c_void,
        read_completion_wallclock_ns: Reader<u64>,
    }

    struct ibv_async_event [16] {
        element: *mut c_void,
        event_type: u32,
    }
}

//! The context: a table of operations that inline functions of the headers call.

use std::ffi::{c_int, c_void};

use libc::pthread_mutex_t;

use super::declare_struct::{MUTEX, c_structs};
use super::{
    AdviseMr, OpenXrcd, ibv_alloc_dm_attr, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_device,
    ibv_device_attr, ibv_device_attr_ex, ibv_dm, ibv_modify_cq_attr, ibv_mr, ibv_mw, ibv_mw_bind,
    ibv_parent_domain_init_attr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_init_attr_ex,
    ibv_qp_open_attr, ibv_query_device_ex_input, ibv_recv_wr, ibv_send_wr, ibv_srq,
    ibv_srq_init_attr_ex, ibv_td, ibv_td_init_attr, ibv_values_ex, ibv_wc, ibv_xrcd,
};

/// What polling a completion queue returns: the number of completions, or a negative error number.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Polled(pub c_int);

/// An operation that programs no longer use, or that a software device does not have.
type Unused = *mut c_void;

type Call<A, R> = Option<unsafe extern "C" fn(A) -> R>;
type Call2<A, B, R> = Option<unsafe extern "C" fn(A, B) -> R>;
type Call3<A, B, C, R> = Option<unsafe extern "C" fn(A, B, C) -> R>;
type Call4<A, B, C, D, R> = Option<unsafe extern "C" fn(A, B, C, D) -> R>;
type Post<Q, W> = Option<unsafe extern "C" fn(*mut Q, *mut W, *mut *mut W) -> c_int>;

type RegisterDeviceMemory =
    unsafe extern "C" fn(*mut ibv_pd, *mut ibv_dm, u64, usize, u32) -> *mut ibv_mr;

c_structs! {
    struct ibv_context_ops [256] {
        _compat_query_device: Call2<*mut ibv_context, *mut ibv_device_attr, c_int>,
        _compat_query_port: Call3<*mut ibv_context, u8, *mut ibv_port_attr, c_int>,
        _compat_alloc_pd: Unused,
        _compat_dealloc_pd: Unused,
        _compat_reg_mr: Unused,
        _compat_rereg_mr: Unused,
        _compat_dereg_mr: Unused,
        alloc_mw: Call2<*mut ibv_pd, u32, *mut ibv_mw>,
        bind_mw: Call3<*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind, c_int>,
        dealloc_mw: Call<*mut ibv_mw, c_int>,
        _compat_create_cq: Unused,
        poll_cq: Call3<*mut ibv_cq, c_int, *mut ibv_wc, Polled>,
        req_notify_cq: Call2<*mut ibv_cq, c_int, c_int>,
        _compat_cq_event: Unused,
        _compat_resize_cq: Unused,
        _compat_destroy_cq: Unused,
        _compat_create_srq: Unused,
        _compat_modify_srq: Unused,
        _compat_query_srq: Unused,
        _compat_destroy_srq: Unused,
        post_srq_recv: Post<ibv_srq, ibv_recv_wr>,
        _compat_create_qp: Unused,
        _compat_query_qp: Unused,
        _compat_modify_qp: Unused,
        _compat_destroy_qp: Unused,
        post_send: Post<ibv_qp, ibv_send_wr>,
        post_recv: Post<ibv_qp, ibv_recv_wr>,
        _compat_create_ah: Unused,
        _compat_destroy_ah: Unused,
        _compat_attach_mcast: Unused,
        _compat_detach_mcast: Unused,
        _compat_async_event: Unused,
    }

    struct ibv_context [288 + MUTEX] {
        device: *mut ibv_device,
        ops: ibv_context_ops,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: pthread_mutex_t,
        abi_compat: *mut c_void,
    }

    struct verbs_context [608 + MUTEX] {
        query_port: Call4<*mut ibv_context, u8, *mut ibv_port_attr, usize, c_int>,
        advise_mr: Option<AdviseMr>,
        alloc_null_mr: Call<*mut ibv_pd, *mut ibv_mr>,
        read_counters: Unused,
        attach_counters_point_flow: Unused,
        create_counters: Unused,
        destroy_counters: Unused,
        reg_dm_mr: Option<RegisterDeviceMemory>,
        alloc_dm: Call2<*mut ibv_context, *mut ibv_alloc_dm_attr, *mut ibv_dm>,
        free_dm: Call<*mut ibv_dm, c_int>,
        modify_flow_action_esp: Unused,
        destroy_flow_action: Unused,
        create_flow_action_esp: Unused,
        modify_qp_rate_limit: Unused,
        alloc_parent_domain: Call2<*mut ibv_context, *mut ibv_parent_domain_init_attr, *mut ibv_pd>,
        dealloc_td: Call<*mut ibv_td, c_int>,
        alloc_td: Call2<*mut ibv_context, *mut ibv_td_init_attr, *mut ibv_td>,
        modify_cq: Call2<*mut ibv_cq, *mut ibv_modify_cq_attr, c_int>,
        post_srq_ops: Unused,
        destroy_rwq_ind_table: Unused,
        create_rwq_ind_table: Unused,
        destroy_wq: Unused,
        modify_wq: Unused,
        create_wq: Unused,
        query_rt_values: Call2<*mut ibv_context, *mut ibv_values_ex, c_int>,
        create_cq_ex: Call2<*mut ibv_context, *mut ibv_cq_init_attr_ex, *mut ibv_cq_ex>,
        r#priv: *mut c_void,
        query_device_ex: Call4<
            *mut ibv_context,
            *const ibv_query_device_ex_input,
            *mut ibv_device_attr_ex,
            usize,
            c_int,
        >,
        ibv_destroy_flow: Unused,
        ABI_placeholder2: Unused,
        ibv_create_flow: Unused,
        ABI_placeholder1: Unused,
        open_qp: Call2<*mut ibv_context, *mut ibv_qp_open_attr, *mut ibv_qp>,
        create_qp_ex: Call2<*mut ibv_context, *mut ibv_qp_init_attr_ex, *mut ibv_qp>,
        get_srq_num: Call2<*mut ibv_srq, *mut u32, c_int>,
        create_srq_ex: Call2<*mut ibv_context, *mut ibv_srq_init_attr_ex, *mut ibv_srq>,
        open_xrcd: Option<OpenXrcd>,
        close_xrcd: Call<*mut ibv_xrcd, c_int>,
        _ABI_placeholder3: u64,
        sz: usize,
        context: ibv_context,
    }
}

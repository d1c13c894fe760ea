//! Operations that the headers call through pointers, not symbols.

use super::Status;

/// A function of the header `infiniband/verbs.h` that is reached through a pointer.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// Its name.
    pub name: &'static str,
    /// How it is implemented.
    pub status: Status,
}

const FLOWS: Status = Status::Unsupported("packets are steered by the kernel's network stack");
const QUEUES: Status = Status::Unsupported("receive queues of their own are for raw packets");
const COUNTERS: Status = Status::Unsupported("counters belong to flows");
const TAGS: Status = Status::Unsupported("tag matching is done by a NIC, or not at all");

macro_rules! operations {
    ($($status:expr => $($name:ident)*;)*) => {
        /// All of them.
        pub const OPERATIONS: &[Operation] = &[$($(
            Operation { name: stringify!($name), status: $status },
        )*)*];
    };
}

operations! {
    Status::Real =>
        ibv_query_device_ex ibv_query_port ibv_query_gid_ex ibv_query_gid_table
        ibv_query_rt_values_ex;
    Status::Real =>
        ibv_alloc_td ibv_dealloc_td ibv_alloc_parent_domain ibv_open_xrcd ibv_close_xrcd;
    Status::Real =>
        ibv_advise_mr ibv_alloc_null_mr ibv_alloc_dm ibv_free_dm ibv_reg_dm_mr ibv_memcpy_to_dm
        ibv_memcpy_from_dm ibv_alloc_mw ibv_bind_mw ibv_dealloc_mw;
    Status::Real => ibv_create_cq_ex ibv_poll_cq ibv_req_notify_cq;
    Status::Real =>
        ibv_start_poll ibv_next_poll ibv_end_poll ibv_wc_read_opcode ibv_wc_read_vendor_err
        ibv_wc_read_byte_len ibv_wc_read_imm_data ibv_wc_read_invalidated_rkey ibv_wc_read_qp_num
        ibv_wc_read_src_qp ibv_wc_read_wc_flags ibv_wc_read_slid ibv_wc_read_sl
        ibv_wc_read_dlid_path_bits ibv_wc_read_completion_ts ibv_wc_read_completion_wallclock_ns;
    Status::Real =>
        ibv_create_qp_ex ibv_open_qp ibv_post_send ibv_post_recv ibv_create_srq_ex
        ibv_get_srq_num ibv_post_srq_recv;
    Status::Real =>
        ibv_wr_start ibv_wr_complete ibv_wr_abort ibv_wr_send ibv_wr_send_imm ibv_wr_send_inv
        ibv_wr_rdma_write ibv_wr_rdma_write_imm ibv_wr_rdma_read ibv_wr_atomic_cmp_swp
        ibv_wr_atomic_fetch_add ibv_wr_atomic_write ibv_wr_flush ibv_wr_local_inv ibv_wr_bind_mw
        ibv_wr_set_ud_addr ibv_wr_set_xrc_srqn ibv_wr_set_inline_data
        ibv_wr_set_inline_data_list ibv_wr_set_sge ibv_wr_set_sge_list;

    Status::Unsupported("moderation saves a NIC interrupts; here there are none") => ibv_modify_cq;
    Status::Unsupported("the kernel paces packets, see tc(8)") => ibv_modify_qp_rate_limit;
    Status::Unsupported("segmentation offload is for raw packets") => ibv_wr_send_tso;
    Status::Unsupported("VLAN and flow tags belong to raw packets") =>
        ibv_wc_read_cvlan ibv_wc_read_flow_tag;
    TAGS => ibv_post_srq_ops ibv_wc_read_tm_info;
    FLOWS =>
        ibv_create_flow ibv_destroy_flow ibv_create_flow_action_esp ibv_modify_flow_action_esp
        ibv_destroy_flow_action;
    QUEUES =>
        ibv_create_wq ibv_modify_wq ibv_destroy_wq ibv_post_wq_recv ibv_create_rwq_ind_table
        ibv_destroy_rwq_ind_table;
    COUNTERS =>
        ibv_create_counters ibv_destroy_counters ibv_attach_counters_point_flow
        ibv_read_counters;
}

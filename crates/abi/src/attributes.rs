//! Attributes for creating objects.

use std::ffi::{c_int, c_void};

use super::declare_struct::c_structs;
use super::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_mr, ibv_pd, ibv_sge, ibv_srq, ibv_td,
    ibv_xrcd,
};

/// The argument of `ibv_reg_mr_ex`; newer than the oldest headers that we compare with.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "the name that it has in C")]
pub struct ibv_mr_init_attr {
    pub length: usize,
    pub access: c_int,
    pub comp_mask: u64,
    pub iova: u64,
    pub addr: *mut c_void,
    pub fd: c_int,
    pub fd_offset: u64,
    pub dmah: *mut super::ibv_dmah,
}

/// The same since release 64. Its last field may be read only if the mask has its bit: the structure of older
/// programs ends before it.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "there is no second name in C")]
pub struct ibv_mr_init_attr_with_buf {
    pub before: ibv_mr_init_attr,
    pub buf: *mut super::ibv_buf,
}

const _: () = assert!(size_of::<ibv_mr_init_attr_with_buf>() == 72);

/// `struct ibv_dmah_init_attr`, since release 59.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "the name that it has in C")]
pub struct ibv_dmah_init_attr {
    pub comp_mask: u32,
    pub cpu_id: u32,
    pub ph: u8,
    pub tph_mem_type: u8,
}

const _: () = assert!(size_of::<ibv_dmah_init_attr>() == 12);

c_structs! {
    struct ibv_alloc_dm_attr [16] {
        length: usize,
        log_align_req: u32,
        comp_mask: u32,
    }

    struct ibv_td_init_attr [4] {
        comp_mask: u32,
    }

    struct ibv_parent_domain_init_attr [48] {
        pd: *mut ibv_pd,
        td: *mut ibv_td,
        comp_mask: u32,
        alloc: *mut c_void,
        free: *mut c_void,
        pd_context: *mut c_void,
    }

    struct ibv_xrcd_init_attr [12] {
        comp_mask: u32,
        fd: c_int,
        oflags: c_int,
    }

    struct ibv_mw_bind_info [32] {
        mr: *mut ibv_mr,
        addr: u64,
        length: u64,
        mw_access_flags: u32,
    }

    struct ibv_mw_bind [48] {
        wr_id: u64,
        send_flags: u32,
        bind_info: ibv_mw_bind_info,
    }

    struct ibv_global_route [24] {
        dgid: ibv_gid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    struct ibv_grh [40] {
        version_tclass_flow: u32,
        paylen: u16,
        next_hdr: u8,
        hop_limit: u8,
        sgid: ibv_gid,
        dgid: ibv_gid,
    }

    struct ibv_ah_attr [32] {
        grh: ibv_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    struct ibv_srq_attr [12] {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }

    struct ibv_srq_init_attr [24] {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
    }

    struct ibv_tm_cap [8] {
        max_num_tags: u32,
        max_ops: u32,
    }

    struct ibv_srq_init_attr_ex [64] {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
        comp_mask: u32,
        srq_type: u32,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        cq: *mut ibv_cq,
        tm_cap: ibv_tm_cap,
    }

    struct ibv_qp_cap [20] {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    struct ibv_qp_init_attr [64] {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: u32,
        sq_sig_all: c_int,
    }

    struct ibv_rx_hash_conf [24] {
        rx_hash_function: u8,
        rx_hash_key_len: u8,
        rx_hash_key: *mut u8,
        rx_hash_fields_mask: u64,
    }

    struct ibv_qp_init_attr_ex [136] {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: u32,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: *mut c_void,
        rx_hash_conf: ibv_rx_hash_conf,
        source_qpn: u32,
        send_ops_flags: u64,
    }

    struct ibv_qp_open_attr [32] {
        comp_mask: u32,
        qp_num: u32,
        xrcd: *mut ibv_xrcd,
        qp_context: *mut c_void,
        qp_type: u32,
    }

    struct ibv_qp_attr [144] {
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        cap: ibv_qp_cap,
        ah_attr: ibv_ah_attr,
        alt_ah_attr: ibv_ah_attr,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        rate_limit: u32,
    }

    struct ibv_ece [12] {
        vendor_id: u32,
        options: u32,
        comp_mask: u32,
    }

    struct ibv_cq_init_attr_ex [56] {
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: u32,
        wc_flags: u64,
        comp_mask: u32,
        flags: u32,
        parent_domain: *mut ibv_pd,
    }

    struct ibv_moderate_cq [4] {
        cq_count: u16,
        cq_period: u16,
    }

    struct ibv_modify_cq_attr [8] {
        attr_mask: u32,
        moderate: ibv_moderate_cq,
    }
}

/// The type of `advise_mr`.
pub type AdviseMr = unsafe extern "C" fn(*mut ibv_pd, u32, u32, *mut ibv_sge, u32) -> c_int;

/// The type of `open_xrcd`.
pub type OpenXrcd =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd;

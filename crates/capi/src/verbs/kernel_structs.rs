//! `ibv_copy_*_kern`: conversions between structures of the kernel and the library.
//!
//! This library does not use the kernel's structures, but the functions are public.

use std::ffi::c_int;

use crate::abi;
use crate::entry::{Input, Output, entry};

entry! {
    export fn ibv_copy_ah_attr_from_kern(
        into: Output<abi::ibv_ah_attr>,
        from: Input<abi::ib_uverbs_ah_attr>,
    ) {
        let mut into = into;
        into.put(address(&from.0));
        Ok(())
    }

    export fn ibv_copy_qp_attr_from_kern(
        into: Output<abi::ibv_qp_attr>,
        from: Input<abi::ib_uverbs_qp_attr>,
    ) {
        let mut into = into;
        into.put(queue_pair(&from.0));
        Ok(())
    }

    export fn ibv_copy_path_rec_from_kern(
        into: Output<abi::ibv_sa_path_rec>,
        from: Input<abi::ib_user_path_rec>,
    ) {
        let (mut into, from) = (into, from.0);
        into.put(abi::ibv_sa_path_rec {
            dgid: abi::ibv_gid { raw: from.dgid },
            sgid: abi::ibv_gid { raw: from.sgid },
            dlid: from.dlid,
            slid: from.slid,
            raw_traffic: from.raw_traffic as c_int,
            flow_label: from.flow_label,
            hop_limit: from.hop_limit,
            traffic_class: from.traffic_class,
            reversible: from.reversible as c_int,
            numb_path: from.numb_path,
            pkey: from.pkey,
            sl: from.sl,
            mtu_selector: from.mtu_selector,
            mtu: from.mtu as u8,
            rate_selector: from.rate_selector,
            rate: from.rate,
            packet_life_time_selector: from.packet_life_time_selector,
            packet_life_time: from.packet_life_time,
            preference: from.preference,
        });
        Ok(())
    }

    export fn ibv_copy_path_rec_to_kern(
        into: Output<abi::ib_user_path_rec>,
        from: Input<abi::ibv_sa_path_rec>,
    ) {
        let (mut into, from) = (into, from.0);
        into.put(abi::ib_user_path_rec {
            dgid: from.dgid.raw,
            sgid: from.sgid.raw,
            dlid: from.dlid,
            slid: from.slid,
            raw_traffic: from.raw_traffic.cast_unsigned(),
            flow_label: from.flow_label,
            reversible: from.reversible.cast_unsigned(),
            mtu: u32::from(from.mtu),
            pkey: from.pkey,
            hop_limit: from.hop_limit,
            traffic_class: from.traffic_class,
            numb_path: from.numb_path,
            sl: from.sl,
            mtu_selector: from.mtu_selector,
            rate_selector: from.rate_selector,
            rate: from.rate,
            packet_life_time_selector: from.packet_life_time_selector,
            packet_life_time: from.packet_life_time,
            preference: from.preference,
        });
        Ok(())
    }
}

fn address(from: &abi::ib_uverbs_ah_attr) -> abi::ibv_ah_attr {
    abi::ibv_ah_attr {
        grh: abi::ibv_global_route {
            dgid: abi::ibv_gid { raw: from.grh.dgid },
            flow_label: from.grh.flow_label,
            sgid_index: from.grh.sgid_index,
            hop_limit: from.grh.hop_limit,
            traffic_class: from.grh.traffic_class,
        },
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

fn queue_pair(from: &abi::ib_uverbs_qp_attr) -> abi::ibv_qp_attr {
    abi::ibv_qp_attr {
        qp_state: from.qp_state,
        cur_qp_state: from.cur_qp_state,
        path_mtu: from.path_mtu,
        path_mig_state: from.path_mig_state,
        qkey: from.qkey,
        rq_psn: from.rq_psn,
        sq_psn: from.sq_psn,
        dest_qp_num: from.dest_qp_num,
        qp_access_flags: from.qp_access_flags,
        cap: abi::ibv_qp_cap {
            max_send_wr: from.max_send_wr,
            max_recv_wr: from.max_recv_wr,
            max_send_sge: from.max_send_sge,
            max_recv_sge: from.max_recv_sge,
            max_inline_data: from.max_inline_data,
        },
        ah_attr: address(&from.ah_attr),
        alt_ah_attr: address(&from.alt_ah_attr),
        pkey_index: from.pkey_index,
        alt_pkey_index: from.alt_pkey_index,
        en_sqd_async_notify: from.en_sqd_async_notify,
        sq_draining: from.sq_draining,
        max_rd_atomic: from.max_rd_atomic,
        max_dest_rd_atomic: from.max_dest_rd_atomic,
        min_rnr_timer: from.min_rnr_timer,
        port_num: from.port_num,
        timeout: from.timeout,
        retry_cnt: from.retry_cnt,
        rnr_retry: from.rnr_retry,
        alt_port_num: from.alt_port_num,
        alt_timeout: from.alt_timeout,
        ..Default::default()
    }
}

//! Every symbol of libibverbs: its function, its version, and why it fails if it does.

use super::symbols;

symbols! {
    real "" by itself in default "IBVERBS_1.0" {
        ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern ibv_copy_qp_attr_from_kern
        ibv_create_comp_channel ibv_destroy_comp_channel ibv_get_sysfs_path ibv_rate_to_mult
        ibv_read_sysfs_file mult_to_ibv_rate
    }
    real "" by itself in default "IBVERBS_1.1" {
        ibv_ack_async_event ibv_ack_cq_events ibv_alloc_pd ibv_attach_mcast ibv_close_device
        ibv_copy_ah_attr_from_kern ibv_create_ah ibv_create_ah_from_wc ibv_create_cq
        ibv_create_qp ibv_create_srq ibv_dealloc_pd ibv_dereg_mr ibv_destroy_ah
        ibv_destroy_cq ibv_destroy_qp ibv_destroy_srq ibv_detach_mcast ibv_dofork_range
        ibv_dontfork_range ibv_event_type_str ibv_fork_init ibv_free_device_list
        ibv_get_async_event ibv_get_cq_event ibv_get_device_guid ibv_get_device_list
        ibv_get_device_name ibv_init_ah_from_wc ibv_modify_qp ibv_modify_srq
        ibv_node_type_str ibv_open_device ibv_port_state_str ibv_query_device ibv_query_gid
        ibv_query_pkey ibv_query_port ibv_query_qp ibv_query_srq ibv_rate_to_mbps ibv_reg_mr
        ibv_rereg_mr ibv_resize_cq ibv_wc_status_str mbps_to_ibv_rate
    }
    real "" by itself in default "IBVERBS_1.5" {
        ibv_get_pkey_index
    }
    real "" by itself in default "IBVERBS_1.6" {
        ibv_qp_to_qp_ex
    }
    real "" by itself in default "IBVERBS_1.7" {
        ibv_reg_mr_iova
    }
    real "" by itself in default "IBVERBS_1.8" {
        ibv_reg_mr_iova2
    }
    real "" by itself in default "IBVERBS_1.9" {
        ibv_get_device_index
    }
    real "" by itself in default "IBVERBS_1.10" {
        ibv_import_device ibv_import_mr ibv_import_pd ibv_unimport_mr ibv_unimport_pd
    }
    real "" by itself in default "IBVERBS_1.11" {
        _ibv_query_gid_ex _ibv_query_gid_table
    }
    real "" by itself in default "IBVERBS_1.13" {
        ibv_import_dm ibv_is_fork_initialized ibv_unimport_dm
    }
    real "" by itself in default "IBVERBS_1.14" {
        ibv_query_qp_data_in_order
    }
    real "" by itself in default "IBVERBS_1.15" {
        ibv_alloc_dmah ibv_dealloc_dmah ibv_reg_mr_ex
    }
    real "" by itself in default "IBVERBS_1.16" {
        ibv_query_port_speed
    }
    real "" by itself in default "IBVERBS_1.17" {
        ibv_alloc_buf ibv_free_buf ibv_reg_buf_mr
    }
    real "" by itself in default "IBVERBS_1.18" {
        ibv_export_buf_dmabuf_fd
    }

    unsupported "the kernel finds the neighbour, no program has to"
        by unsupported in default "IBVERBS_1.1" {
        ibv_resolve_eth_l2_from_gid
    }
    unsupported "enhanced connection establishment is between NICs of one vendor"
        by itself in default "IBVERBS_1.10" {
        ibv_query_ece ibv_set_ece
    }
    real "" by itself in default "IBVERBS_1.12" {
        ibv_reg_dmabuf_mr
    }
    unsupported "device memory is ordinary memory of this process"
        by unsupported_descriptor in default "IBVERBS_1.16" {
        ibv_dm_export_dmabuf_fd
    }
    unsupported "completions are counted by the program"
        by unsupported_object in default "IBVERBS_1.18" {
        ibv_create_comp_cntr
    }
    unsupported "completions are counted by the program" by unsupported in default "IBVERBS_1.18" {
        _ibv_query_comp_cntr_caps ibv_destroy_comp_cntr ibv_inc_comp_cntr
        ibv_inc_err_comp_cntr ibv_qp_attach_comp_cntr ibv_read_comp_cntr
        ibv_read_err_comp_cntr ibv_set_comp_cntr ibv_set_err_comp_cntr
    }

    real "" by itself in private "IBVERBS_PRIVATE_65" {
        ibv_query_gid_type verbs_allow_disassociate_destroy verbs_open_device
    }
    real "" by itself in private "IBVERBS_PRIVATE_65" {
        ibv_wr_opcode_str
    }
    stub "a command for the kernel's device file" by no_kernel in private "IBVERBS_PRIVATE_65" {
        __ioctl_final_num_attrs execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm
        ibv_cmd_alloc_mw ibv_cmd_alloc_pd ibv_cmd_attach_mcast ibv_cmd_close_xrcd
        ibv_cmd_create_ah ibv_cmd_create_counters ibv_cmd_create_cq ibv_cmd_create_cq_ex
        ibv_cmd_create_flow ibv_cmd_create_flow_action_esp ibv_cmd_create_qp
        ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table
        ibv_cmd_create_srq ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw
        ibv_cmd_dealloc_pd ibv_cmd_dereg_mr ibv_cmd_destroy_ah ibv_cmd_destroy_counters
        ibv_cmd_destroy_cq ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action
        ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table ibv_cmd_destroy_srq
        ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_free_dm ibv_cmd_get_context
        ibv_cmd_modify_cq ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp
        ibv_cmd_modify_qp_ex ibv_cmd_modify_srq ibv_cmd_modify_wq ibv_cmd_open_qp
        ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send
        ibv_cmd_post_srq_recv ibv_cmd_query_context ibv_cmd_query_device
        ibv_cmd_query_device_any ibv_cmd_query_device_ex
        ibv_cmd_query_mr ibv_cmd_query_port ibv_cmd_query_qp ibv_cmd_query_srq
        ibv_cmd_read_counters ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr
        ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq ibv_get_fw_ver
        ibv_read_ibdev_sysfs_file
    }
    stub "a command for the kernel's device file" by no_kernel in private "IBVERBS_PRIVATE_65" {
        ibv_cmd_alloc_dmah ibv_cmd_create_comp_cntr ibv_cmd_create_cq_ex2
        ibv_cmd_destroy_comp_cntr ibv_cmd_export_dmabuf_fd ibv_cmd_free_dmah
        ibv_cmd_inc_comp_cntr ibv_cmd_inc_err_comp_cntr ibv_cmd_qp_attach_comp_cntr
        ibv_cmd_query_comp_cntr_caps ibv_cmd_query_port_speed ibv_cmd_read_comp_cntr
        ibv_cmd_read_err_comp_cntr ibv_cmd_reg_mr_ex ibv_cmd_set_comp_cntr
        ibv_cmd_set_err_comp_cntr ibv_dmabuf_heap_cc_shared_init ibv_dmabuf_heap_destroy
        ibv_dmabuf_heap_free
    }
    stub "a command for the kernel's device file"
        by no_kernel_object in private "IBVERBS_PRIVATE_65" {
        _verbs_init_and_alloc_context
    }
    stub "a command for the kernel's device file"
        by no_kernel_object in private "IBVERBS_PRIVATE_65" {
        ibv_dmabuf_heap_alloc
    }
    stub "for rdma-core's drivers, which find no devices"
        by ignored in private "IBVERBS_PRIVATE_65" {
        __verbs_log verbs_init_cq verbs_set_ops verbs_uninit_context
    }
    stub "for rdma-core's drivers, which find no devices"
        by ignored in default "IBVERBS_PRIVATE_25" {
        verbs_register_driver_25
    }
    stub "for rdma-core's drivers, which find no devices"
        by ignored in default "IBVERBS_PRIVATE_33" {
        verbs_register_driver_33
    }
    stub "for rdma-core's drivers, which find no devices"
        by ignored in default "IBVERBS_PRIVATE_34" {
        verbs_register_driver_34
    }
    stub "for rdma-core's drivers, which find no devices"
        by ignored in default "IBVERBS_PRIVATE_57" {
        verbs_register_driver_57
    }
    stub "for rdma-core's drivers, which find no devices"
        by ignored in default "IBVERBS_PRIVATE_59" {
        verbs_register_driver_59
    }
    stub "for rdma-core's drivers, which find no devices"
        by ignored in default "IBVERBS_PRIVATE_64" {
        verbs_register_driver_64
    }
    stub "for rdma-core's drivers, which find no devices"
        by ignored in default "IBVERBS_PRIVATE_65" {
        verbs_register_driver_65
    }
    stub "for drivers of 2016 and before" by ignored in hidden "IBVERBS_1.1" {
        ibv_register_driver
    }
    stub "for programs linked in 2006 and before, whose structures have another shape"
        by old_abi in hidden "IBVERBS_1.0" {
        ibv_attach_mcast ibv_close_device ibv_dealloc_pd ibv_dereg_mr ibv_destroy_ah
        ibv_destroy_cq ibv_destroy_qp ibv_destroy_srq ibv_detach_mcast ibv_get_async_event
        ibv_get_cq_event ibv_get_device_guid ibv_modify_qp ibv_modify_srq ibv_query_device
        ibv_query_gid ibv_query_pkey ibv_query_port ibv_query_qp ibv_query_srq ibv_resize_cq
    }
    stub "for programs linked in 2006 and before, whose structures have another shape"
        by old_abi_object in hidden "IBVERBS_1.0" {
        ibv_alloc_pd ibv_create_ah ibv_create_cq ibv_create_qp ibv_create_srq
        ibv_get_device_list ibv_get_device_name ibv_open_device ibv_reg_mr
    }
    stub "for programs linked in 2006 and before, whose structures have another shape"
        by ignored in hidden "IBVERBS_1.0" {
        ibv_ack_async_event ibv_ack_cq_events ibv_free_device_list
    }
}

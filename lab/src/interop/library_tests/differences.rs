//! Where rdma-core's libraries with the kernel's rxe print something else than ours.
//!
//! A case that is not listed must print the same on both; one that is listed must differ, and in the way that
//! is listed here.

/// A case that differs.
pub(super) struct Difference {
    pub(super) program: &'static str,
    pub(super) case: &'static str,
    /// A part of what rdma-core's prints.
    pub(super) says: &'static str,
    pub(super) why: Why,
}

/// Which side deviates.
pub(super) enum Why {
    /// The kernel's device or rdma-core's library does not have it, or deviates from the
    /// specification.
    Lacks(&'static str),
    /// We have chosen to answer otherwise.
    Otherwise(&'static str),
}

impl Why {
    pub(super) const fn because(&self) -> &'static str {
        match self {
            Self::Lacks(because) | Self::Otherwise(because) => because,
        }
    }
}

const fn lacks(
    program: &'static str,
    case: &'static str,
    says: &'static str,
    because: &'static str,
) -> Difference {
    let why = Why::Lacks(because);
    Difference {
        program,
        case,
        says,
        why,
    }
}

const fn otherwise(
    program: &'static str,
    case: &'static str,
    says: &'static str,
    because: &'static str,
) -> Difference {
    let why = Why::Otherwise(because);
    Difference {
        program,
        case,
        says,
        why,
    }
}

const CRASH: &str = "killed: Segmentation fault";

// Why we answer otherwise.
const NO_CRASH: &str = "a null pointer gets EINVAL and does not end the program";
const IN_THE_PARENT: &str = "our device lives in the memory of the process that opened it, and not \
                             in the kernel: a child has none";

// What is lacking.
const NO_ON_DEMAND: &str = "rxe of Linux 6.1 has no on-demand paging";
const NO_DEVICE_MEMORY: &str = "rxe has no device memory";
const NO_REREGISTRATION: &str = "rxe of Linux 6.1 can't change a region";
const NO_ADVICE: &str = "rxe of Linux 6.1 does not support `ibv_advise_mr`";
const NO_DATAGRAMS: &str = "rdma-core's rsockets ask for an address without a global route, which \
                            RoCE does not have";
const HANGS: &str = "rdma-core's rsockets hang in some runs when one thread sends while another \
                     receives, so this is not tried with them";
const NO_XRC: &str = "rxe has no XRC, so this is not tried with it";
const NOT_TRIED: &str = "this has not been tried with rdma-core's";
const ONE_BUFFER: &str = "rdma-core's rsockets fill the first buffer only, so this is not tried \
                          with them";
const PINNED: &str = "a device of the kernel keeps the memory, so nothing breaks there";

pub(super) const DIFFERENCES: &[Difference] = &[
    lacks(
        "attribute_ranges",
        "responder_resources_up_to_the_limit",
        "is 0, not EINVAL",
        "rxe accepts more responder resources than it offers, and then has none",
    ),
    lacks(
        "attribute_ranges",
        "path_mtu_zero_is_rejected",
        "is 0, not EINVAL",
        "rxe accepts the path MTU 0, which does not exist",
    ),
    lacks(
        "attribute_ranges",
        "newer_permissions_of_memory",
        "mr != NULL (errno 22)",
        "rxe of Linux 6.1 has neither on-demand paging nor FLUSH",
    ),
    otherwise(
        "process_exit",
        "a_client_that_leaves_a_child_behind",
        "left out",
        IN_THE_PARENT,
    ),
    lacks(
        "process_exit",
        "a_client_that_is_killed_before_it_is_accepted",
        "killed: Alarm clock",
        "on Linux 6.1, a server gets no event when a client dies before it is accepted",
    ),
    otherwise("invalid_arguments", "no_device_to_open", CRASH, NO_CRASH),
    otherwise("invalid_arguments", "no_device_to_close", CRASH, NO_CRASH),
    otherwise(
        "invalid_arguments",
        "no_device_for_a_domain",
        CRASH,
        NO_CRASH,
    ),
    otherwise(
        "invalid_arguments",
        "no_device_for_a_channel",
        CRASH,
        NO_CRASH,
    ),
    otherwise(
        "invalid_arguments",
        "no_device_for_a_queue",
        CRASH,
        NO_CRASH,
    ),
    otherwise("invalid_arguments", "no_domain_to_free", CRASH, NO_CRASH),
    otherwise(
        "invalid_arguments",
        "no_queue_pair_to_destroy",
        CRASH,
        NO_CRASH,
    ),
    otherwise("invalid_arguments", "no_list_to_free", CRASH, NO_CRASH),
    otherwise(
        "invalid_arguments",
        "a_queue_pair_without_a_completion_queue",
        CRASH,
        NO_CRASH,
    ),
    lacks(
        "invalid_arguments",
        "an_early_request_is_the_bad_one",
        "ibv_post_send(qp, &wr, &bad) != 0 && bad == &wr",
        "rxe rejects it without saying which one it was",
    ),
    otherwise(
        "invalid_arguments",
        "a_queue_pair_gets_the_length_it_asks_for",
        "init.cap.max_send_wr is 31, not QUEUE_LENGTH",
        "a device may give more; rxe fills a power of two",
    ),
    otherwise(
        "invalid_arguments",
        "an_unspecified_address",
        "gives errno 101, not EINVAL",
        "rdma-core looks for a route to the address; we reject the unspecified address",
    ),
    lacks(
        "connections",
        "a_child_can_open_its_own_channel",
        "(errno 13)",
        "librdmacm uses the devices that the parent opened, and the kernel lets no child post there",
    ),
    otherwise(
        "connections",
        "a_request_moves_with_its_listener",
        "left out",
        NOT_TRIED,
    ),
    lacks(
        "connections",
        "an_xrc_target_needs_no_attributes_of_a_requester",
        "left out",
        NO_XRC,
    ),
    lacks(
        "devices",
        "extended_connections_are_offered",
        "attr.device_cap_flags & IBV_DEVICE_XRC",
        "rxe has no XRC",
    ),
    lacks(
        "devices",
        "device_memory_is_offered",
        "attr.max_dm_size > 0",
        NO_DEVICE_MEMORY,
    ),
    lacks(
        "devices",
        "memory_on_demand_is_offered",
        "attr.odp_caps.general_caps & IBV_ODP_SUPPORT",
        NO_ON_DEMAND,
    ),
    lacks(
        "devices",
        "a_device_has_a_clock",
        "gives 95, not 0",
        "rxe has no clock",
    ),
    lacks(
        "events",
        "the_first_message_establishes_communication",
        "is_readable(right.context->async_fd, EVENT_TIMEOUT)",
        "rxe does not send this event",
    ),
    lacks(
        "events",
        "a_wrong_key_is_an_event_at_the_responder",
        "is_readable(right.context->async_fd, EVENT_TIMEOUT)",
        "rxe does not send this event",
    ),
    lacks(
        "events",
        "a_queue_pair_with_shared_receives_gets_a_last_wqe_event",
        "is_readable(left.context->async_fd, EVENT_TIMEOUT)",
        "rxe does not send this event",
    ),
    lacks(
        "events",
        "a_destroyed_object_has_no_events",
        "is_readable(left.context->async_fd, EVENT_TIMEOUT)",
        "rxe does not send the event that is to be forgotten",
    ),
    otherwise(
        "fork",
        "a_child_gets_no_domain",
        "ibv_alloc_pd(left.context) == NULL",
        IN_THE_PARENT,
    ),
    otherwise(
        "fork",
        "a_child_gets_no_channel",
        "ibv_create_comp_channel(left.context) == NULL",
        IN_THE_PARENT,
    ),
    otherwise(
        "fork",
        "a_child_gets_no_queue",
        "ibv_create_cq(left.context, 1, NULL, NULL, 0) == NULL",
        IN_THE_PARENT,
    ),
    otherwise(
        "fork",
        "a_child_registers_no_memory",
        "ibv_reg_mr(left.pd, left.memory, 16, 0) == NULL",
        IN_THE_PARENT,
    ),
    otherwise(
        "fork",
        "a_child_is_not_notified",
        "ibv_req_notify_cq(left.cq, 0) != 0",
        IN_THE_PARENT,
    ),
    otherwise(
        "fork",
        "a_child_does_not_wait_for_completions",
        "errno != EAGAIN (errno 11)",
        IN_THE_PARENT,
    ),
    otherwise(
        "fork",
        "a_child_does_not_wait_for_events",
        "errno != EAGAIN (errno 11)",
        IN_THE_PARENT,
    ),
    otherwise(
        "fork",
        "a_child_modifies_no_queue_pair",
        "ibv_modify_qp(left.qp, &attr, IBV_QP_STATE) != 0",
        IN_THE_PARENT,
    ),
    otherwise(
        "connection_ids",
        "a_route_needs_an_address",
        CRASH,
        "an id without a device gets EINVAL and does not end the program",
    ),
    otherwise(
        "connection_ids",
        "only_ip_addresses_are_accepted",
        "gives 0",
        "we have no InfiniBand addresses (AF_IB): RoCE uses those of IP",
    ),
    otherwise("connection_ids", "no_id_to_migrate", CRASH, NO_CRASH),
    lacks(
        "memory",
        "memory_without_permission_is_rejected",
        "succeeds",
        "the kernel registers memory that its program may not even read",
    ),
    lacks(
        "memory",
        "on_demand_memory_may_be_mapped_later",
        "mr != NULL (errno 22)",
        NO_ON_DEMAND,
    ),
    lacks(
        "memory",
        "all_memory_can_be_one_region",
        "mr != NULL (errno 22)",
        NO_ON_DEMAND,
    ),
    lacks(
        "memory",
        "on_demand_memory_works_once_mapped",
        "mr != NULL (errno 22)",
        NO_ON_DEMAND,
    ),
    lacks(
        "memory",
        "on_demand_memory_that_became_read_only_is_rejected",
        "mr != NULL (errno 22)",
        NO_ON_DEMAND,
    ),
    lacks(
        "memory",
        "unmapped_local_memory_fails_the_request",
        "mr != NULL (errno 22)",
        NO_ON_DEMAND,
    ),
    lacks(
        "memory",
        "rereg_changes_the_access_rights",
        "gives -4, not 0",
        NO_REREGISTRATION,
    ),
    lacks(
        "memory",
        "rereg_changes_the_address",
        "gives -4, not 0",
        NO_REREGISTRATION,
    ),
    lacks(
        "memory",
        "rereg_to_read_only_memory_needs_a_region_for_reads",
        "is -4, not 0",
        NO_REREGISTRATION,
    ),
    lacks(
        "memory",
        "a_null_region_has_no_memory_to_change",
        "null != NULL (errno 95)",
        "rxe has no null region",
    ),
    lacks(
        "memory",
        "advise_mr_prefetches",
        "gives 95, not 0",
        NO_ADVICE,
    ),
    lacks(
        "memory",
        "advise_mr_outside_of_the_region_is_rejected",
        "gives 95, not EFAULT",
        NO_ADVICE,
    ),
    lacks(
        "memory",
        "advise_mr_needs_a_region_of_the_domain",
        "gives 95, not EPERM",
        NO_ADVICE,
    ),
    lacks(
        "memory",
        "advise_mr_writes_only_what_may_be_written",
        "gives 95, not 0",
        NO_ADVICE,
    ),
    lacks(
        "memory",
        "advise_mr_knows_the_addresses_of_a_region",
        "gives 95, not 0",
        NO_ADVICE,
    ),
    lacks(
        "memory",
        "an_unknown_advice_is_not_supported",
        "gives 95, not EINVAL",
        NO_ADVICE,
    ),
    lacks(
        "memory",
        "device_memory_keeps_its_content",
        "dm != NULL (errno 95)",
        NO_DEVICE_MEMORY,
    ),
    lacks(
        "memory",
        "device_memory_can_be_a_region",
        "dm != NULL (errno 95)",
        NO_DEVICE_MEMORY,
    ),
    lacks(
        "memory",
        "a_null_region_accepts_writes",
        "null != NULL (errno 95)",
        "rxe has no null regions",
    ),
    lacks(
        "memory",
        "a_write_beyond_a_window_fails",
        "is 0, not IBV_WC_REM_ACCESS_ERR",
        "rxe of Linux 6.1 lets a write reach beyond its window, inside of the region",
    ),
    lacks(
        "post_and_poll",
        "an_rc_completion_has_no_grh",
        "wc_flags is 1, not 0",
        "rxe marks every message as one with a route (GRH), as only datagrams have",
    ),
    lacks(
        "post_and_poll",
        "a_wrong_local_key_breaks_the_queue_pair",
        "is 2, not IBV_WC_LOC_PROT_ERR",
        "rxe calls it a local operation error; the specification, a local protection error",
    ),
    lacks(
        "post_and_poll",
        "ibv_wr_sends_inline_data",
        "byte_len is 0, not 7",
        "rdma-core's library for rxe sends no inline data that is posted with `ibv_wr_*`",
    ),
    lacks(
        "post_and_poll",
        "completions_have_a_timestamp",
        "cq != NULL (errno 95)",
        "rxe has no timestamps",
    ),
    lacks(
        "post_and_poll",
        "a_flush_completes_after_its_write",
        "(errno 95)",
        "rdma-core of that age has no flush",
    ),
    lacks("rsocket", "a_long_stream_echoes", "left out", HANGS),
    lacks(
        "rsocket",
        "a_long_stream_with_small_buffers_echoes",
        "left out",
        HANGS,
    ),
    otherwise(
        "rsocket",
        "readv_fills_all_parts",
        "rreadv(accepted, parts, 2) == 9",
        "rdma-core's fills the first part only, which a stream may do; we fill all",
    ),
    otherwise(
        "rsocket",
        "several_buffers_are_one_message",
        "left out",
        ONE_BUFFER,
    ),
    otherwise(
        "rsocket",
        "after_shutdown_a_send_fails",
        "rsend(client, \"more\", 4, 0) == -1",
        "rdma-core's accepts data after a shutdown; we reject it, as sockets do",
    ),
    otherwise(
        "rsocket",
        "a_closed_socket_is_ebadf",
        "rclose(socket) gives 9",
        "rdma-core's returns the number of the error; we set errno, as sockets do",
    ),
    otherwise(
        "rsocket",
        "the_error_of_a_broken_stream_is_read_once",
        "left out",
        PINNED,
    ),
    lacks(
        "rsocket",
        "datagrams_are_echoed",
        "connect_to(client, port_of(accepted)) == 0",
        NO_DATAGRAMS,
    ),
    lacks(
        "rsocket",
        "the_first_datagram_may_be_as_long_as_the_next",
        "connect_to(client, port_of(accepted)) == 0",
        NO_DATAGRAMS,
    ),
    lacks(
        "rsocket",
        "a_datagram_that_is_too_long_fails",
        "connect_to(client, port_of(accepted)) == 0",
        NO_DATAGRAMS,
    ),
];

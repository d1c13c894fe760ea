//! The values of `enum ibv_wc_status`.

super::table! {
    Completion;
    0 "IBV_WC_SUCCESS" ("Status::Success")
        "The work request is done."
        [NORMAL];
    1 "IBV_WC_LOC_LEN_ERR" ("Status::LocalLength")
        "A local length is wrong: a message did not fit into the receive posted for it, or a datagram \
         is longer than one packet."
        [RECEIVE_TOO_SMALL, DATAGRAM_TOO_LONG];
    2 "IBV_WC_LOC_QP_OP_ERR" ("Status::LocalOperation")
        "The queue pair met an inconsistency of its own while it worked on the request."
        [NO_READS_ALLOWED, WINDOW_REFUSED, INCONSISTENT];
    3 "IBV_WC_LOC_EEC_OP_ERR"
        "An end-to-end context met an inconsistency. Only reliable datagrams have such contexts."
        [NOT_HERE];
    4 "IBV_WC_LOC_PROT_ERR" ("Status::LocalProtection")
        "A segment of the request names memory that the queue pair may not use like that."
        [OTHER_LOCAL_DOMAIN, UNKNOWN_LOCAL_KEY, LOCAL_BOUNDS, NOT_WRITABLE_HERE];
    5 "IBV_WC_WR_FLUSH_ERR" ("Status::Flushed")
        "The request was outstanding when the queue pair went to the error state, or was posted after \
         that. It says nothing about the cause."
        [FLUSHED];
    6 "IBV_WC_MW_BIND_ERR" ("Status::WindowBind")
        "A memory window could not be bound."
        [WINDOW_REFUSED];
    7 "IBV_WC_BAD_RESP_ERR" ("Status::BadResponse")
        "The peer answered with a packet that makes no sense here."
        [BAD_ANSWER];
    8 "IBV_WC_LOC_ACCESS_ERR" ("Status::LocalAccess")
        "Local memory could not be used while a peer's operation was carried out."
        [RECEIVE_UNUSABLE];
    9 "IBV_WC_REM_INV_REQ_ERR" ("Status::RemoteInvalidRequest")
        "The peer finds the request invalid, and says so with NAK 0x61."
        [RECEIVE_TOO_SMALL, QUEUE_PAIR_FORBIDS, TOO_MANY_READS, UNALIGNED_ATOMIC, MALFORMED_REQUEST,
         BAD_INVALIDATE];
    10 "IBV_WC_REM_ACCESS_ERR" ("Status::RemoteAccess")
        "The peer's memory may not be used like that: it says so with NAK 0x62 and knows why; run it with \
         ROCI_EXPLAIN=1 too."
        [UNKNOWN_REMOTE_KEY, MEMORY_FORBIDS, REMOTE_BOUNDS, OTHER_REMOTE_DOMAIN, OTHER_WINDOW_OWNER,
         BAD_INVALIDATE];
    11 "IBV_WC_REM_OP_ERR" ("Status::RemoteOperation")
        "The peer could not carry the request out, by its own fault, and says so with NAK 0x63."
        [RECEIVE_UNUSABLE];
    12 "IBV_WC_RETRY_EXC_ERR" ("Status::RetriesExhausted")
        "The peer did not acknowledge, as often as the request was sent: after `timeout`, `retry_cnt` \
         times again."
        [NOBODY_THERE, UNKNOWN_QUEUE_PAIR, PEER_NOT_READY, WRONG_PSN, TOO_LONG_FOR_LINK, SILENCE,
         UNREACHABLE_FROM_GID, NOT_SENT, PEER_BROKEN, WRONG_PEER, NOT_THERE_NOW, LOSS];
    13 "IBV_WC_RNR_RETRY_EXC_ERR" ("Status::ReceiverNotReady")
        "The peer had no receive posted, as often as it was tried: it answered with NAK 0x20 (RNR), \
         `rnr_retry` times more than once."
        [NO_RECEIVE];
    14 "IBV_WC_LOC_RDD_VIOL_ERR"
        "A reliable datagram domain was violated. Nobody has reliable datagrams any more."
        [NOT_HERE];
    15 "IBV_WC_REM_INV_RD_REQ_ERR"
        "The peer finds a reliable datagram invalid. Nobody has reliable datagrams any more."
        [NOT_HERE];
    16 "IBV_WC_REM_ABORT_ERR"
        "The peer aborted the operation. Only reliable datagrams and XRC of some devices say this."
        [NOT_HERE];
    17 "IBV_WC_INV_EECN_ERR"
        "An end-to-end context number is invalid. Only reliable datagrams have such contexts."
        [NOT_HERE];
    18 "IBV_WC_INV_EEC_STATE_ERR"
        "An end-to-end context is in the wrong state. Only reliable datagrams have such contexts."
        [NOT_HERE];
    19 "IBV_WC_FATAL_ERR"
        "The device itself failed."
        [NOT_HERE];
    20 "IBV_WC_RESP_TIMEOUT_ERR"
        "A response to a request did not come in time. Devices with their own transports say this."
        [NOT_HERE];
    21 "IBV_WC_GENERAL_ERR" ("Status::General")
        "Something went wrong that has no status of its own."
        [ACT_ON_FIRST_ERROR];
    22 "IBV_WC_TM_ERR"
        "Tag matching failed."
        [NOT_HERE];
    23 "IBV_WC_TM_RNDV_INCOMPLETE"
        "Tag matching left the rest of a rendezvous to the software."
        [NOT_HERE];
}

//! The values of `enum ibv_wc_status`.

super::table! {
    Completion;
    0 "IBV_WC_SUCCESS" ("Status::Success")
        "The work request completed successfully."
        [NORMAL];
    1 "IBV_WC_LOC_LEN_ERR" ("Status::LocalLength")
        "A local length is wrong: a message is longer than its receive, or a datagram is longer \
         than one packet."
        [RECEIVE_TOO_SMALL, DATAGRAM_TOO_LONG];
    2 "IBV_WC_LOC_QP_OP_ERR" ("Status::LocalOperation")
        "The local queue pair could not execute the request."
        [NO_READS_ALLOWED, WINDOW_REFUSED, INCONSISTENT];
    3 "IBV_WC_LOC_EEC_OP_ERR"
        "A local end-to-end context failed. Only reliable datagrams have such contexts."
        [NOT_HERE];
    4 "IBV_WC_LOC_PROT_ERR" ("Status::LocalProtection")
        "A segment of the request refers to memory that the queue pair may not access in this way."
        [OTHER_LOCAL_DOMAIN, UNKNOWN_LOCAL_KEY, LOCAL_BOUNDS, NOT_WRITABLE_HERE];
    5 "IBV_WC_WR_FLUSH_ERR" ("Status::Flushed")
        "The request was outstanding when the queue pair went to the error state, or was posted \
         after that. It does not show the cause."
        [FLUSHED];
    6 "IBV_WC_MW_BIND_ERR" ("Status::WindowBind")
        "A memory window could not be bound."
        [WINDOW_REFUSED];
    7 "IBV_WC_BAD_RESP_ERR" ("Status::BadResponse")
        "The peer sent an unexpected response."
        [BAD_ANSWER];
    8 "IBV_WC_LOC_ACCESS_ERR" ("Status::LocalAccess")
        "The device could not access local memory while it executed an operation of the peer: a \
         WRITE with immediate data, which would have used this receive."
        [UNKNOWN_REMOTE_KEY, MEMORY_FORBIDS, REMOTE_BOUNDS, OTHER_REMOTE_DOMAIN, OTHER_WINDOW_OWNER];
    9 "IBV_WC_REM_INV_REQ_ERR" ("Status::RemoteInvalidRequest")
        "The peer rejected the request as invalid, with NAK 0x61."
        [RECEIVE_TOO_SMALL, QUEUE_PAIR_FORBIDS, TOO_MANY_READS, UNALIGNED_ATOMIC, MALFORMED_REQUEST,
         BAD_INVALIDATE];
    10 "IBV_WC_REM_ACCESS_ERR" ("Status::RemoteAccess")
        "The peer does not allow this access to its memory, and rejected it with NAK 0x62. Run the \
         peer with ROCI_EXPLAIN=1, too: it knows the reason."
        [UNKNOWN_REMOTE_KEY, MEMORY_FORBIDS, REMOTE_BOUNDS, OTHER_REMOTE_DOMAIN, OTHER_WINDOW_OWNER,
         BAD_INVALIDATE];
    11 "IBV_WC_REM_OP_ERR" ("Status::RemoteOperation")
        "The peer could not execute the request because of an error of its own, and reported it \
         with NAK 0x63."
        [RECEIVE_UNUSABLE];
    12 "IBV_WC_RETRY_EXC_ERR" ("Status::RetriesExhausted")
        "The peer did not acknowledge the request. The device retried it `retry_cnt` times, after \
         one, two, then four times `timeout`."
        [NO_PROCESS_AT_ADDRESS, UNKNOWN_QUEUE_PAIR, PEER_NOT_READY, WRONG_PSN, TOO_LONG_FOR_LINK, SILENCE,
         UNREACHABLE_FROM_GID, NOT_SENT, PEER_BROKEN, WRONG_PEER, NOT_THERE_NOW,
         PEER_ENDED, LOSS];
    13 "IBV_WC_RNR_RETRY_EXC_ERR" ("Status::ReceiverNotReady")
        "The peer had no receive posted. It answered the request and its `rnr_retry` retries with \
         NAK 0x20 (RNR)."
        [NO_RECEIVE];
    14 "IBV_WC_LOC_RDD_VIOL_ERR"
        "A reliable datagram domain was violated. Current devices have no reliable datagrams."
        [NOT_HERE];
    15 "IBV_WC_REM_INV_RD_REQ_ERR"
        "The peer rejected a reliable datagram as invalid. Current devices have no reliable datagrams."
        [NOT_HERE];
    16 "IBV_WC_REM_ABORT_ERR"
        "The peer aborted the operation. Only reliable datagrams, and XRC on some devices, report this."
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
        "A response did not arrive in time. Devices with other transports report this."
        [NOT_HERE];
    21 "IBV_WC_GENERAL_ERR" ("Status::General")
        "An error without a specific status."
        [ACT_ON_FIRST_ERROR];
    22 "IBV_WC_TM_ERR"
        "Tag matching failed."
        [NOT_HERE];
    23 "IBV_WC_TM_RNDV_INCOMPLETE"
        "Tag matching left the rest of a rendezvous to the software."
        [NOT_HERE];
}

//! The values of `enum ibv_event_type`.

super::table! {
    Event;
    0 "IBV_EVENT_CQ_ERR" ("AsyncEvent::CompletionQueueError")
        "A completion queue overflowed: completions are lost, and all its queue pairs are in the \
         error state."
        [COMPLETIONS_OVERRAN];
    1 "IBV_EVENT_QP_FATAL" ("AsyncEvent::QueuePairFatal")
        "A queue pair had an error that belongs to no work request, and is in the error state."
        [RECEIVE_UNUSABLE, RECEIVE_TOO_SMALL];
    2 "IBV_EVENT_QP_REQ_ERR" ("AsyncEvent::RequestError")
        "The peer sent an invalid request. The queue pair answered with NAK 0x61 and is in the \
         error state."
        [RECEIVE_TOO_SMALL, QUEUE_PAIR_FORBIDS, TOO_MANY_READS, UNALIGNED_ATOMIC, MALFORMED_REQUEST];
    3 "IBV_EVENT_QP_ACCESS_ERR" ("AsyncEvent::AccessError")
        "The peer requested an access to memory that is not allowed. The queue pair answered with \
         NAK 0x62 and is in the error state (C9-222.1.1)."
        [UNKNOWN_REMOTE_KEY, MEMORY_FORBIDS, REMOTE_BOUNDS, OTHER_REMOTE_DOMAIN, OTHER_WINDOW_OWNER];
    4 "IBV_EVENT_COMM_EST" ("AsyncEvent::CommunicationEstablished")
        "The first packet of the peer arrived while the queue pair was still in RTR: the \
         connection is established, even if the last message of the handshake (RTU) is late."
        [NORMAL];
    5 "IBV_EVENT_SQ_DRAINED" ("AsyncEvent::SendQueueDrained")
        "A send queue in the state SQD has completed the requests that it had begun."
        [NORMAL];
    6 "IBV_EVENT_PATH_MIG"
        "A connection moved to its alternate path."
        [NOT_HERE];
    7 "IBV_EVENT_PATH_MIG_ERR"
        "A connection could not move to its alternate path."
        [NOT_HERE];
    8 "IBV_EVENT_DEVICE_FATAL"
        "The device itself failed."
        [NOT_HERE];
    9 "IBV_EVENT_PORT_ACTIVE" ("AsyncEvent::PortActive")
        "A port came up."
        [NORMAL];
    10 "IBV_EVENT_PORT_ERR" ("AsyncEvent::PortError")
        "A port went down."
        [PORT_DOWN];
    11 "IBV_EVENT_LID_CHANGE"
        "The port got another LID. RoCE has no LIDs."
        [NOT_HERE];
    12 "IBV_EVENT_PKEY_CHANGE"
        "The table of partition keys changed."
        [NOT_HERE];
    13 "IBV_EVENT_SM_CHANGE"
        "Another subnet manager took over. RoCE has none."
        [NOT_HERE];
    14 "IBV_EVENT_SRQ_ERR"
        "A shared receive queue failed."
        [NOT_HERE];
    15 "IBV_EVENT_SRQ_LIMIT_REACHED" ("AsyncEvent::SharedReceiveLimit")
        "A shared receive queue fell below its limit: post more receives, and arm the limit again."
        [NORMAL];
    16 "IBV_EVENT_QP_LAST_WQE_REACHED" ("AsyncEvent::LastReceiveReached")
        "A queue pair in the error state takes no more receives from its shared receive queue: it \
         can be destroyed without losing a receive."
        [NORMAL];
    17 "IBV_EVENT_CLIENT_REREGISTER"
        "The subnet manager requests that clients register again. RoCE has none."
        [NOT_HERE];
    18 "IBV_EVENT_GID_CHANGE"
        "A row of the GID table changed: an address was added or removed."
        [ADDRESS_CHANGED];
    19 "IBV_EVENT_WQ_FATAL"
        "A work queue of raw packets failed."
        [NOT_HERE];
}

//! The values of `enum ibv_event_type`.

super::table! {
    Event;
    0 "IBV_EVENT_CQ_ERR" ("AsyncEvent::CompletionQueueError")
        "A completion queue overran: completions are lost, and all its queue pairs are in the error state."
        [COMPLETIONS_OVERRAN];
    1 "IBV_EVENT_QP_FATAL" ("AsyncEvent::QueuePairFatal")
        "A queue pair met an error that no work request can tell, and is in the error state."
        [RECEIVE_UNUSABLE, RECEIVE_TOO_SMALL];
    2 "IBV_EVENT_QP_REQ_ERR" ("AsyncEvent::RequestError")
        "The peer sent a request that this queue pair finds invalid. It was answered with NAK 0x61, and \
         the queue pair is in the error state."
        [RECEIVE_TOO_SMALL, QUEUE_PAIR_FORBIDS, TOO_MANY_READS, UNALIGNED_ATOMIC, MALFORMED_REQUEST];
    3 "IBV_EVENT_QP_ACCESS_ERR" ("AsyncEvent::AccessError")
        "The peer wanted memory that it may not use like that. It was answered with NAK 0x62, and the \
         queue pair is in the error state (C9-222.1.1)."
        [UNKNOWN_REMOTE_KEY, MEMORY_FORBIDS, REMOTE_BOUNDS, OTHER_REMOTE_DOMAIN, OTHER_WINDOW_OWNER];
    4 "IBV_EVENT_COMM_EST" ("AsyncEvent::CommunicationEstablished")
        "The first packet came from the peer while the queue pair was still in RTR: the connection \
         stands, even if the peer's last word of the handshake is late."
        [NORMAL];
    5 "IBV_EVENT_SQ_DRAINED" ("AsyncEvent::SendQueueDrained")
        "A send queue that was told to drain (SQD) has finished what was begun."
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
    9 "IBV_EVENT_PORT_ACTIVE"
        "A port came up."
        [NORMAL];
    10 "IBV_EVENT_PORT_ERR"
        "A port went down."
        [NO_ROUTE];
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
        "A shared receive queue fell below the limit that it was given: post more receives, and arm the \
         limit again."
        [NORMAL];
    16 "IBV_EVENT_QP_LAST_WQE_REACHED" ("AsyncEvent::LastReceiveReached")
        "A queue pair in the error state takes nothing more from its shared receive queue: it can be \
         destroyed without losing a receive."
        [NORMAL];
    17 "IBV_EVENT_CLIENT_REREGISTER"
        "The subnet manager asks for all subscriptions again. RoCE has none."
        [NOT_HERE];
    18 "IBV_EVENT_GID_CHANGE"
        "A row of the GID table changed: an address came or went."
        [EMPTY_GID];
    19 "IBV_EVENT_WQ_FATAL"
        "A work queue of raw packets failed."
        [NOT_HERE];
}

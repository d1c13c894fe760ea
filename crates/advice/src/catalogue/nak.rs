//! Syndromes of acknowledgements that refuse.

super::table! {
    Nak;
    0x20 "RNR NAK" ("Syndrome::ReceiverNotReady")
        "Receiver not ready, 0x20 to 0x3f: the lower five bits say how long the requester must wait \
         before it tries again. It does, `rnr_retry` times."
        [NO_RECEIVE];
    0x60 "PSN sequence error" ("NakCode::SequenceError")
        "A packet is missing: the responder got a later one and tells the number that it expects. The \
         requester goes back to that number. One of these for each gap."
        [LOSS, WRONG_PSN];
    0x61 "invalid request" ("NakCode::InvalidRequest")
        "The responder can't make sense of the request, and the connection is over. The requester \
         completes with status 9, the responder gets event 2."
        [RECEIVE_TOO_SMALL, QUEUE_PAIR_FORBIDS, TOO_MANY_READS, UNALIGNED_ATOMIC, MALFORMED_REQUEST];
    0x62 "remote access error" ("NakCode::RemoteAccess")
        "The responder's memory may not be used like that, and the connection is over. The requester \
         completes with status 10, the responder gets event 3."
        [UNKNOWN_REMOTE_KEY, MEMORY_FORBIDS, REMOTE_BOUNDS, OTHER_REMOTE_DOMAIN, OTHER_WINDOW_OWNER];
    0x63 "remote operational error" ("NakCode::RemoteOperational")
        "The responder could not carry the request out, by its own fault. The requester completes with \
         status 11. The kernel's Soft-RoCE also says this for a SEND that is longer than its receive."
        [RECEIVE_UNUSABLE, RECEIVE_TOO_SMALL];
    0x64 "invalid RD request" ("NakCode::InvalidRdRequest")
        "A reliable datagram was invalid. Nobody has reliable datagrams any more."
        [NOT_HERE];
}

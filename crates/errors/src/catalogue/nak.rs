//! Syndromes of negative acknowledgements.

super::table! {
    Nak;
    0x20 "RNR NAK" ("Syndrome::ReceiverNotReady")
        "Receiver not ready, 0x20 to 0x3f: the lower five bits say how long the requester must \
         wait before it retries. It retries `rnr_retry` times."
        [NO_RECEIVE];
    0x60 "PSN sequence error" ("NakCode::SequenceError")
        "A packet is missing: the responder received a later one, and names the PSN that it \
         expects. The requester retransmits from this PSN. The responder sends one such NAK for \
         each gap."
        [LOSS, WRONG_PSN];
    0x61 "invalid request" ("NakCode::InvalidRequest")
        "The request is invalid, and the connection ends. The requester completes with status 9, \
         the responder gets event 2."
        [RECEIVE_TOO_SMALL, QUEUE_PAIR_FORBIDS, TOO_MANY_READS, UNALIGNED_ATOMIC, MALFORMED_REQUEST];
    0x62 "remote access error" ("NakCode::RemoteAccess")
        "The responder does not allow this access to its memory, and the connection ends. The \
         requester completes with status 10, the responder gets event 3."
        [UNKNOWN_REMOTE_KEY, MEMORY_FORBIDS, REMOTE_BOUNDS, OTHER_REMOTE_DOMAIN, OTHER_WINDOW_OWNER];
    0x63 "remote operational error" ("NakCode::RemoteOperational")
        "The responder could not execute the request because of an error of its own. The requester \
         completes with status 11. The kernel's Soft-RoCE also sends this for a SEND that is \
         longer than its receive."
        [RECEIVE_UNUSABLE, RECEIVE_TOO_SMALL];
    0x64 "invalid RD request" ("NakCode::InvalidRdRequest")
        "A reliable datagram was invalid. Current devices have no reliable datagrams."
        [NOT_HERE];
}

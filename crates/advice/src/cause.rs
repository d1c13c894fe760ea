//! What goes wrong, one by one. Who knows that it was this one names it.

use crate::Cause;

macro_rules! causes {
    ($($name:ident: $reason:literal, $remedy:literal;)+) => { $(
        #[doc = $reason]
        pub static $name: Cause = Cause { reason: $reason, remedy: $remedy };
    )+ };
}

// Changing a queue pair.
causes! {
    NO_GLOBAL_ROUTE:
        "The address has no global route (GRH).",
        "RoCE has only global addresses: set `is_global` to 1, `grh.dgid` to the peer's GID and \
         `grh.sgid_index` to a row of your own GID table; example programs take it as `-g INDEX` or \
         `-x INDEX`, and `roci gids` says which.";
    EMPTY_GID:
        "The row of the GID table that `sgid_index` names is empty.",
        "Choose a row that has an address: `roci gids` lists them.";
    UNREACHABLE_FROM_GID:
        "The row of the GID table that `sgid_index` names has an address from which the peer can't be reached.",
        "Choose the row whose address is of the peer's family and in its network: `roci gids` lists them.";
    MISSING_ATTRIBUTES:
        "The attribute mask lacks something that this transition needs.",
        "Fill in these attributes, and set their bits in the mask.";
    SURPLUS_ATTRIBUTES:
        "The attribute mask has something that this transition does not take.",
        "Take these bits out of the mask; what they name was set by an earlier transition, or is not for \
         this kind of queue pair.";
    NO_SUCH_TRANSITION:
        "There is no way from the one state to the other.",
        "Go RESET, INIT, RTR, RTS, one step at a time; RESET can be reached from everywhere, ERR from \
         everywhere but RESET.";
    OTHER_STATE:
        "The queue pair is not in the state that `cur_qp_state` says.",
        "Leave `IBV_QP_CUR_STATE` out, or ask with `ibv_query_qp` first: an error may have moved it.";
    MTU_ABOVE_PORT:
        "The path MTU is larger than what the interface carries.",
        "Give `path_mtu` the smaller `active_mtu` of the two ends (`ibv_query_port`, `roci devinfo`), or \
         raise the interface's MTU at both ends.";
    VALUE_OUT_OF_RANGE:
        "A value is outside of what the device can do.",
        "Look at the limits of `ibv_query_device`; port is 1, P_Key index 0, retry counts are 0 to 7, \
         timeouts 0 to 31.";
    UNKNOWN_ATTRIBUTE:
        "The mask has a bit that this device knows nothing of.",
        "Take it out: rates can't be limited and queues can't be resized here.";
}

// Posting.
causes! {
    POSTED_TOO_EARLY:
        "The queue pair is not yet in a state that takes the request.",
        "Receives can be posted from INIT on, sends only in RTS: finish the transitions first.";
    QUEUE_FULL:
        "The queue has no free slot.",
        "Poll completions before posting more, and signal at least one send in each queue's length: \
         the slots of unsignaled ones are free only after a signaled one has completed. Or create the \
         queue larger (`max_send_wr`, `max_recv_wr`).";
    TOO_MANY_SEGMENTS:
        "The request has more segments than the queue was created for.",
        "Create the queue pair with a larger `max_send_sge` or `max_recv_sge`.";
    INLINE_TOO_LONG:
        "The data is longer than what the queue takes inline.",
        "Create the queue pair with a larger `max_inline_data`, or send without IBV_SEND_INLINE.";
    MESSAGE_TOO_LONG:
        "The message is longer than 2^31 bytes.",
        "Cut it into several.";
    WRONG_SERVICE:
        "This kind of queue pair can't do that work.",
        "READ and atomics need RC, WRITE needs RC or UC, datagrams (UD) can only be sent; \
         a target of XRC sends nothing.";
    WRONG_DESTINATION:
        "A datagram came without an address handle, or another request with one.",
        "Fill in `wr.ud` (address handle, QPN, Q_Key) for UD, `remote_srqn` for XRC, and neither for others.";
    ATOMIC_SHAPE:
        "An atomic works on eight aligned bytes.",
        "Give it a remote address that is a multiple of 8 and a local segment of 8 bytes.";
    SHARED_RECEIVE:
        "The queue pair receives from a shared receive queue.",
        "Post to that one (`ibv_post_srq_recv`).";
}

// Memory of one's own.
causes! {
    NEEDS_LOCAL_WRITE:
        "Memory that peers may write or do atomics on must be writable here as well.",
        "Register it with IBV_ACCESS_LOCAL_WRITE too.";
    REGISTRATION_REFUSED:
        "The memory can't be registered, changed or released like that.",
        "Look at address, length and access flags, and at windows that are still bound to it.";
    UNKNOWN_LOCAL_KEY:
        "No registered memory has the local key.",
        "Use `lkey` of a memory region that is still registered; it is not the `rkey` of the peer, and \
         ends with `ibv_dereg_mr`.";
    OTHER_LOCAL_DOMAIN:
        "The memory was registered in another protection domain than the queue pair's.",
        "Register it in the queue pair's protection domain, or create the queue pair in the memory's.";
    LOCAL_BOUNDS:
        "The segment reaches outside of the registered memory.",
        "Compare `addr` and `length` of the segment with what was registered.";
    NOT_WRITABLE_HERE:
        "The device is to write into memory that was registered without local write access.",
        "Register buffers for receives, READs and atomics with IBV_ACCESS_LOCAL_WRITE.";
}

// Memory of the peer.
causes! {
    UNKNOWN_REMOTE_KEY:
        "The remote key opens nothing at the responder.",
        "Send the peer `rkey` of a region that is still registered (in the right byte order), and let it \
         use that; a memory window's key changes when it is bound.";
    OTHER_REMOTE_DOMAIN:
        "The memory was registered in another protection domain than the responder's queue pair.",
        "At the responder, register it in the protection domain of the queue pair that the peer is \
         connected to.";
    REMOTE_BOUNDS:
        "The request reaches outside of the registered memory.",
        "Compare remote address and length with what the responder registered; addresses are the \
         responder's own, unless the region is zero-based.";
    MEMORY_FORBIDS:
        "The memory was registered without the right that the operation needs.",
        "At the responder, register it with that right (and IBV_ACCESS_LOCAL_WRITE beside write and atomic).";
    QUEUE_PAIR_FORBIDS:
        "The responder's queue pair was never told that its peer may do this.",
        "At the responder, give the right in `qp_access_flags` when going to INIT, besides the region's own.";
    OTHER_WINDOW_OWNER:
        "The memory window is bound through another queue pair.",
        "A type 2 window serves only the queue pair that bound it: bind one through each.";
    UNALIGNED_ATOMIC:
        "The remote address of an atomic is not a multiple of 8.",
        "Align it.";
    TOO_MANY_READS:
        "The peer has more READs and atomics under way than the responder agreed to.",
        "The requester's `max_rd_atomic` must not exceed the responder's `max_dest_rd_atomic`.";
    NO_READS_ALLOWED:
        "The queue pair was told to have no READs or atomics under way (`max_rd_atomic` is 0).",
        "Set `max_rd_atomic` to 1 or more when going to RTS.";
    ASK_ABOUT_MEMORY:
        "The responder knows what is wrong with the memory.",
        "Run the responder with ROCI_EXPLAIN=1 as well. Mostly the rkey is wrong or stale, the range leaves \
         the region, or the region's access flags lack a right.";
    ASK_ABOUT_REQUEST:
        "The responder knows what is wrong with the request.",
        "Run the responder with ROCI_EXPLAIN=1 as well. A SEND is mostly longer than its receive; for others, \
         the responder's `qp_access_flags` or `max_dest_rd_atomic` don't allow it.";
    ASK_ABOUT_RECEIVE:
        "The responder knows what is wrong with its receive.",
        "Run the responder with ROCI_EXPLAIN=1 as well. Mostly its receive names memory that can't be written.";
    MALFORMED_REQUEST:
        "The request's packets don't fit together: lengths, order or opcode.",
        "Both ends must have the same path MTU; if they do, look at a capture with `roci explain`.";
}

// Receives.
causes! {
    NO_RECEIVE:
        "The receiver had no receive posted when a SEND, or a WRITE with immediate, arrived.",
        "Post receives before the peer can send (while in INIT), and post a new one for each that \
         completes; or raise `rnr_retry` (7 tries for ever) and `min_rnr_timer`.";
    RECEIVE_TOO_SMALL:
        "The message is longer than the receive it was to go into.",
        "Post receives as large as the largest message; datagrams need 40 bytes more, for the GRH.";
    RECEIVE_UNUSABLE:
        "The receive names memory that can't be written.",
        "At the receiver, look at the key, the bounds and IBV_ACCESS_LOCAL_WRITE of the receive's segments.";
    BAD_INVALIDATE:
        "A SEND asked to invalidate a key that can't be invalidated.",
        "Only a type 2 window can, and only through the queue pair that bound it.";
}

// Peers that don't answer.
causes! {
    NOBODY_THERE:
        "Nobody serves the RoCE port (UDP 4791) at that address.",
        "Start the peer first, and compare the GID that it told with `roci gids` there.";
    NOT_THERE_NOW:
        "The peer answered before and does not any more.",
        "Did its process end, or destroy the queue pair? Otherwise look for lost packets: \
         `roci explain` reads a capture of either end.";
    UNKNOWN_QUEUE_PAIR:
        "The peer has no queue pair of that number.",
        "Compare `dest_qp_num` with the number that the peer told (`qp_num`; in decimal or hexadecimal?), \
         and let it keep the queue pair until you are done.";
    PEER_NOT_READY:
        "The peer's queue pair is not ready to receive.",
        "Both ends go to RTR before either sends: exchange a word after RTR.";
    PEER_BROKEN:
        "The peer's queue pair is in the error state.",
        "The first failed completion at the peer says why.";
    WRONG_PSN:
        "The two ends don't agree on the first packet sequence number.",
        "`rq_psn` of each end must be the other's `sq_psn`.";
    WRONG_PEER:
        "The queue pair is connected with somebody else.",
        "Compare `dest_qp_num` and GIDs of the two ends: each must name the other, by the address it \
         really sends from.";
    TOO_LONG_FOR_LINK:
        "Packets are longer than the MTU of the way.",
        "Choose a smaller `path_mtu`, or raise the MTU of the interfaces: a path MTU of 4096 needs 4176 \
         bytes, 1024 needs 1104.";
    NOT_SENT:
        "The kernel does not send the packets.",
        "Look at the route and the firewall between the two addresses.";
    SILENCE:
        "Packets leave, and nothing comes back.",
        "Is UDP port 4791 let through both ways (firewalls, security groups), and is the peer's queue pair \
         connected back to this one's number and GID? A timeout of 14 and a retry count of 7 give it \
         some two seconds.";
    LOSS:
        "Too many packets are lost on the way.",
        "Look at drops of the interfaces and socket buffers (`roci doctor`), or raise `timeout` and \
         `retry_cnt`.";
    BAD_ANSWER:
        "The peer answered something that does not fit the request.",
        "Both ends must have the same path MTU; otherwise it is a bug of one of them: keep a capture.";
}

// Queues, datagrams and the rest.
causes! {
    COMPLETIONS_OVERRAN:
        "More completions came than the completion queue holds.",
        "Create it with room for all sends and receives that can be outstanding on all its queue pairs, \
         and poll it until it is empty.";
    WRONG_QUEUE_KEY:
        "The datagram carries another Q_Key than the receiving queue pair has.",
        "Give the sender (`wr.ud.remote_qkey`) the Q_Key that the receiver set when going to INIT.";
    DATAGRAM_TOO_LONG:
        "A datagram is longer than one packet.",
        "Send at most `active_mtu` bytes per datagram, or use a connection.";
    FLUSHED:
        "The queue pair went to the error state before the request's turn came.",
        "Look for the first completion of this queue pair that is not flushed: it has the cause. After a \
         disconnect, flushed receives are normal.";
    WINDOW_REFUSED:
        "The memory window can't be bound or invalidated like that.",
        "The region needs IBV_ACCESS_MW_BIND (and local write, if peers may write), the range must be \
         inside, and a bound type 2 window must be invalidated first.";
    INCONSISTENT:
        "The queue pair can't do what was asked of it in its present condition.",
        "Look at its attributes with `ibv_query_qp`.";
    NORMAL:
        "This is part of normal life.",
        "Nothing to do.";
    NOT_HERE:
        "Only other kinds of devices or services say this; Rocinante never does.",
        "Look at the documentation of the device.";
    ACT_ON_FIRST_ERROR:
        "Something else went wrong before.",
        "Look at the first failed completion and the events before this one.";
}

// Finding and meeting peers.
causes! {
    NO_ROUTE:
        "The kernel knows no way to the address.",
        "Check it with `ip route get ADDRESS`: is it the peer's address, and is the interface up?";
    NO_DEVICE:
        "No RDMA device has the address that the way begins at.",
        "`roci devices` and `roci gids` show the devices there are; ROCI_DEVICES and `roci link` say which \
         there should be.";
    CANNOT_OPEN:
        "The device can't be opened.",
        "`roci doctor` finds out why.";
    PEER_SILENT:
        "The peer never answered the connection request.",
        "Does the server run, on that very address? Is UDP port 4791 let through? Servers on other \
         machines need an RDMA device too: a plain TCP server does not count.";
    NOBODY_LISTENS:
        "The peer is there, but nobody listens on that port.",
        "Start the server first, and compare port and port space (`rdma_listen`, `-p PORT`).";
    PEER_REFUSED:
        "The server's application said no.",
        "Its reasons are its own: look at its output, and at the private data of the event.";
    PEER_GONE:
        "The peer gave up waiting, or its side of the connection ended.",
        "Look at the other end's output; was the answer late?";
    UNSUPPORTED_BY_PEER:
        "The peer can't do what the request asks for.",
        "Compare kinds of queue pairs, resources and MTU of the two ends.";
    STALE_CONNECTION:
        "The peer still remembers an old connection of this queue pair.",
        "Try again in a few seconds, or with a new queue pair.";
    EXHAUSTED:
        "There is no room for another object, or a size is too large.",
        "Destroy something, or ask for less: `ibv_query_device` shows the limits.";
    IN_USE:
        "Other objects still stand on it.",
        "Destroy them first: queue pairs before completion queues, regions before protection domains.";
    ADDRESS_TAKEN:
        "Another user's process, or a kernel device, has UDP port 4791 or the service at that address.",
        "Use another address (ROCI_DEVICES), or another port; `roci doctor` names who it is.";
    ADDRESS_NOT_OURS:
        "The address is not one of this machine.",
        "Bind to one that `roci gids` lists, or to none in particular.";
    NOTHING_YET:
        "There is nothing to give out at the moment, and the descriptor does not block.",
        "Wait with `poll` until it is readable.";
    EMPTY_ROW:
        "The row of the table is empty.",
        "Only the rows that `roci gids` lists have something.";
    UNSUPPORTED:
        "The device does not have this.",
        "`crates/capi/MATRIX.md` lists what there is; most programs have a way without it.";
    AFTER_FORK:
        "The device was opened before a fork and stays with the parent.",
        "Open it again in the child, or open it only after the fork.";
    BAD_POINTER:
        "A pointer that must point to something is null.",
        "Look at the call's arguments.";
}

//! The causes of errors. Code that knows the exact cause of an error names it.

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
         `grh.sgid_index` to a row of your own GID table. Many programs have an option `-g INDEX` \
         or `-x INDEX` for it; `roci gids` marks the row to use.";
    EMPTY_GID:
        "`sgid_index` names an empty row of the GID table.",
        "Choose a row with an address: `roci gids` lists them. For a program that always uses row 1, `roci run \
         --devices NAME=ADDRESS+ADDRESS` makes a device with two rows.";
    UNREACHABLE_FROM_GID:
        "`sgid_index` names a row of the GID table whose address has no route to the peer.",
        "Choose a row with an address in the peer's network and of its address family: `roci gids` \
         lists them.";
    MISSING_ATTRIBUTES:
        "The attribute mask lacks an attribute that this transition requires.",
        "Set these attributes and their bits in the mask.";
    SURPLUS_ATTRIBUTES:
        "The attribute mask has an attribute that this transition does not allow.",
        "Remove these bits from the mask. These attributes belong to an earlier transition, or to \
         another queue pair type.";
    NO_SUCH_TRANSITION:
        "There is no transition between these two states.",
        "Go RESET, INIT, RTR, RTS, one step at a time. RESET is allowed from every state, ERR from \
         every state but RESET.";
    OTHER_STATE:
        "The queue pair is not in the state in `cur_qp_state`.",
        "Omit `IBV_QP_CUR_STATE`, or call `ibv_query_qp` first: an error may have changed the state.";
    MTUS_DIFFER:
        "The interfaces of the two sides have different MTUs.",
        "Set the same MTU at both (`ip link set dev NAME mtu 9000`): long messages need fewer packets with the larger one.";
    NARROW_PATH:
        "A router or tunnel on the path carries shorter packets than the interface.",
        "Nothing needs to be done: connections use the smaller path MTU. A program that sets `path_mtu` itself must set one that fits.";
    MTU_ABOVE_PORT:
        "The path MTU is larger than the MTU of the interface allows.",
        "Set `path_mtu` to the smaller `active_mtu` of the two sides (`ibv_query_port`, `roci \
         devinfo`), or raise the MTU of both interfaces.";
    VALUE_OUT_OF_RANGE:
        "A value is outside the limits of the device.",
        "Check the limits in `ibv_query_device`. The port is 1, the P_Key index is 0, retry counts \
         are 0 to 7, timeouts 0 to 31.";
    UNKNOWN_ATTRIBUTE:
        "The mask has a bit that this device does not support.",
        "Remove it: this device has no rate limits, no resizing of queues, and no alternate paths, which no RoCE device has.";
}

// Posting.
causes! {
    POSTED_TOO_EARLY:
        "The queue pair is not yet in a state that allows the request.",
        "Receives can be posted from INIT on, sends only in RTS: complete the transitions first.";
    QUEUE_FULL:
        "The queue is full.",
        "Poll completions before you post more, and signal at least one send per queue length. This \
         device and Soft-RoCE free the entry of a send when it completes; most NICs free it only when \
         its completion, or a later signaled one, is polled. Or create a larger queue \
         (`max_send_wr`, `max_recv_wr`).";
    TOO_MANY_SEGMENTS:
        "The request has more segments than the queue was created for.",
        "Create the queue pair with a larger `max_send_sge` or `max_recv_sge`.";
    INLINE_TOO_LONG:
        "The inline data is longer than the queue allows.",
        "Create the queue pair with a larger `max_inline_data`, or send without IBV_SEND_INLINE.";
    MESSAGE_TOO_LONG:
        "The message is longer than 2^31 bytes.",
        "Split it into several messages.";
    WRONG_SERVICE:
        "This queue pair type does not support the operation.",
        "READ and atomics need RC, WRITE needs RC or UC. UD supports only SEND. An XRC target \
         can't send.";
    WRONG_DESTINATION:
        "A request on a UD queue pair has no address handle, or another request has one.",
        "Set `wr.ud` (address handle, QPN, Q_Key) for UD, `remote_srqn` for XRC, and neither for \
         other types.";
    ATOMIC_SHAPE:
        "An atomic operates on eight bytes.",
        "Use a local segment of 8 bytes.";
    INLINE_RESULT:
        "The segments of a READ or an atomic receive the result, so they can't be inline.",
        "Leave IBV_SEND_INLINE out, and name registered memory for the result.";
    SHARED_RECEIVE:
        "The queue pair uses a shared receive queue.",
        "Post to the shared receive queue (`ibv_post_srq_recv`).";
}

// Local memory.
causes! {
    NEEDS_LOCAL_WRITE:
        "Memory with remote write or atomic access also needs local write access.",
        "Register it with IBV_ACCESS_LOCAL_WRITE, too.";
    REGISTRATION_REFUSED:
        "The memory can't be registered, reregistered or deregistered with these arguments.",
        "Check the address, the length and the access flags, and whether windows are still bound \
         to it.";
    UNKNOWN_LOCAL_KEY:
        "No registered memory has the local key.",
        "Use the `lkey` of a memory region that is still registered. It is not the `rkey` of the \
         peer, and `ibv_dereg_mr` invalidates it.";
    OTHER_LOCAL_DOMAIN:
        "The memory is in another protection domain than the queue pair.",
        "Register the memory in the protection domain of the queue pair, or create the queue pair \
         in that of the memory.";
    LOCAL_BOUNDS:
        "The segment exceeds the registered memory.",
        "Compare `addr` and `length` of the segment with the registered range.";
    NOT_WRITABLE_HERE:
        "The device must write to memory that was registered without local write access.",
        "Register buffers for receives, READs and atomics with IBV_ACCESS_LOCAL_WRITE.";
}

// Memory of the device (`ibv_alloc_dm`).
causes! {
    DEVICE_MEMORY_HAS_NO_ADDRESS:
        "Memory of the device is registered without IBV_ACCESS_ZERO_BASED.",
        "Add IBV_ACCESS_ZERO_BASED: the program has no address of this memory, so its regions begin at 0.";
    DEVICE_MEMORY_RANGE:
        "An offset or a length exceeds the allocated memory of the device, or a copy is not in units of 4 bytes.",
        "Stay within the length of `ibv_alloc_dm`, and copy multiples of 4 bytes to and from multiples of 4.";
}

// Remote memory.
causes! {
    UNKNOWN_REMOTE_KEY:
        "The responder has no memory with this remote key.",
        "Use the `rkey` of a region that is still registered, and check the byte order in which \
         the responder sent it. The key of a memory window changes when it is bound.";
    OTHER_REMOTE_DOMAIN:
        "The memory is in another protection domain than the responder's queue pair.",
        "At the responder, register the memory in the protection domain of the connected queue pair.";
    REMOTE_BOUNDS:
        "The request exceeds the registered memory.",
        "Compare the remote address and the length with the range that the responder registered. \
         Addresses are those of the responder, unless the region is zero-based.";
    MEMORY_FORBIDS:
        "The memory was registered without the access right that the operation needs.",
        "At the responder, register it with this right (write and atomic also need \
         IBV_ACCESS_LOCAL_WRITE).";
    QUEUE_PAIR_FORBIDS:
        "The responder's queue pair does not allow this operation to its peer.",
        "At the responder, set the right in `qp_access_flags` on the transition to INIT, in \
         addition to that of the region.";
    OTHER_WINDOW_OWNER:
        "The memory window is bound to another queue pair.",
        "Only the queue pair that bound a type 2 window can use it: bind one window for each queue \
         pair.";
    UNALIGNED_ATOMIC:
        "The remote address of an atomic is not a multiple of 8.",
        "Align the address to 8 bytes.";
    TOO_MANY_READS:
        "The peer has more READs and atomics outstanding than the responder allows.",
        "The requester's `max_rd_atomic` must not exceed the responder's `max_dest_rd_atomic`.";
    NO_READS_ALLOWED:
        "The queue pair does not allow READs and atomics (`max_rd_atomic` is 0).",
        "Set `max_rd_atomic` to 1 or more on the transition to RTS.";
    ASK_ABOUT_MEMORY:
        "Only the responder knows what is wrong with the memory.",
        "Run the responder with ROCI_EXPLAIN=1, too. Usually the rkey is wrong or stale, the range \
         exceeds the region, or the access flags of the region lack a right.";
    ASK_ABOUT_REQUEST:
        "Only the responder knows what is wrong with the request.",
        "Run the responder with ROCI_EXPLAIN=1, too. Usually a SEND is longer than its receive, or \
         the responder's `qp_access_flags` do not allow the operation.";
    ASK_ABOUT_READ:
        "Only the responder knows what is wrong with the READ.",
        "Run the responder with ROCI_EXPLAIN=1, too. Usually its `qp_access_flags` or \
         `max_dest_rd_atomic` do not allow it.";
    ASK_ABOUT_ATOMIC:
        "Only the responder knows what is wrong with the atomic.",
        "Run the responder with ROCI_EXPLAIN=1, too. Usually the remote address is not a multiple of 8, \
         or the responder's `qp_access_flags` or `max_dest_rd_atomic` do not allow the operation.";
    ASK_ABOUT_RECEIVE:
        "Only the responder knows what is wrong with its receive.",
        "Run the responder with ROCI_EXPLAIN=1, too. Usually its receive uses memory that the \
         device can't write.";
    MALFORMED_REQUEST:
        "The packets of the request are inconsistent: lengths, order or opcode.",
        "Both sides must have the same path MTU. If they do, analyse a capture with `roci explain`.";
}

// Receives.
causes! {
    NO_RECEIVE:
        "The receiver had no receive posted when a SEND or a WRITE with immediate arrived.",
        "Post receives before the peer can send (while in INIT), and post a new one for each that \
         completes; or raise `rnr_retry` (7 means forever) and `min_rnr_timer`.";
    NO_RECEIVE_YET:
        "The receiver has no receive posted, and the sender waits for one without a limit.",
        "Post receives before the peer can send (while in INIT), and post a new one for each that \
         completes. With an `rnr_retry` below 7 the request would fail instead.";
    RECEIVE_TOO_SMALL:
        "The message is longer than its receive.",
        "Post receives as large as the largest message. UD receives need 40 bytes more, for the GRH.";
    RECEIVE_UNUSABLE:
        "The receive uses memory that the device can't write.",
        "At the receiver, check the key, the bounds and IBV_ACCESS_LOCAL_WRITE of the segments of \
         the receive.";
    BAD_INVALIDATE:
        "A SEND asked to invalidate a key that can't be invalidated.",
        "Only a type 2 window can be invalidated, and only by the queue pair that bound it.";
}

// Peers that don't answer.
causes! {
    NO_PROCESS_AT_ADDRESS:
        "No process uses the RoCE port (UDP 4791) at that address.",
        "Start the peer first, and compare the GID that it sent with `roci gids` on its machine.";
    NOT_THERE_NOW:
        "The peer answered earlier, but no longer does.",
        "Check whether its process ended or destroyed the queue pair. Otherwise look for lost \
         packets: run `roci explain` on a capture of either side.";
    PEER_ENDED:
        "The peer's process has ended, or has closed its device.",
        "Look at the peer's output and exit code. A server must keep its queue pair until the client is \
         done.";
    UNKNOWN_QUEUE_PAIR:
        "The peer has no queue pair with this number.",
        "Compare `dest_qp_num` with the number that the peer sent (`qp_num`; decimal or \
         hexadecimal?). The peer must keep the queue pair until you are done.";
    PEER_NOT_READY:
        "The peer's queue pair is not ready to receive.",
        "Both sides must go to RTR before either sends: exchange a message over TCP after RTR.";
    PEER_BROKEN:
        "The peer's queue pair is in the error state.",
        "The first failed completion at the peer shows the cause.";
    WRONG_PSN:
        "The two sides do not agree on the first packet sequence number.",
        "`rq_psn` of each side must equal `sq_psn` of the other.";
    WRONG_PEER:
        "The queue pair is connected to another peer.",
        "Compare `dest_qp_num` and the GIDs of the two sides: each must name the other, with the \
         address that the other sends from.";
    TOO_LONG_FOR_LINK:
        "Packets are longer than the MTU of the path.",
        "Set a smaller `path_mtu`, or raise the MTU of the interfaces: a path MTU of 4096 needs \
         4176 bytes, 1024 needs 1104.";
    NOT_SENT:
        "The kernel does not send the packets.",
        "Check the route and the firewall between the two addresses.";
    SILENCE:
        "Packets are sent, but there is no response.",
        "Check that firewalls and security groups allow UDP port 4791 in both directions, and that \
         the peer's queue pair is connected to this one's number and GID.";
    LOSS:
        "Too many packets are lost.",
        "Check the drop counters of interfaces and socket buffers (`roci doctor`), or raise \
         `timeout` and `retry_cnt`.";
    BAD_ANSWER:
        "The response of the peer does not match the request.",
        "Both sides must have the same path MTU. If they do, one of them has a bug: keep a capture.";
}

// Queues, datagrams and others.
causes! {
    COMPLETIONS_OVERRAN:
        "The completion queue received more completions than it can hold.",
        "Make it large enough for all outstanding sends and receives of all its queue pairs, and \
         poll it until it is empty.";
    WRONG_QUEUE_KEY:
        "The datagram has another Q_Key than the receiving queue pair.",
        "Set `wr.ud.remote_qkey` of the sender to the Q_Key that the receiver set on the \
         transition to INIT.";
    DATAGRAM_TOO_LONG:
        "A datagram is longer than one packet.",
        "Send at most `active_mtu` bytes per datagram, or use a connection.";
    FLUSHED:
        "The queue pair went to the error state before it executed the request.",
        "Look for the first completion of this queue pair that is not flushed: it shows the cause. \
         After a disconnect, flushed receives are normal.";
    WINDOW_REFUSED:
        "The memory window can't be bound or invalidated with these arguments.",
        "The region needs IBV_ACCESS_MW_BIND (and local write, if peers may write), the range must \
         be inside the region, and a bound type 2 window must be invalidated first.";
    INCONSISTENT:
        "The queue pair can't execute the request with its current attributes.",
        "Check its attributes with `ibv_query_qp`.";
    NORMAL:
        "This is not an error.",
        "Continue as the meaning says.";
    PORT_DOWN:
        "The interface of the device went down, or `ROCI_FAULT` has a rule `down`.",
        "Check `ip link`. Packets pass again after IBV_EVENT_PORT_ACTIVE.";
    ADDRESS_CHANGED:
        "An address of the interface was added or removed.",
        "Look up the index again: `roci gids`.";
    NOT_HERE:
        "Rocinante never reports this; only other devices or transports do.",
        "See the documentation of the device.";
    ACT_ON_FIRST_ERROR:
        "There was an earlier error.",
        "Check the first failed completion and the events before this one.";
}

// Addresses and connections.
causes! {
    NO_ROUTE:
        "The kernel has no route to the address.",
        "Run `ip route get ADDRESS`. Is this the peer's address, and is the interface up?";
    NO_NEIGHBOUR:
        "No machine on the local network has the address.",
        "Run `ip neighbour` and `ping ADDRESS`. Is this the peer's address, is the peer up, and is it in the same network?";
    NO_DEVICE:
        "No RDMA device has the local address of the route.",
        "`roci devices` and `roci gids` list the devices; ROCI_DEVICES and `roci link` define them. Or \
         bind a local address that a device has (`rdma_bind_addr`, `rping -I`).";
    CANNOT_OPEN:
        "The device can't be opened.",
        "Run `roci doctor`: it shows the reason.";
    PEER_SILENT:
        "The peer did not answer the connection request.",
        "Check that the server runs on this address and that firewalls allow UDP port 4791. A \
         server on another machine needs an RDMA device, too: a TCP server can't answer.";
    CLIENT_SILENT:
        "The client did not confirm the connection that this side accepted.",
        "Check that the client still runs and that firewalls allow UDP port 4791 in both directions. \
         A server can go on with the next client.";
    CLIENT_GONE:
        "The client ended, or gave up, before the connection was established.",
        "`rdma_accept` for this id fails with EINVAL from now on. Destroy the id, and go on with the next \
         client. If the client gave up, accept sooner: it waits for some seconds only.";
    NO_LISTENER:
        "The peer is reachable, but no program listens on that port.",
        "Start the server first, and compare the port and the port space (`rdma_listen`, `-p PORT`).";
    LISTENS_AGAIN_LATER:
        "The server is between two listeners: perftest with `-R` connects twice, and its server \
         closes the first listener before it opens the second.",
        "Run it again, or delay the client with `ROCI_FAULT=delay:qp=1,by=500ms`. perftest prints \
         the `errno` of an earlier call with the event, often EAGAIN; then it tries again with an \
         id from memory that it has freed, and crashes.";
    PEER_REFUSED:
        "The application of the server rejected the request.",
        "Check its output and the private data of the event for the reason.";
    PEER_GONE:
        "The peer timed out, or its side of the connection ended.",
        "Check the output of the peer. Was the response too late?";
    UNSUPPORTED_BY_PEER:
        "The peer does not support the request.",
        "Compare the queue pair types, resources and MTU of the two sides.";
    STALE_CONNECTION:
        "The peer still has an old connection of this queue pair.",
        "Try again in a few seconds, or with a new queue pair.";
    EXHAUSTED:
        "A limit on the number of objects is reached, or a size is too large.",
        "Destroy objects, or request less: `ibv_query_device` shows the limits.";
    IN_USE:
        "Other objects still use it.",
        "Destroy them first: queue pairs before completion queues, regions before protection domains.";
    ADDRESS_TAKEN:
        "Another user's process, or a kernel device, has UDP port 4791 or the service at that address.",
        "Use another address (ROCI_DEVICES) or another port; `roci doctor` names the owner.";
    ADDRESS_NOT_OURS:
        "The address does not belong to this machine.",
        "Bind to an address that `roci gids` lists, or to the unspecified address.";
    LEFT_BY_EARLIER_CALL:
        "The number belongs to an earlier call: a call that succeeds does not reset `errno`, and \
         an event does not set it.",
        "Check the event or status that the program names. perftest prints `ERRNO` with those, \
         too: `roci explain reject 8`.";
    NOTHING_YET:
        "There is no event at the moment, and the descriptor is non-blocking.",
        "Wait with `poll` until it is readable.";
    EMPTY_ROW:
        "This row of the table is empty.",
        "Use a row that `roci gids` lists.";
    UNSUPPORTED:
        "The device does not support this.",
        "`crates/capi/MATRIX.md` lists what is supported; most programs also work without it.";
    AFTER_FORK:
        "The device was opened before a fork and belongs to the parent.",
        "Open it again in the child, or open it only after the fork.";
    UNMAPPED_MEMORY:
        "The memory is not mapped, or is read-only and the access flags allow writes.",
        "Check the address and the length. Constants and read-only files can only be registered without \
         IBV_ACCESS_LOCAL_WRITE.";
    GPU_MEMORY:
        "Memory of a GPU is copied by libcuda, which did not accept it.",
        "Check that the whole range is allocated on one GPU, and that its context is not destroyed. docs/gpu.md says what can \
         be registered.";
    BAD_POINTER:
        "A required pointer is null.",
        "Check the arguments of the call.";
}

//! Error numbers of Linux, as RDMA calls give them.

super::table! {
    Errno;
    1 "EPERM"
        "The system does not allow it: mostly sending, which a firewall forbids."
        [NOT_SENT];
    2 "ENOENT"
        "There is no such object."
        [EMPTY_ROW];
    5 "EIO"
        "The device can't be used from this process."
        [AFTER_FORK];
    11 "EAGAIN"
        "Nothing is there at the moment."
        [NOTHING_YET];
    12 "ENOMEM"
        "There is no room: for another object, or in a queue for another request."
        [QUEUE_FULL, EXHAUSTED];
    14 "EFAULT"
        "A pointer does not point to anything."
        [BAD_POINTER];
    16 "EBUSY"
        "Something still uses it."
        [IN_USE];
    19 "ENODEV"
        "There is no such device, or none leads to the address."
        [NO_DEVICE, CANNOT_OPEN];
    22 "EINVAL"
        "An argument is wrong. `ibv_modify_qp` and the posts say this for almost everything."
        [NO_GLOBAL_ROUTE, UNREACHABLE_FROM_GID, MISSING_ATTRIBUTES, SURPLUS_ATTRIBUTES,
         NO_SUCH_TRANSITION, OTHER_STATE, MTU_ABOVE_PORT, VALUE_OUT_OF_RANGE, UNKNOWN_ATTRIBUTE,
         POSTED_TOO_EARLY, TOO_MANY_SEGMENTS, INLINE_TOO_LONG, WRONG_SERVICE, WRONG_DESTINATION,
         ATOMIC_SHAPE, SHARED_RECEIVE, MESSAGE_TOO_LONG, NEEDS_LOCAL_WRITE, REGISTRATION_REFUSED];
    28 "ENOSPC"
        "The data does not fit into a request. `ibv_wr_complete` says this; `ibv_post_send` says `EINVAL`."
        [INLINE_TOO_LONG];
    38 "ENOSYS"
        "The call does not exist for this kind of device."
        [UNSUPPORTED];
    61 "ENODATA"
        "The row of the GID table is empty."
        [EMPTY_GID, EMPTY_ROW];
    90 "EMSGSIZE"
        "A packet is longer than the way carries."
        [TOO_LONG_FOR_LINK];
    95 "EOPNOTSUPP"
        "The device does not support this."
        [UNSUPPORTED, UNKNOWN_ATTRIBUTE];
    98 "EADDRINUSE"
        "Somebody else has the address and port."
        [ADDRESS_TAKEN];
    99 "EADDRNOTAVAIL"
        "The address is not one of this machine, or the id has none."
        [ADDRESS_NOT_OURS];
    101 "ENETUNREACH"
        "The kernel knows no way to the network of the address."
        [NO_ROUTE];
    110 "ETIMEDOUT"
        "Nobody answered in time."
        [PEER_SILENT, NO_ROUTE];
    111 "ECONNREFUSED"
        "The peer refused, or nobody serves the port there."
        [NOBODY_LISTENS, NOBODY_THERE];
    113 "EHOSTUNREACH"
        "Nobody at that address answers the network's own question who has it."
        [NO_ROUTE, NOBODY_THERE];
}

//! Linux error numbers that RDMA calls return.

/// The error numbers of rejected calls, for diagnostics that refer to this catalogue.
pub const EINVAL: u32 = 22;
/// See [`EINVAL`].
pub const EFAULT: u32 = 14;
/// See [`EINVAL`].
pub const EBUSY: u32 = 16;
/// See [`EINVAL`].
pub const ENOMEM: u32 = 12;
/// See [`EINVAL`].
pub const ENODATA: u32 = 61;
/// See [`EINVAL`].
pub const EOPNOTSUPP: u32 = 95;
/// See [`EINVAL`].
pub const EMSGSIZE: u32 = 90;

super::table! {
    Errno;
    1 "EPERM"
        "The system does not permit the operation. Usually a firewall forbids sending."
        [NOT_SENT];
    2 "ENOENT"
        "There is no such object."
        [EMPTY_ROW];
    5 "EIO"
        "The device can't be used from this process."
        [AFTER_FORK];
    11 "EAGAIN"
        "No event is available at the moment."
        [NOTHING_YET, LEFT_BY_EARLIER_CALL];
    12 "ENOMEM"
        "A queue is full, or a limit on the number of objects is reached."
        [QUEUE_FULL, EXHAUSTED];
    14 "EFAULT"
        "A pointer is invalid."
        [BAD_POINTER, UNMAPPED_MEMORY, GPU_MEMORY];
    16 "EBUSY"
        "The object is still in use."
        [IN_USE];
    19 "ENODEV"
        "There is no such device, or no device for the address."
        [NO_DEVICE, CANNOT_OPEN];
    22 "EINVAL"
        "An argument is wrong. `ibv_modify_qp`, `ibv_post_send` and `ibv_post_recv` return this \
         for almost every error."
        [NO_GLOBAL_ROUTE, UNREACHABLE_FROM_GID, MISSING_ATTRIBUTES, SURPLUS_ATTRIBUTES,
         NO_SUCH_TRANSITION, OTHER_STATE, MTU_ABOVE_PORT, VALUE_OUT_OF_RANGE, UNKNOWN_ATTRIBUTE,
         POSTED_TOO_EARLY, TOO_MANY_SEGMENTS, INLINE_TOO_LONG, INLINE_RESULT, WRONG_SERVICE,
         WRONG_DESTINATION, ATOMIC_SHAPE, SHARED_RECEIVE, MESSAGE_TOO_LONG, NEEDS_LOCAL_WRITE, REGISTRATION_REFUSED,
         DEVICE_MEMORY_HAS_NO_ADDRESS, DEVICE_MEMORY_RANGE, CLIENT_GONE];
    28 "ENOSPC"
        "The inline data is too long. `ibv_wr_complete` returns this; `ibv_post_send` returns `EINVAL`."
        [INLINE_TOO_LONG];
    38 "ENOSYS"
        "This device does not implement the call."
        [UNSUPPORTED];
    61 "ENODATA"
        "The row of the GID table is empty."
        [EMPTY_GID, EMPTY_ROW];
    90 "EMSGSIZE"
        "A packet is longer than the MTU of the path."
        [TOO_LONG_FOR_LINK];
    95 "EOPNOTSUPP"
        "The device does not support this."
        [UNSUPPORTED, UNKNOWN_ATTRIBUTE];
    98 "EADDRINUSE"
        "Another process uses the address and port."
        [ADDRESS_TAKEN];
    99 "EADDRNOTAVAIL"
        "The address does not belong to this machine, or the id has no address."
        [ADDRESS_NOT_OURS];
    101 "ENETUNREACH"
        "The kernel has no route to the network of the address."
        [NO_ROUTE];
    110 "ETIMEDOUT"
        "There was no response in time."
        [PEER_SILENT, NO_ROUTE];
    111 "ECONNREFUSED"
        "The peer rejected, or no program listens on the port."
        [NO_LISTENER, NO_PROCESS_AT_ADDRESS];
    113 "EHOSTUNREACH"
        "No machine answers ARP or neighbour discovery for the address."
        [NO_ROUTE, NO_PROCESS_AT_ADDRESS];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_have_the_numbers_of_their_entries() {
        let named = [
            ("EINVAL", EINVAL),
            ("ENOMEM", ENOMEM),
            ("ENODATA", ENODATA),
            ("EOPNOTSUPP", EOPNOTSUPP),
        ];
        for (name, number) in named {
            let entry = ENTRIES.iter().find(|entry| entry.code == number);
            assert_eq!(entry.map(|entry| entry.c_name), Some(name));
        }
    }
}

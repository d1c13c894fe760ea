//! The values of `enum rdma_cm_event_type`.

super::table! {
    Connection;
    0 "RDMA_CM_EVENT_ADDR_RESOLVED" ("EventKind::AddressResolved")
        "The local address and the device for the peer are known."
        [NORMAL];
    1 "RDMA_CM_EVENT_ADDR_ERROR" ("EventKind::AddressError")
        "There is no route or device for the peer's address. The status is a negative error \
         number: -19 no device, -101 or -113 no route, -110 timeout."
        [NO_ROUTE, NO_NEIGHBOUR, NO_DEVICE, CANNOT_OPEN];
    2 "RDMA_CM_EVENT_ROUTE_RESOLVED" ("EventKind::RouteResolved")
        "The path is known: create a queue pair and connect."
        [NORMAL];
    3 "RDMA_CM_EVENT_ROUTE_ERROR" ("EventKind::RouteError")
        "The path could not be found; the status is a negative error number."
        [NO_ROUTE];
    4 "RDMA_CM_EVENT_CONNECT_REQUEST" ("EventKind::ConnectRequest")
        "A peer requests a connection: accept or reject the new id."
        [NORMAL];
    5 "RDMA_CM_EVENT_CONNECT_RESPONSE" ("EventKind::ConnectResponse")
        "The peer accepted. The id has no queue pair, so the program moves its own to RTR and RTS \
         and then calls `rdma_establish`."
        [NORMAL];
    6 "RDMA_CM_EVENT_CONNECT_ERROR" ("EventKind::ConnectError")
        "The peer accepted, but the local queue pair could not go to RTR and RTS."
        [INCONSISTENT, MTU_ABOVE_PORT];
    7 "RDMA_CM_EVENT_UNREACHABLE" ("EventKind::Unreachable")
        "The peer did not answer: the status is -110. Or a datagram service rejected: the status is \
         its reason."
        [PEER_SILENT, CLIENT_SILENT, NO_PROCESS_AT_ADDRESS];
    8 "RDMA_CM_EVENT_REJECTED" ("EventKind::Rejected")
        "The peer rejected the request, or timed out. The status is the reason: `roci explain \
         reject STATUS`."
        [NO_LISTENER, PEER_REFUSED, STALE_CONNECTION];
    9 "RDMA_CM_EVENT_ESTABLISHED" ("EventKind::Established")
        "The connection is established."
        [NORMAL];
    10 "RDMA_CM_EVENT_DISCONNECTED" ("EventKind::Disconnected")
        "The connection ended: receives that are still posted complete as flushed (status 5)."
        [NORMAL];
    11 "RDMA_CM_EVENT_DEVICE_REMOVAL" ("EventKind::DeviceRemoval")
        "The device was removed with its interface."
        [NO_DEVICE];
    12 "RDMA_CM_EVENT_MULTICAST_JOIN" ("EventKind::MulticastJoin")
        "The id has joined the multicast group."
        [NORMAL];
    13 "RDMA_CM_EVENT_MULTICAST_ERROR" ("EventKind::MulticastError")
        "The multicast group could not be joined; the status is a negative error number."
        [NO_ROUTE, NO_DEVICE];
    14 "RDMA_CM_EVENT_ADDR_CHANGE" ("EventKind::AddressChange")
        "The local address moved to another interface: connect again."
        [NO_ROUTE];
    15 "RDMA_CM_EVENT_TIMEWAIT_EXIT" ("EventKind::TimewaitExit")
        "No late packet of the old connection can arrive any more: the queue pair can be reused."
        [NORMAL];
}

//! The values of `enum rdma_cm_event_type`.

super::table! {
    Connection;
    0 "RDMA_CM_EVENT_ADDR_RESOLVED" ("EventKind::AddressResolved")
        "The local address and device that lead to the peer are known."
        [NORMAL];
    1 "RDMA_CM_EVENT_ADDR_ERROR" ("EventKind::AddressError")
        "No way to the peer's address was found; the status is a negative error number: -19 no device, \
         -101 or -113 no route, -110 nothing found in time."
        [NO_ROUTE, NO_DEVICE, CANNOT_OPEN];
    2 "RDMA_CM_EVENT_ROUTE_RESOLVED" ("EventKind::RouteResolved")
        "The path is known: create a queue pair and connect."
        [NORMAL];
    3 "RDMA_CM_EVENT_ROUTE_ERROR" ("EventKind::RouteError")
        "The path could not be found; the status is a negative error number."
        [NO_ROUTE];
    4 "RDMA_CM_EVENT_CONNECT_REQUEST" ("EventKind::ConnectRequest")
        "Somebody wants to connect: accept or reject the new id."
        [NORMAL];
    5 "RDMA_CM_EVENT_CONNECT_RESPONSE" ("EventKind::ConnectResponse")
        "The peer accepts, and the queue pair is this program's own affair: move it to RTR and RTS, then \
         call `rdma_establish`."
        [NORMAL];
    6 "RDMA_CM_EVENT_CONNECT_ERROR" ("EventKind::ConnectError")
        "The peer accepted, but the local queue pair could not be made ready."
        [INCONSISTENT, MTU_ABOVE_PORT];
    7 "RDMA_CM_EVENT_UNREACHABLE" ("EventKind::Unreachable")
        "No answer came: the status is -110. Or a datagram service refused: the status is its answer."
        [PEER_SILENT, NOBODY_THERE];
    8 "RDMA_CM_EVENT_REJECTED" ("EventKind::Rejected")
        "The peer refused, or gave up. The status is the reason: `roci explain reject STATUS`."
        [NOBODY_LISTENS, PEER_REFUSED, STALE_CONNECTION];
    9 "RDMA_CM_EVENT_ESTABLISHED" ("EventKind::Established")
        "The connection stands."
        [NORMAL];
    10 "RDMA_CM_EVENT_DISCONNECTED" ("EventKind::Disconnected")
        "The connection ended: receives that are still posted complete as flushed (status 5)."
        [NORMAL];
    11 "RDMA_CM_EVENT_DEVICE_REMOVAL" ("EventKind::DeviceRemoval")
        "The device is gone: its interface was removed."
        [NO_DEVICE];
    12 "RDMA_CM_EVENT_MULTICAST_JOIN" ("EventKind::MulticastJoin")
        "The id is a member of the multicast group now."
        [NORMAL];
    13 "RDMA_CM_EVENT_MULTICAST_ERROR" ("EventKind::MulticastError")
        "The multicast group could not be joined; the status is a negative error number."
        [NO_ROUTE, NO_DEVICE];
    14 "RDMA_CM_EVENT_ADDR_CHANGE" ("EventKind::AddressChange")
        "The local address moved to another interface: connect again."
        [NO_ROUTE];
    15 "RDMA_CM_EVENT_TIMEWAIT_EXIT" ("EventKind::TimewaitExit")
        "No stray packet of the old connection can be under way any more: the queue pair's number may be \
         used again."
        [NORMAL];
}

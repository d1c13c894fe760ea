//! The reasons in a REJ message of the connection manager.

super::table! {
    Reject;
    1 "IB_CM_REJ_NO_QP" ("RejectReason::NoQueuePair")
        "No queue pair is available."
        [EXHAUSTED];
    2 "IB_CM_REJ_NO_EEC" ("RejectReason::NoEndToEndContext")
        "No end-to-end context is available. Only reliable datagrams have such contexts."
        [NOT_HERE];
    3 "IB_CM_REJ_NO_RESOURCES" ("RejectReason::NoResources")
        "The peer has no resources for another connection: its backlog may be full."
        [EXHAUSTED];
    4 "IB_CM_REJ_TIMEOUT" ("RejectReason::Timeout")
        "The peer timed out while it waited for the next message of the handshake."
        [PEER_GONE, CLIENT_GONE];
    5 "IB_CM_REJ_UNSUPPORTED" ("RejectReason::UnsupportedRequest")
        "The peer does not support the request."
        [UNSUPPORTED_BY_PEER];
    6 "IB_CM_REJ_INVALID_COMM_ID" ("RejectReason::InvalidCommunicationId")
        "A message named a communication id that the peer does not have."
        [PEER_GONE];
    7 "IB_CM_REJ_INVALID_COMM_INSTANCE" ("RejectReason::InvalidCommunicationInstance")
        "A message named a pair of communication ids that don't belong together."
        [PEER_GONE];
    8 "IB_CM_REJ_INVALID_SERVICE_ID" ("RejectReason::InvalidServiceId")
        "No program listens on this service id, that is, on this port in this port space."
        [NO_LISTENER, NO_PROCESS_AT_ADDRESS, LISTENS_AGAIN_LATER];
    9 "IB_CM_REJ_INVALID_TRANSPORT_TYPE" ("RejectReason::InvalidServiceType")
        "The listener requires another queue pair type."
        [UNSUPPORTED_BY_PEER];
    10 "IB_CM_REJ_STALE_CONN" ("RejectReason::StaleConnection")
        "The peer still has an old connection of this queue pair."
        [STALE_CONNECTION];
    11 "IB_CM_REJ_RDC_NOT_EXIST" ("RejectReason::NoReliableDatagramChannel")
        "The reliable datagram channel does not exist. Current devices have no reliable datagrams."
        [NOT_HERE];
    12 "IB_CM_REJ_INVALID_GID" ("RejectReason::PrimaryGidRejected")
        "The peer does not accept the GID of the path."
        [WRONG_PEER];
    13 "IB_CM_REJ_INVALID_LID" ("RejectReason::PrimaryLidRejected")
        "The peer does not accept the LID of the path. RoCE has no LIDs."
        [NOT_HERE];
    14 "IB_CM_REJ_INVALID_SL" ("RejectReason::InvalidPrimaryServiceLevel")
        "The peer does not accept the service level."
        [UNSUPPORTED_BY_PEER];
    15 "IB_CM_REJ_INVALID_TRAFFIC_CLASS" ("RejectReason::InvalidPrimaryTrafficClass")
        "The peer does not accept the traffic class."
        [UNSUPPORTED_BY_PEER];
    16 "IB_CM_REJ_INVALID_HOP_LIMIT" ("RejectReason::InvalidPrimaryHopLimit")
        "The peer does not accept the hop limit."
        [UNSUPPORTED_BY_PEER];
    17 "IB_CM_REJ_INVALID_PACKET_RATE" ("RejectReason::InvalidPrimaryRate")
        "The peer does not accept the packet rate."
        [UNSUPPORTED_BY_PEER];
    18 "IB_CM_REJ_INVALID_ALT_GID" ("RejectReason::AlternateGidRejected")
        "The peer does not accept the GID of the alternate path."
        [UNSUPPORTED_BY_PEER];
    19 "IB_CM_REJ_INVALID_ALT_LID" ("RejectReason::AlternateLidRejected")
        "The peer does not accept the LID of the alternate path. RoCE has no LIDs."
        [NOT_HERE];
    20 "IB_CM_REJ_INVALID_ALT_SL" ("RejectReason::InvalidAlternateServiceLevel")
        "The peer does not accept the service level of the alternate path."
        [UNSUPPORTED_BY_PEER];
    21 "IB_CM_REJ_INVALID_ALT_TRAFFIC_CLASS" ("RejectReason::InvalidAlternateTrafficClass")
        "The peer does not accept the traffic class of the alternate path."
        [UNSUPPORTED_BY_PEER];
    22 "IB_CM_REJ_INVALID_ALT_HOP_LIMIT" ("RejectReason::InvalidAlternateHopLimit")
        "The peer does not accept the hop limit of the alternate path."
        [UNSUPPORTED_BY_PEER];
    23 "IB_CM_REJ_INVALID_ALT_PACKET_RATE" ("RejectReason::InvalidAlternateRate")
        "The peer does not accept the packet rate of the alternate path."
        [UNSUPPORTED_BY_PEER];
    24 "IB_CM_REJ_PORT_CM_REDIRECT" ("RejectReason::PortAndManagerRedirection")
        "The peer redirects to another port and another connection manager."
        [NOT_HERE];
    25 "IB_CM_REJ_PORT_REDIRECT" ("RejectReason::PortRedirection")
        "The peer redirects to another port."
        [NOT_HERE];
    26 "IB_CM_REJ_INVALID_MTU" ("RejectReason::InvalidPathMtu")
        "The peer does not support the path MTU of the request."
        [MTUS_DIFFER];
    27 "IB_CM_REJ_INSUFFICIENT_RESP_RESOURCES" ("RejectReason::InsufficientResponderResources")
        "The peer does not support this many concurrent READs and atomics."
        [TOO_MANY_READS];
    28 "IB_CM_REJ_CONSUMER_DEFINED" ("RejectReason::Consumer")
        "The application at the peer called `rdma_reject`, or destroyed the request's id."
        [PEER_REFUSED];
    29 "IB_CM_REJ_INVALID_RNR_RETRY" ("RejectReason::RnrRetryCountRejected")
        "The peer does not accept the RNR retry count."
        [UNSUPPORTED_BY_PEER];
    30 "IB_CM_REJ_DUPLICATE_LOCAL_COMM_ID" ("RejectReason::DuplicateCommunicationId")
        "The communication id of the request is in use at the peer."
        [STALE_CONNECTION];
    31 "IB_CM_REJ_INVALID_CLASS_VERSION" ("RejectReason::InvalidClassVersion")
        "The peer uses another version of the connection manager's protocol."
        [UNSUPPORTED_BY_PEER];
    32 "IB_CM_REJ_INVALID_FLOW_LABEL" ("RejectReason::InvalidPrimaryFlowLabel")
        "The peer does not accept the flow label."
        [UNSUPPORTED_BY_PEER];
    33 "IB_CM_REJ_INVALID_ALT_FLOW_LABEL" ("RejectReason::InvalidAlternateFlowLabel")
        "The peer does not accept the flow label of the alternate path."
        [UNSUPPORTED_BY_PEER];
    35 "IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED" ("RejectReason::VendorOptionNotSupported")
        "The peer does not support the vendor's option in the request."
        [UNSUPPORTED_BY_PEER];
}

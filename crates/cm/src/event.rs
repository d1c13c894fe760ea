//! Events for the application, and instructions for the driver.

use std::net::{IpAddr, SocketAddr};

use wire::cm::{RejectReason, ServiceStatus};
use wire::{PathMtu, Qpn, QueueKey};

use crate::id::Id;
use crate::qp_attributes::PathAttributes;

/// An event of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The id.
    pub id: Id,
    /// What happened.
    pub kind: EventKind,
}

/// The events of `rdma_cm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// The local address that leads to the peer is known.
    AddressResolved,
    /// The peer's address could not be resolved, or the Q_Key of a datagram service differs from the
    /// id's.
    AddressError(Failure),
    /// The route is known: the id can connect.
    RouteResolved,
    /// The route could not be resolved.
    RouteError(Failure),
    /// A peer requests a connection. The event's id is a new child id: accept, reject or destroy it.
    ConnectRequest {
        /// The listener that the request addresses.
        listener: Id,
        /// The request.
        request: Request,
    },
    /// The peer accepted: move the queue pair to RTR and RTS, then call
    /// [`establish`](crate::Manager::establish).
    ConnectResponse(PeerParameters),
    /// The peer accepted, but the local queue pair could not be moved to RTS.
    ConnectError(Failure),
    /// No response came, or the datagram service rejected the request.
    Unreachable(Unreachable),
    /// The peer rejected the connection, or timed out.
    Rejected {
        /// Why.
        reason: RejectReason,
        /// The private data of the peer's application.
        private_data: Vec<u8>,
    },
    /// On the passive side: the peer is ready to send and receive.
    Established,
    /// A datagram service was found. (`rdma_cm` reports this as "established", too.)
    ServiceFound(ServiceFound),
    /// The connection ended.
    Disconnected {
        /// Whether the peer never answered our DREQ.
        timed_out: bool,
    },
    /// The device was removed.
    DeviceRemoval,
    /// The id joined a multicast group.
    MulticastJoin(Group),
    /// The id could not join a multicast group.
    MulticastError {
        /// The group.
        group: IpAddr,
        /// Why.
        failure: Failure,
    },
    /// The local address moved to another interface.
    AddressChange,
    /// Time-wait is over: no packet of the connection can arrive any more, and the queue pair number
    /// may be reused.
    TimewaitExit,
    /// An event that the application writes itself, to wake a thread that waits for events. The manager
    /// never creates one.
    Application {
        /// The kind of event. The application defines the values.
        code: u32,
        /// The status to report.
        status: i32,
        /// A value that the application defines.
        argument: u64,
    },
}

impl EventKind {
    /// A request to a listener of another connection manager, which has no id here.
    pub const fn request_elsewhere(request: Request) -> Self {
        let listener = Id(u64::MAX);
        Self::ConnectRequest { listener, request }
    }
}

/// What a peer requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A connection.
    Connection(PeerParameters),
    /// A datagram service.
    Service {
        /// The private data of the peer's application.
        private_data: Vec<u8>,
    },
}

/// The peer's connection parameters, from the local point of view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerParameters {
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// Whether it has a shared receive queue.
    pub shared_receive_queue: bool,
    /// How many reads and atomics the peer wants to have outstanding.
    pub responder_resources: u8,
    /// How many reads and atomics we may have outstanding.
    pub initiator_depth: u8,
    /// Whether the peer counts end-to-end credits.
    pub flow_control: bool,
    /// How many times our queue pair retransmits; 0 in a response, because the passive side does not
    /// choose it.
    pub retry_count: u8,
    /// How many times our queue pair retries after an RNR NAK.
    pub rnr_retry_count: u8,
    /// The private data of the peer's application. The wire format has no length: the rest is zeros.
    pub private_data: Vec<u8>,
}

/// How to reach a datagram service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFound {
    /// Its queue pair.
    pub remote_qpn: Qpn,
    /// The Q_Key that datagrams must carry.
    pub queue_key: QueueKey,
    /// The path to it.
    pub path: PathAttributes,
    /// The private data of the peer's application.
    pub private_data: Vec<u8>,
}

/// How to reach a multicast group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The group.
    pub group: IpAddr,
    /// The Q_Key that datagrams must carry.
    pub queue_key: QueueKey,
    /// The path to it. The queue pair number is [`Qpn::MULTICAST`].
    pub path: PathAttributes,
}

/// Why an instruction failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The driver did not answer in time.
    TimedOut,
    /// The Q_Key differs from the one that the id already has.
    QueueKeyMismatch,
    /// No device has the local address or leads to the peer.
    NoDevice,
    /// An error of the operating system, by its number. The manager only passes it on.
    Os(i32),
}

/// A connection request, or one for a datagram service, that was retransmitted, because no response came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unanswered {
    /// Who sent it.
    pub id: Id,
    /// How often it was retransmitted.
    pub retransmissions: u8,
}

/// A connection request whose path MTU was larger than the port allows that received it. It was rejected, and told the
/// smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MtuLimit {
    /// Our address.
    pub local: Option<SocketAddr>,
    /// The peer's.
    pub peer: Option<SocketAddr>,
    /// Whether we sent the request. Then it is sent again with the smaller path MTU.
    pub is_ours: bool,
    /// The path MTU of the request.
    pub requested: PathMtu,
    /// What the port allows that received it.
    pub allowed: PathMtu,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreachable {
    /// The peer did not answer.
    TimedOut,
    /// The peer answered that it does not offer the service, or rejected the request.
    Rejected {
        /// Why.
        status: ServiceStatus,
        /// The private data of the peer's application.
        private_data: Vec<u8>,
    },
}

/// A task for the driver. Each variant names the method that takes the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction {
    /// Find the local address that leads to the peer. The result goes to
    /// [`address_resolved`](crate::Manager::address_resolved).
    ResolveAddress {
        /// The id.
        id: Id,
        /// The local address; unspecified if none is chosen yet.
        source: SocketAddr,
        /// The peer.
        destination: SocketAddr,
    },
    /// Find MTU and hop limit of a path. The result goes to
    /// [`route_resolved`](crate::Manager::route_resolved).
    ResolveRoute {
        /// The id.
        id: Id,
        /// The local address.
        source: IpAddr,
        /// The peer.
        destination: IpAddr,
    },
    /// Join a multicast group and attach the id's queue pair. The result goes to
    /// [`multicast_joined`](crate::Manager::multicast_joined).
    JoinMulticast {
        /// The id.
        id: Id,
        /// The local address.
        source: IpAddr,
        /// The group.
        group: IpAddr,
        /// Whether the id only sends to the group.
        send_only: bool,
    },
    /// Detach the id's queue pair and leave the group.
    LeaveMulticast {
        /// The id.
        id: Id,
        /// The group.
        group: IpAddr,
    },
    /// Move the queue pair to ERROR: its connection ended.
    MoveToError {
        /// The id.
        id: Id,
        /// The queue pair.
        qpn: Qpn,
    },
}

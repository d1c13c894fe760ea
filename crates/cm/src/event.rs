//! What the application is told, and what the driver is asked to do.

use std::net::{IpAddr, SocketAddr};

use wire::cm::{RejectReason, ServiceStatus};
use wire::{Qpn, QueueKey};

use crate::attributes::PathAttributes;
use crate::id::Id;

/// Something happened to an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The id.
    pub id: Id,
    /// What happened.
    pub kind: EventKind,
}

/// What can happen to an id: the events of `rdma_cm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// The local address that leads to the peer is known.
    AddressResolved,
    /// No way to the peer's address was found; or the Q_Key of a datagram service is not ours.
    AddressError(Failure),
    /// The path is known: connect now.
    RouteResolved,
    /// The path could not be found.
    RouteError(Failure),
    /// Somebody wants to connect. The event's id is new; accept, reject or destroy it.
    ConnectRequest {
        /// The listener that the request came to.
        listener: Id,
        /// What the peer wants.
        request: Request,
    },
    /// The peer accepts: move the queue pair to RTR and RTS, then call
    /// [`establish`](crate::Manager::establish).
    ConnectResponse(Offer),
    /// The peer accepted, but the local queue pair could not be made ready.
    ConnectError(Failure),
    /// No answer came, or the datagram service refused.
    Unreachable(Unreachable),
    /// The peer refused, or gave up.
    Rejected {
        /// Why.
        reason: RejectReason,
        /// The peer's own bytes.
        private_data: Vec<u8>,
    },
    /// The passive side of a connection: the peer is ready.
    Established,
    /// A datagram service was found. (`rdma_cm` calls this "established", too.)
    ServiceFound(ServiceFound),
    /// The connection ended; `timed_out` if the peer never answered our good-bye.
    Disconnected {
        /// Whether it did not answer.
        timed_out: bool,
    },
    /// The device is gone.
    DeviceRemoval,
    /// The id is a member of a multicast group now.
    MulticastJoin(Group),
    /// It could not become one.
    MulticastError {
        /// The group.
        group: IpAddr,
        /// Why.
        failure: Failure,
    },
    /// The local address moved to another interface.
    AddressChange,
    /// No stray packet of the connection can be under way any more: the queue pair's number may be
    /// used again.
    TimewaitExit,
    /// The application told itself something, to wake a thread that waits for events. The manager
    /// never does.
    Application {
        /// The kind of event, by the application's own numbers.
        code: u32,
        /// The status to report.
        status: i32,
        /// What it is about.
        argument: u64,
    },
}

/// What somebody wants who connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A connection.
    Connection(Offer),
    /// A datagram service.
    Service {
        /// The peer's own bytes.
        private_data: Vec<u8>,
    },
}

/// The peer's side of a connection, seen from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// Whether it has a shared receive queue.
    pub shared_receive_queue: bool,
    /// How many reads and atomics the peer wants us to serve at once.
    pub responder_resources: u8,
    /// How many reads and atomics we may have outstanding.
    pub initiator_depth: u8,
    /// Whether the peer counts end-to-end credits.
    pub flow_control: bool,
    /// How often our queue pair should retry; 0 in a response, where the peer has no say.
    pub retry_count: u8,
    /// How often our queue pair should retry when the peer is not ready.
    pub rnr_retry_count: u8,
    /// The peer's own bytes. They have no length on the wire: the rest is zeros.
    pub private_data: Vec<u8>,
}

/// How to reach a datagram service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFound {
    /// Its queue pair.
    pub remote_qpn: Qpn,
    /// The Q_Key that lets datagrams in.
    pub queue_key: QueueKey,
    /// The way.
    pub path: PathAttributes,
    /// The peer's own bytes.
    pub private_data: Vec<u8>,
}

/// How to reach a multicast group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The group.
    pub group: IpAddr,
    /// The Q_Key that lets datagrams in.
    pub queue_key: QueueKey,
    /// The way. The queue pair is [`Qpn::MULTICAST`].
    pub path: PathAttributes,
}

/// Why the driver could not do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It took too long.
    TimedOut,
    /// The Q_Key differs from the one that the id already has.
    QueueKeyMismatch,
    /// What the operating system said.
    Os(i32),
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachable {
    /// The peer did not answer.
    TimedOut,
    /// It answered that there is no such service, or not for us.
    Refused(ServiceStatus),
}

const TIMED_OUT: i32 = -110;
const INVALID: i32 = -22;

impl Failure {
    /// As `rdma_cm` says it: a negative error number of Linux.
    pub const fn status(self) -> i32 {
        match self {
            Failure::TimedOut => TIMED_OUT,
            Failure::QueueKeyMismatch => INVALID,
            Failure::Os(number) => -number.saturating_abs(),
        }
    }
}

impl EventKind {
    /// The status that `rdma_cm` reports with this event: 0, a negative error number of Linux, or
    /// what the peer said.
    pub const fn status(&self) -> i32 {
        match self {
            EventKind::AddressError(failure)
            | EventKind::RouteError(failure)
            | EventKind::ConnectError(failure)
            | EventKind::MulticastError { failure, .. } => failure.status(),
            EventKind::Unreachable(Unreachable::TimedOut) => TIMED_OUT,
            EventKind::Unreachable(Unreachable::Refused(status)) => status.code() as i32,
            EventKind::Rejected { reason, .. } => reason.code() as i32,
            EventKind::Disconnected { timed_out: true } => TIMED_OUT,
            EventKind::Application { status, .. } => *status,
            _ => 0,
        }
    }
}

/// What the driver is asked to do. Answers go to the method that each names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction {
    /// Find the local address that leads to the peer: answer with
    /// [`address_resolved`](crate::Manager::address_resolved).
    ResolveAddress {
        /// For whom.
        id: Id,
        /// The local address, if it is already chosen; otherwise an unspecified one.
        source: SocketAddr,
        /// The peer.
        destination: SocketAddr,
    },
    /// Find MTU and hop limit of a path: answer with
    /// [`route_resolved`](crate::Manager::route_resolved).
    ResolveRoute {
        /// For whom.
        id: Id,
        /// The local address.
        source: IpAddr,
        /// The peer.
        destination: IpAddr,
    },
    /// Join a multicast group and attach the id's queue pair: answer with
    /// [`multicast_joined`](crate::Manager::multicast_joined).
    JoinMulticast {
        /// For whom.
        id: Id,
        /// The local address.
        source: IpAddr,
        /// The group.
        group: IpAddr,
        /// Whether it only sends.
        send_only: bool,
    },
    /// Detach the id's queue pair and leave the group.
    LeaveMulticast {
        /// For whom.
        id: Id,
        /// The group.
        group: IpAddr,
    },
    /// Move the queue pair to ERROR: its connection is over.
    BreakQueuePair {
        /// Whose.
        id: Id,
        /// Which.
        qpn: Qpn,
    },
}

//! Ids: what an application holds while it connects, listens or talks.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use wire::cm::{PortSpace, Service};
use wire::{AckTimeout, PathMtu, Psn, Qpn, QueueKey, RnrTimer};

use crate::link::Link;
use crate::memory::Source;

/// The name of one conversation, like `rdma_cm_id`. A name is never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(crate) u64);

/// The code of XRC among the extended services.
const EXTENDED_RELIABLE: u8 = 1;

/// What kind of queue pair an id is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A reliable connection.
    ReliableConnection,
    /// An unreliable connection.
    UnreliableConnection,
    /// An extended reliable connection (XRC): the side that asks sends, the other one receives.
    ExtendedConnection,
    /// Datagrams: nothing is connected, but the peer's queue pair and its Q_Key are found.
    Datagram,
}

impl Kind {
    /// The kind that goes with a port space. In the native one the application has the choice.
    pub const fn of(space: PortSpace) -> Kind {
        match space {
            PortSpace::Udp => Kind::Datagram,
            PortSpace::Tcp | PortSpace::Infiniband => Kind::ReliableConnection,
        }
    }

    pub(crate) const fn service(self) -> Service {
        match self {
            Kind::UnreliableConnection => Service::UnreliableConnection,
            Kind::ExtendedConnection => Service::Extended,
            Kind::ReliableConnection | Kind::Datagram => Service::ReliableConnection,
        }
    }

    /// What stands beside [`Service::Extended`].
    pub(crate) const fn extended_transport(self) -> u8 {
        match self {
            Kind::ExtendedConnection => EXTENDED_RELIABLE,
            _ => 0,
        }
    }

    /// The kind that a peer asks for, if it is one that can be connected.
    pub(crate) const fn asked_for(service: Service, extended_transport: u8) -> Option<Kind> {
        match (service, extended_transport) {
            (Service::ReliableConnection, _) => Some(Kind::ReliableConnection),
            (Service::UnreliableConnection, _) => Some(Kind::UnreliableConnection),
            (Service::Extended, EXTENDED_RELIABLE) => Some(Kind::ExtendedConnection),
            _ => None,
        }
    }
}

/// How far an id has come. These are the states of `rdma_cm`; [`Phase`] tells more about the
/// conversation with the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing has been asked of it.
    Idle,
    /// It has a local address and port.
    AddressBound,
    /// The driver is looking for the way to the peer's address.
    AddressQuery,
    /// The local address that leads to the peer is known.
    AddressResolved,
    /// The driver is asking about the path.
    RouteQuery,
    /// Everything is known that a connection needs.
    RouteResolved,
    /// It waits for requests.
    Listening,
    /// It is connecting, or connected, or was refused.
    Connect,
    /// It was connected.
    Disconnect,
    /// The device is gone. All that is left is to destroy the id.
    DeviceRemoved,
}

/// How far the conversation with the peer has come (IBA 12.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// REQ sent, no answer yet.
    RequestSent,
    /// REQ sent; the peer asked for more time.
    RequestDelayed,
    /// REQ received; it is the application's turn.
    RequestReceived,
    /// REP sent, no answer yet.
    ReplySent,
    /// REP sent; the peer asked for more time.
    ReplyDelayed,
    /// REP received; it is the application's turn.
    ReplyReceived,
    /// Connected.
    Established,
    /// DREQ sent, no answer yet.
    DisconnectSent,
    /// DREQ received; it is the application's turn.
    DisconnectReceived,
    /// Parted, waiting for stray packets to die.
    TimeWait,
    /// SIDR_REQ sent, no answer yet.
    ServiceRequestSent,
    /// SIDR_REQ received; it is the application's turn.
    ServiceRequestReceived,
}

/// What the driver knows about the path to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The largest payload of a packet.
    pub mtu: PathMtu,
    /// Hop limit of packets; 64 is usual.
    pub hop_limit: u8,
    /// The static rate; 0 is that of the port.
    pub packet_rate: u8,
    /// The Ethernet priority; 0 unless the network has priorities.
    pub service_level: u8,
}

impl Route {
    /// A path on which nothing but the MTU is worth a word.
    pub const fn new(mtu: PathMtu) -> Route {
        Route {
            mtu,
            hop_limit: 64,
            packet_rate: 0,
            service_level: 0,
        }
    }
}

/// What the application can set before it connects.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) traffic_class: u8,
    pub(crate) ack_timeout: Option<AckTimeout>,
    pub(crate) min_rnr_timer: Option<RnrTimer>,
    pub(crate) reuse_address: bool,
    /// Whether a listener on all addresses takes only its own family.
    pub(crate) family_only: Option<bool>,
}

/// The waiting room of a listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog {
    pub(crate) limit: usize,
    pub(crate) waiting: usize,
}

/// A multicast group that an id belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Membership {
    pub(crate) group: IpAddr,
    pub(crate) joined: bool,
}

/// Everything about one id.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) space: PortSpace,
    pub(crate) kind: Kind,
    pub(crate) state: State,
    pub(crate) options: Options,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
    /// The port belongs to this id, and not to the listener it came from.
    pub(crate) owns_port: bool,
    pub(crate) route: Option<Route>,
    /// The first sequence number that the peer is to send.
    pub(crate) first_psn: Psn,
    pub(crate) qpn: Qpn,
    pub(crate) queue_key: Option<QueueKey>,
    pub(crate) backlog: Option<Backlog>,
    /// The listener in whose waiting room this id still is.
    pub(crate) waits_at: Option<Id>,
    /// Where the peer's request is counted, while it is half-open.
    pub(crate) half_open: Option<Source>,
    pub(crate) memberships: Vec<Membership>,
    pub(crate) link: Option<Box<Link>>,
    /// When to look at it again.
    pub(crate) deadline: Option<Instant>,
    /// Its exit notice may have changed.
    pub(crate) touched: bool,
}

impl Endpoint {
    pub(crate) fn new(space: PortSpace, kind: Kind, first_psn: Psn) -> Self {
        Endpoint {
            space,
            kind,
            state: State::Idle,
            options: Options::default(),
            source: None,
            destination: None,
            owns_port: false,
            route: None,
            first_psn,
            qpn: Qpn::default(),
            queue_key: None,
            backlog: None,
            waits_at: None,
            half_open: None,
            memberships: Vec::new(),
            link: None,
            deadline: None,
            touched: false,
        }
    }

    /// IPv4 listeners take IPv4 only; IPv6 ones take both, unless told otherwise (as Linux does
    /// while `bindv6only` is 0).
    pub(crate) fn family_only(&self) -> bool {
        let ipv4 = self.source.is_some_and(|source| source.is_ipv4());
        self.options.family_only.unwrap_or(ipv4)
    }

    /// The phase of its conversation, if there is one.
    pub(crate) fn phase(&self) -> Option<Phase> {
        self.link.as_ref().map(|link| link.phase)
    }
}

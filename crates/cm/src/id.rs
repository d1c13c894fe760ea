//! Ids: one end of a connection, or a listener, as in `rdma_cm_id`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use wire::cm::PortSpace;
use wire::{AckTimeout, PathMtu, Psn, Qpn, QueueKey, RnrTimer};

use crate::exchange::Exchange;
use crate::exchange_state::ExchangeState;
use crate::retained_state::Source;
use crate::service_type::ServiceType;

/// Names one end of a connection, or a listener, like `rdma_cm_id`. A value is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(crate) u64);

/// The state of an id, as in `rdma_cm`. [`ExchangeState`] is the state of its message exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It is new.
    Idle,
    /// It has a local address and port.
    AddressBound,
    /// The driver resolves the peer's address.
    AddressQuery,
    /// The local address that leads to the peer is known.
    AddressResolved,
    /// The driver resolves the route.
    RouteQuery,
    /// The route is known: the id can connect.
    RouteResolved,
    /// It waits for requests.
    Listening,
    /// It is connecting, or connected, or was rejected.
    Connect,
    /// It was connected.
    Disconnect,
    /// The device was removed. The id can only be destroyed.
    DeviceRemoved,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Idle => "idle",
            State::AddressBound => "address bound",
            State::AddressQuery => "address query",
            State::AddressResolved => "address resolved",
            State::RouteQuery => "route query",
            State::RouteResolved => "route resolved",
            State::Listening => "listening",
            State::Connect => "connect",
            State::Disconnect => "disconnect",
            State::DeviceRemoved => "device removed",
        })
    }
}

/// What the driver knows about the path to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolvedRoute {
    /// The largest payload of a packet.
    pub mtu: PathMtu,
    /// Hop limit of packets; 64 is usual.
    pub hop_limit: u8,
    /// The static rate; 0 is the rate of the port.
    pub packet_rate: u8,
    /// The Ethernet priority; 0 unless the network has priorities.
    pub service_level: u8,
}

impl ResolvedRoute {
    /// A path with this MTU and default values for the rest.
    pub const fn new(mtu: PathMtu) -> ResolvedRoute {
        ResolvedRoute {
            mtu,
            hop_limit: 64,
            packet_rate: 0,
            service_level: 0,
        }
    }
}

/// The options that an application sets before it connects.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IdOptions {
    pub(crate) traffic_class: u8,
    pub(crate) ack_timeout: Option<AckTimeout>,
    pub(crate) min_rnr_timer: Option<RnrTimer>,
    pub(crate) reuse_address: bool,
    /// Whether a listener on all addresses accepts its own address family only.
    pub(crate) family_only: Option<bool>,
}

/// The requests of a listener that the application has not taken.
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
pub(crate) struct IdEntry {
    pub(crate) space: PortSpace,
    pub(crate) kind: ServiceType,
    pub(crate) state: State,
    pub(crate) options: IdOptions,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
    /// This id reserved the port. A child id uses the port of its listener.
    pub(crate) owns_port: bool,
    pub(crate) route: Option<ResolvedRoute>,
    /// The first PSN that the peer sends.
    pub(crate) first_psn: Psn,
    pub(crate) qpn: Qpn,
    pub(crate) queue_key: Option<QueueKey>,
    pub(crate) backlog: Option<Backlog>,
    /// The listener whose backlog counts this id.
    pub(crate) backlog_of: Option<Id>,
    /// The source that the half-open request is counted for.
    pub(crate) half_open: Option<Source>,
    pub(crate) memberships: Vec<Membership>,
    pub(crate) exchange: Option<Box<Exchange>>,
    /// The application has destroyed the id. It is kept until its DREQ is answered.
    pub(crate) destroyed: bool,
    /// When its timer expires.
    pub(crate) deadline: Option<Instant>,
    /// Its exit notice may have changed since the driver last asked.
    pub(crate) touched: bool,
}

impl IdEntry {
    pub(crate) fn new(space: PortSpace, kind: ServiceType, first_psn: Psn) -> Self {
        IdEntry {
            space,
            kind,
            state: State::Idle,
            options: IdOptions::default(),
            source: None,
            destination: None,
            owns_port: false,
            route: None,
            first_psn,
            qpn: Qpn::default(),
            queue_key: None,
            backlog: None,
            backlog_of: None,
            half_open: None,
            memberships: Vec::new(),
            exchange: None,
            destroyed: false,
            deadline: None,
            touched: false,
        }
    }

    /// An IPv4 listener accepts IPv4 only. An IPv6 listener accepts both families unless the option is
    /// set, as on Linux with `bindv6only` 0.
    pub(crate) fn family_only(&self) -> bool {
        let ipv4 = self.source.is_some_and(|source| source.is_ipv4());
        self.options.family_only.unwrap_or(ipv4)
    }

    /// The phase of its exchange, if there is one.
    pub(crate) fn phase(&self) -> Option<ExchangeState> {
        self.exchange.as_ref().map(|exchange| exchange.phase)
    }
}

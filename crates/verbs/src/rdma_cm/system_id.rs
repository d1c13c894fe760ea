//! Ids of the system's connection manager, in the terms of ours.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use driver::OpenError;
use driver::rdma_cm::{
    BindError, CallError, CmError, EventKind, Failure, Group, Parameters, PathAttributes,
    PeerParameters, RejectReason, Request, ServiceFound, ServiceStatus, Unreachable,
    private_data as limits,
};
use engine::{Attributes, State};
use net::socket::interface::{SystemChoice, source_towards};
use system::rdma_cm;
use wire::Gid;
use wire::cm::PrivateDataTooLong;

use crate::context::Context;

/// The numbers of the system errors that have a meaning here.
const NO_DEVICE: i32 = 19;
const ADDRESS_IN_USE: i32 = 98;
const ADDRESS_NOT_AVAILABLE: i32 = 99;
const NETWORK_UNREACHABLE: i32 = 101;
const TIMED_OUT: i32 = 110;
const CONNECTION_REFUSED: i32 = 111;
const HOST_UNREACHABLE: i32 = 113;

/// An id at devices of the system.
#[derive(Debug)]
pub(super) struct SystemId {
    id: rdma_cm::Id,
    devices: Devices,
    service: rdma_cm::Service,
}

/// The devices of the system that an id may use.
#[derive(Clone, Debug)]
pub(super) enum Devices {
    One(Context),
    Any(SystemChoice),
}

impl SystemId {
    /// Creates an id.
    pub(super) fn create(devices: Devices, service: rdma_cm::Service) -> Result<Self, CmError> {
        let id = rdma_cm::Id::create(service);
        let id = id.map_err(|error| CmError::SystemManager(error.into()))?;
        Ok(Self {
            id,
            devices,
            service,
        })
    }

    /// The id of a request to a listener that may use these devices.
    pub(super) fn of_request(id: rdma_cm::Id, devices: Devices, service: rdma_cm::Service) -> Self {
        Self {
            id,
            devices,
            service,
        }
    }

    pub(super) fn bind(&self, address: SocketAddr) -> Result<SocketAddr, CmError> {
        let bound = self.id.bind(address);
        bound.map_err(|refusal| match refusal.os_error() {
            Some(NO_DEVICE) => CmError::NoDevice(address.ip()),
            Some(ADDRESS_IN_USE) => BindError::AddressInUse(address).into(),
            Some(ADDRESS_NOT_AVAILABLE) => BindError::AddressNotAvailable(address).into(),
            _ => refusal.into(),
        })?;
        // An id at all addresses has no device. Requests that come to other devices are rejected.
        let is_at_other = |name: String| !self.devices.include(&name);
        if self.id.device().is_some_and(is_at_other) {
            return Err(CmError::NoDevice(address.ip()));
        }
        self.id.local_address().ok_or(CmError::NotBound)
    }

    pub(super) fn listen(&self, backlog: usize) -> Result<(), CmError> {
        Ok(self.id.listen(u16::try_from(backlog).unwrap_or(u16::MAX))?)
    }

    pub(super) fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Result<(), CmError> {
        let source = source.or_else(|| self.devices.source_towards(peer));
        let resolved = self.id.resolve_address(source, peer, timeout);
        resolved.map_err(|refusal| match (refusal.os_error(), source) {
            (Some(NO_DEVICE | ADDRESS_NOT_AVAILABLE), Some(source)) => {
                CmError::NoDevice(source.ip())
            }
            _ => refusal.into(),
        })
    }

    pub(super) fn resolve_route(&self, timeout: Duration) -> Result<(), CmError> {
        Ok(self.id.resolve_route(timeout)?)
    }

    /// The device that it is at.
    pub(super) fn context(&self) -> Result<Context, CmError> {
        let name = self.id.device().ok_or(CmError::NotBound)?;
        let local = self.id.local_address().ok_or(CmError::NotBound)?;
        if !self.devices.include(&name) {
            return Err(CmError::NoDevice(local.ip()));
        }
        Ok(self.devices.context(&name)?)
    }

    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        self.id.peer_address()
    }

    /// Asks for a connection. Returns an event if it is known already that there will be none: an iWARP device makes the TCP
    /// connection in this call.
    pub(super) fn connect(
        &self,
        parameters: &Parameters<'_>,
    ) -> Result<Option<EventKind>, CmError> {
        let max = self.limit(limits::REQUEST, limits::SERVICE_REQUEST);
        check_length(parameters.private_data, max)?;
        match self.id.connect(parameters_of(parameters)) {
            Ok(()) => Ok(None),
            Err(refusal) => match refusal.os_error() {
                Some(CONNECTION_REFUSED) => Ok(Some(EventKind::Rejected {
                    reason: RejectReason::InvalidServiceId,
                    private_data: Vec::new(),
                })),
                Some(TIMED_OUT | HOST_UNREACHABLE | NETWORK_UNREACHABLE) => {
                    Ok(Some(EventKind::Unreachable(Unreachable::TimedOut)))
                }
                _ => Err(refusal.into()),
            },
        }
    }

    pub(super) fn accept(&self, parameters: &Parameters<'_>) -> Result<(), CmError> {
        let max = self.limit(limits::REPLY, limits::SERVICE_REPLY);
        check_length(parameters.private_data, max)?;
        Ok(self.id.accept(parameters_of(parameters))?)
    }

    pub(super) fn reject(&self, private_data: &[u8]) -> Result<(), CmError> {
        let max = self.limit(limits::REJECT, limits::SERVICE_REPLY);
        check_length(private_data, max)?;
        Ok(self.id.reject(private_data)?)
    }

    /// The limit of private data, which messages about datagram services have of their own.
    fn limit(&self, of_connections: usize, of_datagrams: usize) -> usize {
        match self.service {
            rdma_cm::Service::Connections => of_connections,
            rdma_cm::Service::Datagrams => of_datagrams,
        }
    }

    pub(super) fn join(&self, group: IpAddr, send_only: bool) -> Result<(), CmError> {
        Ok(self.id.join(group, send_only)?)
    }

    pub(super) fn leave(&self, group: IpAddr) -> Result<(), CmError> {
        Ok(self.id.leave(group)?)
    }

    pub(super) fn establish(&self) -> Result<(), CmError> {
        Ok(self.id.establish()?)
    }

    pub(super) fn disconnect(&self) -> Result<(), CmError> {
        Ok(self.id.disconnect()?)
    }

    pub(super) fn attributes(&self, state: State) -> Result<Attributes, CmError> {
        Ok(self.id.attributes(state)?)
    }

    pub(super) fn set_option(&self, option: rdma_cm::IdOption) -> Result<(), CmError> {
        Ok(self.id.set_option(option)?)
    }

    pub(super) fn deliver_to(&self, receiver: rdma_cm::Receiver) {
        self.id.deliver_to(receiver);
    }

    pub(super) fn confirm_end(&self, at_once: bool) {
        self.id.confirm_end(at_once);
    }
}

/// An event of an id with this local address in the terms of our connection manager, if it has one for it; and the new id, if it is a
/// request.
pub(super) fn kind_of(
    event: rdma_cm::Event,
    local: Option<SocketAddr>,
) -> (Option<EventKind>, Option<rdma_cm::Id>) {
    use rdma_cm::Event as Of;
    let kind = match event {
        Of::ServiceRequest(id, private_data) => {
            let request = Request::Service { private_data };
            return (Some(EventKind::request_elsewhere(request)), Some(id));
        }
        Of::ServiceFound {
            destination,
            private_data,
        } => EventKind::ServiceFound(ServiceFound {
            remote_qpn: destination.queue_pair,
            queue_key: destination.queue_key,
            path: path_of(&destination, local),
            private_data,
        }),
        Of::MulticastJoined { group, destination } => EventKind::MulticastJoin(Group {
            group,
            queue_key: destination.queue_key,
            path: path_of(&destination, local),
        }),
        Of::MulticastError { group, error } => EventKind::MulticastError {
            group,
            failure: failure(error),
        },
        Of::Request(id, parameters) => {
            let request = Request::Connection(peer_parameters(parameters));
            return (Some(EventKind::request_elsewhere(request)), Some(id));
        }
        Of::AddressResolved => EventKind::AddressResolved,
        Of::AddressError(number) => EventKind::AddressError(failure(number)),
        Of::RouteResolved => EventKind::RouteResolved,
        Of::RouteError(number) => EventKind::RouteError(failure(number)),
        Of::Response(parameters) => EventKind::ConnectResponse(peer_parameters(parameters)),
        Of::ConnectError(number) => EventKind::ConnectError(failure(number)),
        Of::Unreachable {
            service_status,
            private_data,
        } => {
            let refused = |code| Unreachable::Rejected {
                status: ServiceStatus::from_code(code),
                private_data,
            };
            EventKind::Unreachable(service_status.map_or(Unreachable::TimedOut, refused))
        }
        Of::Rejected {
            reason,
            private_data,
        } => EventKind::Rejected {
            reason: RejectReason::from_code(reason),
            private_data,
        },
        Of::Established => EventKind::Established,
        Of::Disconnected { timed_out } => EventKind::Disconnected { timed_out },
        Of::DeviceRemoval => EventKind::DeviceRemoval,
        Of::AddressChange => EventKind::AddressChange,
        Of::TimewaitExit => EventKind::TimewaitExit,
        // An event that is newer than this library.
        _ => return (None, None),
    };
    (Some(kind), None)
}

impl Devices {
    fn include(&self, name: &str) -> bool {
        match self {
            Self::One(context) => context.name() == name,
            Self::Any(choice) => choice.includes(name),
        }
    }

    /// The device with a name, which is one of them.
    fn context(&self, name: &str) -> Result<Context, OpenError> {
        match self {
            Self::One(context) => Ok(context.clone()),
            Self::Any(_) => Context::of_system(name),
        }
    }

    /// The address from which one device reaches a peer; `None` if the routes of the kernel say which one it is.
    fn source_towards(&self, peer: SocketAddr) -> Option<SocketAddr> {
        let Self::One(context) = self else {
            return None;
        };
        let addresses = context.device().gids.iter().map(|entry| entry.address);
        let addresses: Vec<_> = addresses.collect();
        let routed = source_towards(peer).ok();
        source_among(&addresses, routed, peer.ip()).map(|address| (address, 0).into())
    }
}

/// The first address of a device that a peer of its kind reaches; `None` if the route to the peer starts at one of them.
fn source_among(addresses: &[IpAddr], routed: Option<IpAddr>, peer: IpAddr) -> Option<IpAddr> {
    if routed.is_some_and(|routed| addresses.contains(&routed)) {
        return None;
    }
    let is_link_local = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let kind = |address: &IpAddr| (address.is_ipv4(), is_link_local(address));
    let mut addresses = addresses.iter().copied();
    addresses.find(|address| kind(address) == kind(&peer))
}

/// The path of datagrams from a local address.
fn path_of(to: &rdma_cm::DatagramDestination, local: Option<SocketAddr>) -> PathAttributes {
    let address = &to.address;
    PathAttributes {
        local_gid: local.map_or(Gid::default(), |local| local.ip().into()),
        remote_gid: address.destination,
        flow_label: address.flow_label,
        traffic_class: address.traffic_class,
        hop_limit: address.hop_limit,
        service_level: address.service_level,
        packet_rate: 0,
    }
}

fn failure(number: i32) -> Failure {
    match number {
        TIMED_OUT => Failure::TimedOut,
        NO_DEVICE => Failure::NoDevice,
        number => Failure::Os(number),
    }
}

/// Refuses private data that does not fit into its message, as our connection manager does.
fn check_length(private_data: &[u8], max: usize) -> Result<(), CmError> {
    let length = private_data.len();
    if length > max {
        let error = PrivateDataTooLong { length, max };
        return Err(CallError::PrivateData(error).into());
    }
    Ok(())
}

fn parameters_of<'d>(parameters: &Parameters<'d>) -> rdma_cm::Parameters<'d> {
    rdma_cm::Parameters {
        queue_pair: parameters.qpn,
        shared_receive_queue: parameters.shared_receive_queue,
        private_data: parameters.private_data,
        responder_resources: parameters.responder_resources,
        initiator_depth: parameters.initiator_depth,
        retry_count: parameters.retry_count,
        rnr_retry_count: parameters.rnr_retry_count,
    }
}

fn peer_parameters(found: rdma_cm::PeerParameters) -> PeerParameters {
    PeerParameters {
        remote_qpn: found.queue_pair,
        shared_receive_queue: found.shared_receive_queue,
        responder_resources: found.responder_resources,
        initiator_depth: found.initiator_depth,
        flow_control: false,
        retry_count: found.retry_count,
        rnr_retry_count: found.rnr_retry_count,
        private_data: found.private_data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_uses_only_the_devices_that_were_chosen() {
        let chosen = Devices::Any(SystemChoice::Named(vec!["mlx5_1".into()]));
        assert_eq!(
            ["mlx5_0", "mlx5_1"].map(|name| chosen.include(name)),
            [false, true]
        );
        assert!(Devices::Any(SystemChoice::All).include("mlx5_0"));
    }

    #[test]
    fn any_address_of_a_device_may_be_where_the_route_starts_or_reach_a_peer() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let own = ["fe80::1", "10.0.0.1", "10.0.1.1", "2001:db8::1"].map(address);
        let elsewhere = Some(address("192.0.2.1"));
        for (peer, source) in [
            ("10.0.1.9", Some(own[1])),
            ("2001:db8::9", Some(own[3])),
            ("fe80::9", Some(own[0])),
            ("169.254.0.9", None),
        ] {
            let peer = address(peer);
            for routed in [elsewhere, None] {
                assert_eq!(source_among(&own, routed, peer), source, "{peer}");
            }
            for own_address in own {
                assert_eq!(source_among(&own, Some(own_address), peer), None);
            }
        }
    }
}

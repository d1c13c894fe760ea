//! Address and route resolution: the driver resolves, the id keeps the result.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::error::CallError;
use crate::event::{EventKind, Failure, Instruction};
use crate::id::{Id, ResolvedRoute, State};
use crate::manager::Manager;

/// The longest resolution timeout, so that adding it to the current time can't overflow.
const MAX_RESOLVE_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

impl Manager {
    /// Resolves a peer's address, like `rdma_resolve_addr`. An idle id is bound first: to `source`, or
    /// to a free port of all addresses. Results in an event.
    pub fn resolve_address(
        &mut self,
        now: Instant,
        id: Id,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<(), CallError> {
        let entry = self.entry(id)?;
        let bound = entry.source.or(source);
        if bound.is_some_and(|source| source.is_ipv4() != destination.is_ipv4()) {
            return Err(CallError::FamilyMismatch);
        }
        match entry.state {
            State::Idle => {
                let source = source.unwrap_or_else(|| any_address(destination));
                self.bind(id, source)?;
            }
            State::AddressBound => {}
            state => return Err(CallError::WrongState(state)),
        }
        let entry = self.known(id);
        entry.state = State::AddressQuery;
        entry.destination = Some(destination);
        let source = entry.source.expect("a bound id has an address");
        self.instructions.push_back(Instruction::ResolveAddress {
            id,
            source,
            destination,
        });
        self.set_timer(id, now + timeout.min(MAX_RESOLVE_TIMEOUT));
        Ok(())
    }

    /// The driver's result: the local address that leads to the peer. A late call is ignored.
    pub fn address_resolved(&mut self, id: Id, result: Result<IpAddr, Failure>) {
        if self.state(id) != Some(State::AddressQuery) {
            return;
        }
        self.clear_timer(id);
        let entry = self.known(id);
        let kind = match result {
            Ok(local) => {
                let bound = entry.source.as_mut().expect("a bound id has an address");
                bound.set_ip(local);
                entry.state = State::AddressResolved;
                EventKind::AddressResolved
            }
            Err(failure) => {
                entry.state = State::AddressBound;
                EventKind::AddressError(failure)
            }
        };
        self.emit(id, kind);
    }

    /// Resolves the route, like `rdma_resolve_route`. Results in an event.
    pub fn resolve_route(
        &mut self,
        now: Instant,
        id: Id,
        timeout: Duration,
    ) -> Result<(), CallError> {
        let entry = self.entry_mut(id)?;
        let (State::AddressResolved, Some(source), Some(destination)) =
            (entry.state, entry.source, entry.destination)
        else {
            return Err(CallError::WrongState(entry.state));
        };
        entry.state = State::RouteQuery;
        self.instructions.push_back(Instruction::ResolveRoute {
            id,
            source: source.ip(),
            destination: destination.ip(),
        });
        self.set_timer(id, now + timeout.min(MAX_RESOLVE_TIMEOUT));
        Ok(())
    }

    /// The driver's result: the route. A late call is ignored.
    pub fn route_resolved(&mut self, id: Id, result: Result<ResolvedRoute, Failure>) {
        if self.state(id) != Some(State::RouteQuery) {
            return;
        }
        self.clear_timer(id);
        let entry = self.known(id);
        let kind = match result {
            Ok(route) => {
                entry.route = Some(route);
                entry.state = State::RouteResolved;
                EventKind::RouteResolved
            }
            Err(failure) => {
                entry.state = State::AddressResolved;
                EventKind::RouteError(failure)
            }
        };
        self.emit(id, kind);
    }
}

fn any_address(destination: SocketAddr) -> SocketAddr {
    let any: IpAddr = match destination {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, 0)
}

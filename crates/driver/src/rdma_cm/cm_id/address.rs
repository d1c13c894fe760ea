//! Binds an id to a local address, and finds the device for a peer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cm::{CallError, EventKind, State};
use errors::{Cause, cause};

use super::bind_state::BindState;
use super::{CmId, Inner};
use crate::Driver;
use crate::check;
use crate::diagnostics;
use crate::fabric::here;
use crate::rdma_cm::id_on_device::IdOnDevice;
use crate::rdma_cm::{CmError, devices};

/// How many ports are tried when the library chooses the port and another process has it.
const ATTEMPTS: usize = 64;

impl CmId {
    /// Binds it to a local address and port. An unspecified address stands for all addresses; with
    /// port 0, a free port is chosen. Returns the address and port.
    pub fn bind(&self, address: SocketAddr) -> Result<SocketAddr, CmError> {
        self.with_inner(|inner| {
            if !matches!(inner.bind_state, BindState::Unbound) {
                return Err(CmError::AlreadyBound);
            }
            let (drivers, address) = match &inner.chosen {
                Some(driver) => (vec![Arc::clone(driver)], address),
                None => devices::having(address)?,
            };
            let (device_ids, bound) = self.bind_at(&drivers, inner, address)?;
            inner.bind_state = BindState::of(device_ids, address.ip());
            Ok(bound)
        })
    }

    /// Starts to listen; `backlog` requests may wait for the application.
    pub fn listen(&self, backlog: usize) -> Result<(), CmError> {
        if matches!(self.inner().bind_state, BindState::Unbound) {
            self.bind(SocketAddr::from(([0, 0, 0, 0], 0)))?;
        }
        self.with_inner(|inner| {
            let mut device_ids = inner.bind_state.device_ids().iter();
            device_ids.try_for_each(|device_id| {
                device_id.call_manager(|manager, _, id| Ok(manager.listen(id, backlog)?))
            })
        })
    }

    /// Starts to resolve the address of a peer, and binds the id if it is not bound. An event
    /// reports the result.
    pub fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Result<(), CmError> {
        let peer = devices::or_loopback(peer);
        let unresolved = self.with_inner(|inner| self.resolve_at(inner, source, peer, timeout))?;
        if let Some(error) = unresolved {
            self.report_unresolved(source, peer, &error);
        }
        Ok(())
    }

    /// Starts to resolve the address at the device that leads to it. If there is none, returns why.
    fn resolve_at(
        &self,
        inner: &mut Inner,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Result<Option<CmError>, CmError> {
        check_resolvable(inner, source, peer)?;
        match self.go_towards(inner, source, peer) {
            Ok(()) => {}
            Err(error @ (CmError::NoRoute { .. } | CmError::NoDevice(_) | CmError::Open(_))) => {
                return Ok(Some(error));
            }
            Err(error) => return Err(error),
        }
        let BindState::OneDevice(device_id) = &inner.bind_state else {
            return Err(CmError::NotBound);
        };
        device_id.call_manager(|manager, now, id| {
            manager.resolve_address(now, id, None, peer, timeout)?;
            Ok(None)
        })
    }

    /// Binds at each of the devices, with the same port everywhere.
    fn bind_at(
        &self,
        drivers: &[Arc<Driver>],
        inner: &Inner,
        address: SocketAddr,
    ) -> Result<(Vec<IdOnDevice>, SocketAddr), CmError> {
        let attempts = if address.port() == 0 { ATTEMPTS } else { 1 };
        let mut refused = CmError::NoDevice(address.ip());
        for _ in 0..attempts {
            match self.bind_once(drivers, inner, address) {
                Err(error @ (CmError::Service(_) | CmError::Bind(_))) => {
                    refused = error;
                }
                outcome => return outcome,
            }
        }
        Err(refused)
    }

    fn bind_once(
        &self,
        drivers: &[Arc<Driver>],
        inner: &Inner,
        mut address: SocketAddr,
    ) -> Result<(Vec<IdOnDevice>, SocketAddr), CmError> {
        let mut device_ids = Vec::with_capacity(drivers.len());
        for driver in drivers {
            let mut device_id = self.device_id(driver, inner)?;
            address = device_id.bind(self.space, address)?;
            device_ids.push(device_id);
        }
        if device_ids.is_empty() {
            Err(CmError::NoDevice(address.ip()))
        } else {
            Ok((device_ids, address))
        }
    }

    fn device_id(&self, driver: &Arc<Driver>, inner: &Inner) -> Result<IdOnDevice, CmError> {
        let made_for = (self.space, self.service_type);
        IdOnDevice::create(driver, &inner.channel, self.token, made_for, &inner.options)
    }

    /// Ensures that it is at the device from which the peer can be reached.
    fn go_towards(
        &self,
        inner: &mut Inner,
        source: Option<SocketAddr>,
        peer: SocketAddr,
    ) -> Result<(), CmError> {
        let source = source.filter(|it| !it.ip().is_unspecified() || it.port() != 0);
        let port = match &inner.bind_state {
            BindState::OneDevice(device_id) => {
                return local_address(device_id).map_or(Ok(()), |own| ensure_route(own.ip(), peer));
            }
            BindState::Unbound => source.map_or(0, |source| source.port()),
            BindState::AllDevices(device_ids) => bound_port(device_ids).unwrap_or(0),
        };
        let (driver, address) = match (&inner.chosen, source) {
            (Some(driver), _) => (Arc::clone(driver), own_address(driver, peer)?),
            (None, Some(source)) if !source.ip().is_unspecified() => {
                (devices::at(source.ip())?, source.ip())
            }
            (None, _) => devices::towards(peer)?,
        };
        ensure_route(address, peer)?;
        // Its port must be released before it can be claimed at that device alone.
        inner.bind_state = BindState::Unbound;
        let mut device_id = self.device_id(&driver, inner)?;
        match port {
            // No peer connects to an id that only connects, so its port needs no claim.
            0 => device_id.call_manager(|manager, _, id| {
                manager.bind(id, SocketAddr::new(address, 0))?;
                Ok(())
            })?,
            port => drop(device_id.bind(self.space, SocketAddr::new(address, port))?),
        }
        inner.bind_state = BindState::OneDevice(device_id);
        Ok(())
    }

    /// Reports that no device reaches the peer. Linux reports this by an event, too.
    fn report_unresolved(&self, source: Option<SocketAddr>, peer: SocketAddr, error: &CmError) {
        let explained = diagnostics::report_unresolved(source, peer, why_unresolved(peer, error));
        explained.into_iter().for_each(check::note_explained);
        self.report(EventKind::AddressError(devices::failure(error)));
    }
}

/// Fails as the manager does, before the id moves to another device: a listener must stay one.
fn check_resolvable(
    inner: &Inner,
    source: Option<SocketAddr>,
    peer: SocketAddr,
) -> Result<(), CmError> {
    let own = match inner.bind_state.device_ids().first() {
        Some(device_id) => device_id.call_manager(|manager, _, id| match manager.state(id) {
            Some(State::AddressBound) => Ok(manager.local_address(id)),
            Some(state) => Err(CallError::WrongState(state).into()),
            None => Err(CallError::UnknownId.into()),
        })?,
        None => source,
    };
    match own {
        Some(own) if own.is_ipv4() != peer.is_ipv4() => Err(CallError::FamilyMismatch.into()),
        _ => Ok(()),
    }
}

fn bound_port(device_ids: &[IdOnDevice]) -> Option<u16> {
    local_address(device_ids.first()?).map(|address| address.port())
}

fn local_address(device_id: &IdOnDevice) -> Option<SocketAddr> {
    let bound = device_id.call_manager(|manager, _, id| Ok(manager.local_address(id)));
    bound.ok().flatten()
}

/// Fails if packets from this address can't go to the peer: then no device fits.
fn ensure_route(own: IpAddr, peer: SocketAddr) -> Result<(), CmError> {
    if here(|machine| machine.can_reach(own, peer)) {
        Ok(())
    } else {
        Err(CmError::NoDevice(peer.ip()))
    }
}

/// The address of a chosen device from which a peer can be reached.
fn own_address(driver: &Driver, peer: SocketAddr) -> Result<IpAddr, CmError> {
    let entries = &driver.device().gids;
    let own: Vec<IpAddr> = entries.iter().map(|entry| entry.address).collect();
    let usual = here(|machine| machine.source_towards(peer)).ok();
    let same_family = || own.iter().find(|it| it.is_ipv4() == peer.is_ipv4());
    let found = own
        .iter()
        .find(|it| Some(**it) == usual)
        .or_else(same_family);
    found.copied().ok_or(CmError::NoDevice(peer.ip()))
}

/// What is wrong if no device leads to a peer, and the cause in the catalogue.
fn why_unresolved(peer: SocketAddr, error: &CmError) -> (String, &'static Cause) {
    match error {
        CmError::NoDevice(address) if *address == peer.ip() => (
            "no RDMA device that this program uses has a route to it".to_owned(),
            &cause::NO_DEVICE,
        ),
        CmError::NoDevice(address) => (
            format!("no RDMA device of this program has the local address {address}"),
            &cause::NO_DEVICE,
        ),
        CmError::NoRoute { .. } => (error.to_string(), &cause::NO_ROUTE),
        _ => (error.to_string(), &cause::CANNOT_OPEN),
    }
}

#[cfg(test)]
mod tests {
    use crate::rdma_cm::{EventChannel, PortSpace};

    #[test]
    fn an_id_that_is_bound_to_a_port_of_all_addresses_connects_from_this_port() {
        let channel = EventChannel::new().expect("a descriptor");
        let id = channel.create_id(PortSpace::Tcp);
        let bound = id.bind("0.0.0.0:7181".parse().expect("an address"));
        assert_eq!(bound.expect("a free port").port(), 7181);
        let own = id.local_address().expect("it is bound");
        let peer = (own.ip(), 7182).into();
        let resolved = id.resolve_address(None, peer, std::time::Duration::from_secs(20));
        resolved.expect("an own address");
        assert_eq!(id.local_address().map(|own| own.port()), Some(7181));
    }
}

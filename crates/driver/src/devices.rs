//! Finds the devices of this machine, or of a simulated host.

use std::io;
use std::net::{IpAddr, SocketAddr};

use net::interface::Device;

use crate::options::OpenError;
use crate::simulation;

/// The devices of this machine: those in `ROCI_DEVICES`, or else the user's links and every interface that
/// is up and has an address. Loopback is included only if no other interface is connected; [`device`] always
/// finds it by name.
pub fn devices() -> Result<Vec<Device>, OpenError> {
    match simulation::devices() {
        Some(devices) => Ok(devices),
        None => Ok(net::interface::from_env()?),
    }
}

/// Whether this thread runs a simulated host, which has no devices of the system.
pub fn is_simulated() -> bool {
    simulation::place().is_some()
}

/// The devices that programs choose from, and loopback.
pub(crate) fn reachable() -> Result<Vec<Device>, OpenError> {
    match simulation::devices() {
        Some(devices) => Ok(devices),
        None => Ok(net::interface::reachable()?),
    }
}

/// The local address from which a peer can be reached.
pub(crate) fn source_towards(peer: SocketAddr) -> io::Result<IpAddr> {
    match simulation::own_address(peer) {
        Some(own) => own.ok_or_else(|| io::ErrorKind::NetworkUnreachable.into()),
        None => net::interface::source_towards(peer),
    }
}

/// Whether packets from one of our addresses can go to a peer.
pub(crate) fn can_reach(own: IpAddr, peer: SocketAddr) -> bool {
    simulation::place().is_some() || net::interface::can_reach(own, peer)
}

/// The device that has this address.
pub fn device_at(address: IpAddr) -> Result<Option<Device>, OpenError> {
    let mut reachable = reachable()?.into_iter();
    Ok(reachable.find(|device| device.gid_of(address).is_some()))
}

/// The device with this name. The name of an interface or an address is also valid, even if it is not listed.
pub fn device(name: &str) -> Result<Device, OpenError> {
    let mut reachable = reachable()?.into_iter();
    if let Some(device) = reachable.find(|device| device.name == name) {
        return Ok(device);
    }
    let known = devices()?;
    let made = match simulation::place() {
        Some(_) => known
            .iter()
            .filter(|it| is_named(it, name))
            .cloned()
            .collect(),
        None => net::interface::devices(Some(name)).unwrap_or_default(),
    };
    match <[Device; 1]>::try_from(made) {
        Ok([device]) => Ok(device),
        Err(_) => Err(OpenError::Unknown {
            name: name.to_owned(),
            known: known.into_iter().map(|device| device.name).collect(),
        }),
    }
}

/// Whether a name is that of the device's interface, or one of its addresses.
fn is_named(device: &Device, name: &str) -> bool {
    let mut addresses = device.gids.iter().map(|entry| entry.address.to_string());
    device.interface.as_ref().is_some_and(|it| it.name == name)
        || addresses.any(|address| address == name)
}

//! Finds the devices of this machine, or of a simulated host.

use std::net::IpAddr;

use net::socket::interface::Device;

use crate::fabric::here;
use crate::options::OpenError;

/// The devices of this machine: those in `ROCI_DEVICES`, or else the user's links and every interface that
/// is up and has an address. Loopback is included only if no other interface is connected; [`device`] always
/// finds it by name.
pub fn devices() -> Result<Vec<Device>, OpenError> {
    here(|machine| machine.devices())
}

/// Whether this thread runs a simulated host, which has no devices of the system.
pub fn is_simulated() -> bool {
    here(|machine| machine.run().is_some())
}

/// The device that has this address.
pub fn device_at(address: IpAddr) -> Result<Option<Device>, OpenError> {
    let mut reachable = here(|machine| machine.reachable())?.into_iter();
    Ok(reachable.find(|device| device.gid_of(address).is_some()))
}

/// The device with this name. The name of an interface or an address is also valid, even if it is not listed.
pub fn device(name: &str) -> Result<Device, OpenError> {
    let mut reachable = here(|machine| machine.reachable())?.into_iter();
    if let Some(device) = reachable.find(|device| device.name == name) {
        return Ok(device);
    }
    let known = devices()?;
    match <[Device; 1]>::try_from(here(|machine| machine.named(name))) {
        Ok([device]) => Ok(device),
        Err(_) => Err(OpenError::Unknown {
            name: name.to_owned(),
            known: known.into_iter().map(|device| device.name).collect(),
        }),
    }
}

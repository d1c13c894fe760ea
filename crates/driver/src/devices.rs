//! Finds the devices of this machine.

use std::net::IpAddr;

use net::interface::Device;

use crate::options::OpenError;

/// The devices of this machine: those in `ROCI_DEVICES`, or else the user's links and every interface that
/// is up and has an address. Loopback is included only if no other interface is connected; [`device`] always
/// finds it by name.
pub fn devices() -> Result<Vec<Device>, OpenError> {
    Ok(net::interface::from_env()?)
}

/// The device that has this address.
pub fn device_at(address: IpAddr) -> Result<Option<Device>, OpenError> {
    let mut reachable = net::interface::reachable()?.into_iter();
    Ok(reachable.find(|device| device.gid_of(address).is_some()))
}

/// The device with this name. The name of an interface or an address is also valid, even if it is not listed.
pub fn device(name: &str) -> Result<Device, OpenError> {
    let mut reachable = net::interface::reachable()?.into_iter();
    if let Some(device) = reachable.find(|device| device.name == name) {
        return Ok(device);
    }
    let known = devices()?.into_iter().map(|device| device.name).collect();
    match net::interface::devices(Some(name)) {
        Ok(mut made) if made.len() == 1 => Ok(made.remove(0)),
        _ => Err(OpenError::Unknown {
            name: name.to_owned(),
            known,
        }),
    }
}

//! The device of one side.

use std::net::IpAddr;

use rocinante::Context;

use crate::find_device;

/// An open device, and the index of its address.
pub(super) struct LocalDevice {
    pub(super) context: Context,
    pub(super) gid_index: u8,
}

/// Opens the named device, or the one with the address of the TCP connection.
pub(super) fn open(
    name: Option<&str>,
    gid_index: Option<u8>,
    connected: IpAddr,
) -> anyhow::Result<LocalDevice> {
    let (name, device) = match name {
        Some(name) => (name.to_owned(), find_device::openable(name)?),
        None => find_device::having(connected)?,
    };
    let index = match gid_index {
        Some(_) => find_device::gid(&device, gid_index)?.index,
        None => find_device::gid_towards(&device, connected)?.index,
    };
    Ok(LocalDevice {
        context: Context::open(&name)?,
        gid_index: u8::try_from(index)?,
    })
}

/// A device with a single address.
pub(super) fn on_loopback(context: Context) -> LocalDevice {
    LocalDevice {
        context,
        gid_index: 0,
    }
}

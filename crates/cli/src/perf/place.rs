//! Which device a side uses.

use std::net::IpAddr;

use rocinante::Context;

use crate::device;

/// A device that is open, and which of its addresses to use.
pub(super) struct Place {
    pub(super) context: Context,
    pub(super) gid_index: u8,
}

/// The device that was asked for, or the one that has the address by which we are connected.
pub(super) fn open(
    name: Option<&str>,
    gid_index: Option<u8>,
    connected: IpAddr,
) -> anyhow::Result<Place> {
    let (name, device) = match name {
        Some(name) => (name.to_owned(), device::named(name)?),
        None => device::having(connected)?,
    };
    let index = match gid_index {
        Some(_) => device::gid(&device, gid_index)?.index,
        None => device::gid_towards(&device, connected)?.index,
    };
    Ok(Place {
        context: Context::open(&name)?,
        gid_index: u8::try_from(index)?,
    })
}

/// A device that has one address only.
pub(super) fn on_loopback(context: Context) -> Place {
    Place {
        context,
        gid_index: 0,
    }
}

//! The devices that an id is bound at.

use std::net::IpAddr;

use crate::rdma_cm::id_on_device::IdOnDevice;

/// The devices that an id is bound at.
pub(super) enum BindState {
    /// The id is not bound yet.
    Unbound,
    /// At one device.
    OneDevice(IdOnDevice),
    /// At all devices, because it is bound to an unspecified address.
    AllDevices(Vec<IdOnDevice>),
}

impl BindState {
    /// The state of an id that was bound to an address, with its part at each device. An unspecified address stands for
    /// all.
    pub(super) fn of(mut device_ids: Vec<IdOnDevice>, ip: IpAddr) -> Self {
        if !ip.is_unspecified() && device_ids.len() == 1 {
            Self::OneDevice(device_ids.remove(0))
        } else {
            Self::AllDevices(device_ids)
        }
    }

    /// The id at each of its devices.
    pub(super) fn device_ids(&self) -> &[IdOnDevice] {
        match self {
            Self::Unbound => &[],
            Self::OneDevice(device_id) => std::slice::from_ref(device_id),
            Self::AllDevices(device_ids) => device_ids,
        }
    }
}

//! Where an id is.

use std::net::IpAddr;

use crate::rdma_cm::device_id::DeviceId;

/// Where an id is.
pub(super) enum BindState {
    /// Nobody has said yet.
    Unbound,
    /// At one device.
    OneDevice(DeviceId),
    /// At all devices: bound to no particular address.
    AllDevices(Vec<DeviceId>),
}

impl BindState {
    /// Of device_ids that were bound to an address: an unspecified one stands for all.
    pub(super) fn of(mut device_ids: Vec<DeviceId>, ip: IpAddr) -> Self {
        if !ip.is_unspecified() && device_ids.len() == 1 {
            Self::OneDevice(device_ids.remove(0))
        } else {
            Self::AllDevices(device_ids)
        }
    }

    /// All of its device_ids, wherever they are.
    pub(super) fn device_ids(&self) -> &[DeviceId] {
        match self {
            Self::Unbound => &[],
            Self::OneDevice(device_id) => std::slice::from_ref(device_id),
            Self::AllDevices(device_ids) => device_ids,
        }
    }
}

//! Where an id is.

use std::net::IpAddr;

use crate::rdma_cm::seat::Seat;

/// Where an id is.
pub(super) enum Place {
    /// Nobody has said yet.
    Nowhere,
    /// At one device.
    At(Seat),
    /// At all devices: bound to no particular address.
    Everywhere(Vec<Seat>),
}

impl Place {
    /// Of seats that were bound to an address: an unspecified one stands for all.
    pub(super) fn of(mut seats: Vec<Seat>, ip: IpAddr) -> Self {
        match ip.is_unspecified() {
            false if seats.len() == 1 => Self::At(seats.remove(0)),
            _ => Self::Everywhere(seats),
        }
    }

    /// All of its seats, wherever they are.
    pub(super) fn seats(&self) -> &[Seat] {
        match self {
            Self::Nowhere => &[],
            Self::At(seat) => std::slice::from_ref(seat),
            Self::Everywhere(seats) => seats,
        }
    }
}

//! What an application sets, at a device or before there is one.

use wire::{AckTimeout, RnrTimer};

use super::Identifier;
use crate::rdma_cm::ConnectionError;
use crate::rdma_cm::seat::Wishes;

impl Identifier {
    /// The traffic class (ToS) of everything that it sends.
    pub fn set_traffic_class(&self, class: u8) -> Result<(), ConnectionError> {
        self.wish(|wishes| wishes.traffic_class = Some(class))
    }

    /// The acknowledge timeout of its queue pair.
    pub fn set_ack_timeout(&self, timeout: AckTimeout) -> Result<(), ConnectionError> {
        self.wish(|wishes| wishes.ack_timeout = Some(timeout))
    }

    /// How long the peer has to wait when no receive is posted.
    pub fn set_rnr_timer(&self, timer: RnrTimer) -> Result<(), ConnectionError> {
        self.wish(|wishes| wishes.rnr_timer = Some(timer))
    }

    /// Lets several ids share a port, as long as none of them listens.
    pub fn set_reuse_address(&self, reuse: bool) -> Result<(), ConnectionError> {
        self.wish(|wishes| wishes.reuse_address = Some(reuse))
    }

    /// Whether a listener on all addresses keeps to its own address family.
    pub fn set_family_only(&self, only: bool) -> Result<(), ConnectionError> {
        self.wish(|wishes| wishes.family_only = Some(only))
    }

    fn wish(&self, wish: impl FnOnce(&mut Wishes)) -> Result<(), ConnectionError> {
        let mut inner = self.inner();
        let mut new = Wishes::default();
        wish(&mut new);
        let seats = inner.place.seats();
        seats.iter().try_for_each(|seat| seat.wish(&new))?;
        inner.wishes.update(&new);
        Ok(())
    }
}

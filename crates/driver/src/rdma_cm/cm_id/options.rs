//! Options that an application sets, at a device or before there is one.

use wire::{AckTimeout, RnrTimer};

use super::CmId;
use crate::rdma_cm::CmError;
use crate::rdma_cm::id_on_device::IdOptions;

impl CmId {
    /// Sets the traffic class (ToS) of everything that it sends.
    pub fn set_traffic_class(&self, class: u8) -> Result<(), CmError> {
        self.set_option(|options| options.traffic_class = Some(class))
    }

    /// Sets the acknowledge timeout of its queue pair.
    pub fn set_ack_timeout(&self, timeout: AckTimeout) -> Result<(), CmError> {
        self.set_option(|options| options.ack_timeout = Some(timeout))
    }

    /// Sets how long the peer waits if no receive is posted.
    pub fn set_rnr_timer(&self, timer: RnrTimer) -> Result<(), CmError> {
        self.set_option(|options| options.rnr_timer = Some(timer))
    }

    /// Lets several ids share a port while none of them listens.
    pub fn set_reuse_address(&self, reuse: bool) -> Result<(), CmError> {
        self.set_option(|options| options.reuse_address = Some(reuse))
    }

    /// Sets whether a listener on all addresses accepts only its own address family.
    pub fn set_family_only(&self, only: bool) -> Result<(), CmError> {
        self.set_option(|options| options.family_only = Some(only))
    }

    fn set_option(&self, set: impl FnOnce(&mut IdOptions)) -> Result<(), CmError> {
        let mut new = IdOptions::default();
        set(&mut new);
        self.with_inner(|inner| {
            let mut device_ids = inner.bind_state.device_ids().iter();
            device_ids.try_for_each(|device_id| device_id.set_options(&new))?;
            inner.options.update(&new);
            Ok(())
        })
    }
}

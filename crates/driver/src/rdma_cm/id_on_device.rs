//! An id at one device.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use cm::{Manager, ServiceType};
use wire::cm::{PortSpace, ServiceId};
use wire::{AckTimeout, RnrTimer};

use super::CmError;
use super::channel::EventChannel;
use crate::Driver;
use crate::cm_events::Subscriber;

/// The options that an application sets before the device is known.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IdOptions {
    pub(super) traffic_class: Option<u8>,
    pub(super) ack_timeout: Option<AckTimeout>,
    pub(super) rnr_timer: Option<RnrTimer>,
    pub(super) reuse_address: Option<bool>,
    pub(super) family_only: Option<bool>,
}

impl IdOptions {
    /// Overwrites the options that `new` sets.
    pub(super) fn update(&mut self, new: &Self) {
        self.traffic_class = new.traffic_class.or(self.traffic_class);
        self.ack_timeout = new.ack_timeout.or(self.ack_timeout);
        self.rnr_timer = new.rnr_timer.or(self.rnr_timer);
        self.reuse_address = new.reuse_address.or(self.reuse_address);
        self.family_only = new.family_only.or(self.family_only);
    }
}

/// An id of a device's manager. Dropping this destroys the id.
pub(super) struct IdOnDevice {
    pub(super) driver: Arc<Driver>,
    pub(super) id: cm::Id,
    /// The claimed port, which other processes can't use meanwhile: its address and service.
    claim: Option<(Option<IpAddr>, u64)>,
}

impl IdOnDevice {
    pub(super) fn create(
        driver: &Arc<Driver>,
        channel: &EventChannel,
        token: u64,
        (space, kind): (PortSpace, ServiceType),
        options: &IdOptions,
    ) -> Result<Self, CmError> {
        driver.announce_exit();
        let created = driver.call_manager(|manager, _| manager.create_id(space, kind));
        let id = created.ok_or(CmError::Inherited)??;
        let device_id = Self::new(driver, id);
        device_id.subscribe(channel, token);
        device_id.set_options(options)?;
        Ok(device_id)
    }

    /// An id that the manager of this device created.
    pub(super) fn new(driver: &Arc<Driver>, id: cm::Id) -> Self {
        Self {
            driver: Arc::clone(driver),
            id,
            claim: None,
        }
    }

    /// Delivers its events to this channel from now on.
    pub(super) fn subscribe(&self, channel: &EventChannel, token: u64) {
        channel.note_device(&self.driver);
        let subscriber = Subscriber {
            queue: channel.queue().clone(),
            token,
            driver: Arc::downgrade(&self.driver),
        };
        self.driver.subscribe(self.id, Some(subscriber));
    }

    pub(super) fn set_options(&self, options: &IdOptions) -> Result<(), CmError> {
        self.call_manager(|manager, _, id| {
            if let Some(class) = options.traffic_class {
                manager.set_traffic_class(id, class)?;
            }
            if let Some(timeout) = options.ack_timeout {
                manager.set_ack_timeout(id, timeout)?;
            }
            if let Some(timer) = options.rnr_timer {
                manager.set_min_rnr_timer(id, timer)?;
            }
            if let Some(reuse) = options.reuse_address {
                manager.set_reuse_address(id, reuse)?;
            }
            if let Some(only) = options.family_only {
                manager.set_family_only(id, only)?;
            }
            Ok(())
        })
    }

    /// Binds it to an address, which other processes then can't use. With port 0, a free port is
    /// chosen.
    pub(super) fn bind(
        &mut self,
        space: PortSpace,
        address: SocketAddr,
    ) -> Result<SocketAddr, CmError> {
        let bound = self.call_manager(|manager, _, id| Ok(manager.bind(id, address)?))?;
        let at = Some(bound.ip()).filter(|ip| !ip.is_unspecified());
        let service = ServiceId::of_port(space, bound.port()).value();
        self.driver.claim(at, service)?;
        self.claim = Some((at, service));
        Ok(bound)
    }

    /// Calls the manager with this id.
    pub(super) fn call_manager<R>(
        &self,
        work: impl FnOnce(&mut Manager, Instant, cm::Id) -> Result<R, CmError>,
    ) -> Result<R, CmError> {
        let done = self
            .driver
            .call_manager(|manager, now| work(manager, now, self.id));
        done.ok_or(CmError::Inherited)?
    }
}

impl Drop for IdOnDevice {
    fn drop(&mut self) {
        let driver = &self.driver;
        driver.subscribe(self.id, None);
        driver.call_manager(|manager, now| manager.destroy(now, self.id));
        if let Some((at, service)) = self.claim.take() {
            driver.release(at, service);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_set_later_leave_those_before() {
        let timeout = AckTimeout::new(9).expect("a five-bit code");
        let timer = RnrTimer::new(9).expect("a five-bit code");
        let mut options = IdOptions::default();
        let one_by_one = [
            IdOptions {
                traffic_class: Some(9),
                ..IdOptions::default()
            },
            IdOptions {
                ack_timeout: Some(timeout),
                ..IdOptions::default()
            },
            IdOptions {
                rnr_timer: Some(timer),
                ..IdOptions::default()
            },
            IdOptions {
                reuse_address: Some(true),
                ..IdOptions::default()
            },
            IdOptions {
                family_only: Some(true),
                ..IdOptions::default()
            },
        ];
        one_by_one.iter().for_each(|new| options.update(new));
        let IdOptions {
            traffic_class,
            ack_timeout,
            rnr_timer,
            reuse_address,
            family_only,
        } = options;
        assert_eq!(
            (traffic_class, ack_timeout, rnr_timer),
            (Some(9), Some(timeout), Some(timer))
        );
        assert_eq!((reuse_address, family_only), (Some(true), Some(true)));
    }
}

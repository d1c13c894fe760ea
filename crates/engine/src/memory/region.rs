//! Regions: memory that the application registered.

use super::{
    Access, AccessError, Extent, Holder, Memory, MemoryError, ProtectionDomain, Requirement, View,
};
use crate::table::Id;
use wire::Key;

/// What registering memory gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// For the segments of local work requests, and to name the region.
    pub local_key: Key,
    /// For the peer.
    pub remote_key: Key,
    /// The address of the first byte, in the region's own addresses.
    pub address: u64,
    /// Its size in bytes.
    pub length: u64,
}

/// Registered memory, and how it may be used.
pub(super) struct Region {
    pub(super) domain: Id<ProtectionDomain>,
    pub(super) extent: Extent,
    pub(super) address: u64,
    pub(super) access: Access,
    /// How many windows are bound to it.
    pub(super) windows: u32,
}

impl Memory {
    pub(crate) fn register(
        &mut self,
        domain: Id<ProtectionDomain>,
        extent: Extent,
        address: u64,
        access: Access,
    ) -> Result<Registration, MemoryError> {
        let region = Region::new(domain, extent, address, access)?;
        if self.regions >= self.limits.memory_regions {
            return Err(MemoryError::Exhausted);
        }
        let length = region.extent.length();
        let address = region.address;
        let key = self
            .keys
            .insert(Holder::Region(region))
            .ok_or(MemoryError::Exhausted)?;
        self.regions += 1;
        Ok(Registration {
            local_key: key,
            remote_key: key,
            address,
            length,
        })
    }

    /// Changes a region in place; what is `None` stays as it is.
    pub(crate) fn reregister(
        &mut self,
        key: Key,
        domain: Option<Id<ProtectionDomain>>,
        place: Option<(Extent, u64)>,
        access: Option<Access>,
    ) -> Result<Id<ProtectionDomain>, MemoryError> {
        let Some(Holder::Region(region)) = self.keys.get_mut(key) else {
            return Err(MemoryError::UnknownKey(key));
        };
        if region.windows > 0 {
            return Err(MemoryError::WindowsBound(region.windows));
        }
        let (extent, address) = place.unwrap_or_else(|| (region.extent.clone(), region.address));
        let changed = Region::new(
            domain.unwrap_or(region.domain),
            extent,
            address,
            access.unwrap_or(region.access),
        )?;
        Ok(std::mem::replace(region, changed).domain)
    }

    /// Closes the windows that are bound to a region, so that it can be deregistered.
    pub(crate) fn close_windows_of(&mut self, region: Key) {
        let windows: Vec<Key> = self
            .keys
            .iter()
            .filter(|(_, holder)| {
                matches!(holder, Holder::Window(window)
                if window.bound.is_some_and(|bound| bound.binding.region == region))
            })
            .map(|(key, _)| key)
            .collect();
        for window in windows {
            self.hold(window, None);
        }
    }

    /// Gives back the domain that the region stood in.
    pub(crate) fn deregister(&mut self, key: Key) -> Result<Id<ProtectionDomain>, MemoryError> {
        match self.keys.get(key) {
            Some(Holder::Region(region)) if region.windows > 0 => {
                Err(MemoryError::WindowsBound(region.windows))
            }
            Some(Holder::Region(region)) => {
                let domain = region.domain;
                self.keys.remove(key);
                self.regions -= 1;
                Ok(domain)
            }
            _ => Err(MemoryError::UnknownKey(key)),
        }
    }
}

impl Region {
    fn new(
        domain: Id<ProtectionDomain>,
        extent: Extent,
        address: u64,
        access: Access,
    ) -> Result<Self, MemoryError> {
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if access.intersects(writes) && !access.contains(Access::LOCAL_WRITE) {
            return Err(MemoryError::NeedsLocalWrite);
        }
        let address = match access.contains(Access::ZERO_BASED) {
            true => 0,
            false => address,
        };
        let length = extent.length();
        if address.checked_add(length).is_none() {
            return Err(MemoryError::AddressOverflow { address, length });
        }
        Ok(Self {
            domain,
            extent,
            address,
            access,
            windows: 0,
        })
    }

    #[inline]
    pub(super) fn view(
        &self,
        address: u64,
        length: u64,
        requirement: Requirement,
    ) -> Result<View<'_>, AccessError> {
        requirement.allowed_by(self.access)?;
        let offset = address
            .checked_sub(self.address)
            .ok_or(AccessError::OutOfRange)?;
        let end = offset.checked_add(length).ok_or(AccessError::OutOfRange)?;
        if end > self.extent.length() {
            return Err(AccessError::OutOfRange);
        }
        Ok(View::new(&self.extent, offset, length))
    }
}

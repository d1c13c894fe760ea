//! Regions: memory that the application registered.

use super::{
    Access, AccessError, Extent, KeyedMemory, MappingChange, Memory, MemoryError, ProtectionDomain,
    Requirement, View,
};
use crate::slab::Id;
use wire::Key;

/// The keys and the address range of a registered region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// The L_Key, for segments of local work requests. It also identifies the region.
    pub local_key: Key,
    /// The R_Key, for the peer.
    pub remote_key: Key,
    /// The address of the first byte in work requests.
    pub address: u64,
    /// Its size in bytes.
    pub length: u64,
}

/// A region as it is registered now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionState {
    /// Its protection domain.
    pub domain: Id<ProtectionDomain>,
    /// Its access rights.
    pub access: Access,
    /// The address of the first byte in work requests.
    pub address: u64,
    /// Its size in bytes.
    pub length: u64,
    /// The address of its first byte in this process, if the processor can access it.
    pub memory: Option<u64>,
}

/// Registered memory and its access rights.
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
        let accelerated = u32::from(region.extent.is_accelerated());
        let key = self
            .keys
            .insert(KeyedMemory::Region(region))
            .ok_or(MemoryError::Exhausted)?;
        self.regions += 1;
        self.accelerated += accelerated;
        Ok(Registration {
            local_key: key,
            remote_key: key,
            address,
            length,
        })
    }

    /// Changes a region in place. `None` keeps the present value. Returns the previous domain.
    pub(crate) fn reregister(
        &mut self,
        key: Key,
        domain: Option<Id<ProtectionDomain>>,
        range: Option<(Extent, u64)>,
        access: Option<Access>,
    ) -> Result<Id<ProtectionDomain>, MemoryError> {
        let Some(KeyedMemory::Region(region)) = self.keys.get_mut(key) else {
            return Err(MemoryError::UnknownKey(key));
        };
        if region.windows > 0 {
            return Err(MemoryError::WindowsBound(region.windows));
        }
        let (extent, address) = range.unwrap_or_else(|| (region.extent.clone(), region.address));
        let changed = Region::new(
            domain.unwrap_or(region.domain),
            extent,
            address,
            access.unwrap_or(region.access),
        )?;
        self.accelerated += u32::from(changed.extent.is_accelerated());
        let former = std::mem::replace(region, changed);
        self.accelerated -= u32::from(former.extent.is_accelerated());
        former.extent.settle();
        Ok(former.domain)
    }

    /// Unbinds the windows of a region, so that it can be deregistered.
    pub(crate) fn unbind_windows_of(&mut self, region: Key) {
        let windows: Vec<Key> = self
            .keys
            .iter()
            .filter(|(_, holder)| {
                matches!(holder, KeyedMemory::Window(window)
                if window.bound.is_some_and(|bound| bound.binding.region == region))
            })
            .map(|(key, _)| key)
            .collect();
        for window in windows {
            self.set_binding(window, None);
        }
    }

    /// The first address at which the program has changed the mapping of a region's memory, and how.
    pub(crate) fn changed_mapping(&self, key: Key) -> Option<(u64, MappingChange)> {
        let Some(KeyedMemory::Region(region)) = self.keys.get(key) else {
            return None;
        };
        let writable = region.access.contains(Access::LOCAL_WRITE);
        region.extent.changed_mapping(writable)
    }

    /// A region as it is registered now.
    pub(crate) fn region_state(&self, key: Key) -> Option<RegionState> {
        let region = self.region(key)?;
        let memory = region.extent.address();
        Some(RegionState {
            domain: region.domain,
            access: region.access,
            address: region.address,
            length: region.extent.length(),
            memory: memory.filter(|_| !region.extent.is_accelerated()),
        })
    }

    /// A region as it is registered now, its access rights, the address of its first byte, and whether that is in an
    /// accelerator.
    pub(crate) fn registration(
        &self,
        key: Key,
    ) -> Option<(Registration, Access, Option<u64>, bool)> {
        let Some(KeyedMemory::Region(region)) = self.keys.get(key) else {
            return None;
        };
        let registration = Registration {
            local_key: key,
            remote_key: key,
            address: region.address,
            length: region.extent.length(),
        };
        let extent = &region.extent;
        let accelerated = extent.is_accelerated();
        Some((registration, region.access, extent.address(), accelerated))
    }

    /// Removes a region. Returns its protection domain.
    pub(crate) fn deregister(&mut self, key: Key) -> Result<Id<ProtectionDomain>, MemoryError> {
        match self.keys.get(key) {
            Some(KeyedMemory::Region(region)) if region.windows > 0 => {
                Err(MemoryError::WindowsBound(region.windows))
            }
            Some(KeyedMemory::Region(region)) => {
                let domain = region.domain;
                region.extent.settle();
                self.accelerated -= u32::from(region.extent.is_accelerated());
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
        let address = if access.contains(Access::ZERO_BASED) {
            0
        } else {
            address
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

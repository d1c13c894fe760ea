//! Windows: remote access to a part of a region, with its own rights, until it is unbound.

use super::{
    Access, AccessError, Accessor, BindError, KeyedMemory, Memory, MemoryError, ProtectionDomain,
    Requirement, View,
};
use crate::slab::Id;
use wire::{Key, Qpn};

/// The type of a memory window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowKind {
    /// Type 1: bound by a verb of its own, and usable through every queue pair of its domain.
    One,
    /// Type 2: bound by a posted work request, with a key of the caller's choice. Usable only
    /// through the queue pair that bound it. Either side may invalidate it.
    Two,
}

/// The range and the rights of a bound window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// The L_Key of the region.
    pub region: Key,
    /// The address of the first byte, in the address space of the region.
    pub address: u64,
    /// The length in bytes. Length 0 unbinds a type-1 window.
    pub length: u64,
    /// The granted rights. With [`Access::ZERO_BASED`] the addresses of the window start at 0; only a
    /// type-2 window can have it.
    pub access: Access,
}

/// A window, bound or not.
pub(super) struct Window {
    domain: Id<ProtectionDomain>,
    kind: WindowKind,
    pub(super) bound: Option<Bound>,
}

/// The binding of a bound window.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    pub(super) binding: Binding,
    /// For type 2: the only queue pair that may use the window.
    queue_pair: Option<Qpn>,
}

impl Binding {
    /// The address of the first byte, as peers address it.
    #[inline]
    pub(super) fn first_address(&self) -> u64 {
        if self.access.contains(Access::ZERO_BASED) {
            0
        } else {
            self.address
        }
    }
}

impl Memory {
    pub(crate) fn allocate_window(
        &mut self,
        domain: Id<ProtectionDomain>,
        kind: WindowKind,
    ) -> Result<Key, MemoryError> {
        let window = Window {
            domain,
            kind,
            bound: None,
        };
        if self.windows >= self.limits.memory_windows {
            return Err(MemoryError::Exhausted);
        }
        let key = self
            .keys
            .insert(KeyedMemory::Window(window))
            .ok_or(MemoryError::Exhausted)?;
        self.windows += 1;
        Ok(key)
    }

    /// Frees a window. `key` may be any key that the window had. Returns its protection domain.
    pub(crate) fn free_window(&mut self, key: Key) -> Result<Id<ProtectionDomain>, MemoryError> {
        let key = self.keys.current(key).ok_or(MemoryError::UnknownKey(key))?;
        let Some(KeyedMemory::Window(window)) = self.keys.get_mut(key) else {
            return Err(MemoryError::UnknownKey(key));
        };
        let domain = window.domain;
        self.set_binding(key, None);
        self.keys.remove(key);
        self.windows -= 1;
        Ok(domain)
    }

    /// Binds, rebinds or (with length 0) unbinds a type-1 window. Returns its new key.
    pub(crate) fn bind_type_1(
        &mut self,
        accessor: Accessor,
        window: Key,
        binding: Binding,
    ) -> Result<Key, BindError> {
        let window = self.keys.current(window).ok_or(BindError::NotAWindow)?;
        let (kind, _) = self.window(accessor, window)?;
        if kind != WindowKind::One {
            return Err(BindError::WrongKind);
        }
        // o10-36.2.2: only a type-2 window can be zero-based.
        if binding.access.contains(Access::ZERO_BASED) {
            return Err(BindError::ZeroBased);
        }
        self.check_binding(accessor, &binding)?;
        let bound = (binding.length > 0).then_some(Bound {
            binding,
            queue_pair: None,
        });
        self.set_binding(window, bound);
        Ok(self.keys.renew(window))
    }

    /// Binds a type-2 window. Returns its new key.
    ///
    /// The low 8 bits of the new key are those of `key`. The upper bits of `key` are ignored, as
    /// with hardware.
    pub(crate) fn bind_type_2(
        &mut self,
        accessor: Accessor,
        window: Key,
        key: Key,
        binding: Binding,
    ) -> Result<Key, BindError> {
        let window = self.keys.current(window).ok_or(BindError::NotAWindow)?;
        let (kind, previous) = self.window(accessor, window)?;
        if kind != WindowKind::Two {
            return Err(BindError::WrongKind);
        }
        // o10-37.2.30: a type-2 window is bound only while it is unbound.
        if previous.is_some() {
            return Err(BindError::AlreadyBound);
        }
        // o10-37.2.40: a binding of length 0 does not unbind a type-2 window.
        if binding.length == 0 {
            return Err(BindError::OutOfRange);
        }
        self.check_binding(accessor, &binding)?;
        let bound = Bound {
            binding,
            queue_pair: Some(accessor.queue_pair),
        };
        self.set_binding(window, Some(bound));
        Ok(self.keys.retag(window, key.value()))
    }

    /// Invalidates a key: local invalidate, or a peer's SEND with invalidate.
    pub(crate) fn invalidate(&mut self, accessor: Accessor, key: Key) -> Result<(), BindError> {
        self.check_invalidate(accessor, key)?;
        self.set_binding(key, None);
        Ok(())
    }

    /// Checks that the key names a type-2 window that this queue pair may invalidate.
    pub(crate) fn check_invalidate(&self, accessor: Accessor, key: Key) -> Result<(), BindError> {
        let (kind, bound) = self.window(accessor, key)?;
        // o10-37.2.26: a type-1 window can't be invalidated.
        if kind != WindowKind::Two {
            return Err(BindError::WrongKind);
        }
        if bound.is_some_and(|bound| bound.queue_pair != Some(accessor.queue_pair)) {
            return Err(BindError::OtherQueuePair);
        }
        Ok(())
    }

    /// Unbinds the type-2 windows of a queue pair that is destroyed, because its number may be
    /// reused.
    pub(crate) fn release_queue_pair(&mut self, queue_pair: Qpn) {
        if self.private_windows == 0 {
            return;
        }
        let owned: Vec<Key> = self
            .keys
            .iter()
            .filter_map(|(key, holder)| match holder {
                KeyedMemory::Window(window) => window.bound.map(|bound| (key, bound)),
                KeyedMemory::Region(_) => None,
            })
            .filter(|(_, bound)| bound.queue_pair == Some(queue_pair))
            .map(|(key, _)| key)
            .collect();
        for key in owned {
            self.set_binding(key, None);
        }
    }

    /// The current key of a window.
    pub(crate) fn window_key(&self, key: Key) -> Option<Key> {
        let key = self.keys.current(key)?;
        matches!(self.keys.get(key)?, KeyedMemory::Window(_)).then_some(key)
    }

    /// The memory that a peer names by the key of a window.
    pub(super) fn through_window(
        &self,
        window: &Window,
        accessor: Accessor,
        address: u64,
        length: u64,
        requirement: Requirement,
    ) -> Result<View<'_>, AccessError> {
        if window.domain != accessor.domain {
            return Err(AccessError::OtherDomain);
        }
        let bound = window.bound.as_ref().ok_or(AccessError::UnknownKey)?;
        // A type-2 window is usable only through the queue pair that bound it (type 2B).
        if bound
            .queue_pair
            .is_some_and(|owner| owner != accessor.queue_pair)
        {
            return Err(AccessError::OtherQueuePair);
        }
        let binding = &bound.binding;
        requirement.allowed_by(binding.access)?;
        let offset = address
            .checked_sub(binding.first_address())
            .ok_or(AccessError::OutOfRange)?;
        let end = offset.checked_add(length).ok_or(AccessError::OutOfRange)?;
        if end > binding.length {
            return Err(AccessError::OutOfRange);
        }
        let Some(KeyedMemory::Region(region)) = self.keys.get(binding.region) else {
            return Err(AccessError::UnknownKey);
        };
        // The window's rights replace the region's. They were compared when the window was bound.
        region.view(binding.address + offset, length, Requirement::NOTHING)
    }

    /// C10-72: a window is used only with queue pairs of its protection domain.
    fn window(
        &self,
        accessor: Accessor,
        key: Key,
    ) -> Result<(WindowKind, Option<Bound>), BindError> {
        match self.keys.get(key) {
            Some(KeyedMemory::Window(window)) if window.domain == accessor.domain => {
                Ok((window.kind, window.bound))
            }
            _ => Err(BindError::NotAWindow),
        }
    }

    fn check_binding(&self, accessor: Accessor, binding: &Binding) -> Result<(), BindError> {
        if binding.length == 0 {
            return Ok(());
        }
        let Some(KeyedMemory::Region(region)) = self.keys.get(binding.region) else {
            return Err(BindError::NotARegion);
        };
        if region.domain != accessor.domain {
            return Err(BindError::NotARegion);
        }
        // Its owner could not give it back to the device while a window is bound to it.
        if region.extent.is_detached() {
            return Err(BindError::RegionInUse);
        }
        // C10-73: the region must allow binding.
        if !region.access.contains(Access::WINDOW_BIND) {
            return Err(BindError::RegionForbidsBinding);
        }
        // C10-74: a window that peers may write needs a region with local write access.
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if binding.access.intersects(writes) && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(BindError::RegionNotWritable);
        }
        // C10-75: the window must lie within the region.
        region
            .view(binding.address, binding.length, Requirement::NOTHING)
            .map(drop)
            .map_err(|_| BindError::OutOfRange)
    }

    /// Replaces the binding of a window.
    pub(super) fn set_binding(&mut self, window: Key, bound: Option<Bound>) {
        let Some(KeyedMemory::Window(window)) = self.keys.get_mut(window) else {
            return;
        };
        let previous = std::mem::replace(&mut window.bound, bound);
        self.count_binding(previous, -1);
        self.count_binding(bound, 1);
    }

    fn count_binding(&mut self, bound: Option<Bound>, change: i32) {
        let Some(bound) = bound else { return };
        if bound.queue_pair.is_some() {
            self.private_windows = self.private_windows.saturating_add_signed(change);
        }
        if let Some(KeyedMemory::Region(region)) = self.keys.get_mut(bound.binding.region) {
            region.windows = region.windows.saturating_add_signed(change);
        }
    }
}

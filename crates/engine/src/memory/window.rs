//! Windows: a part of a region that is open to peers, with rights of its own, until it is closed.

use super::{
    Access, AccessError, BindError, Holder, Memory, MemoryError, Party, ProtectionDomain,
    Requirement, View,
};
use crate::table::Id;
use wire::{Key, Qpn};

/// Which kind of memory window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowKind {
    /// Bound by a verb of its own; usable through every queue pair of its domain.
    One,
    /// Bound by a posted work request with a key of the caller's choice; usable only through the
    /// queue pair that bound it, and invalidated by either side.
    Two,
}

/// What a window opens when it is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// The local key of the region.
    pub region: Key,
    /// The first byte, in the region's own addresses.
    pub address: u64,
    /// How many bytes; none at all closes the window.
    pub length: u64,
    /// The rights it gives, with [`Access::ZERO_BASED`] to count addresses from 0.
    pub access: Access,
}

/// A window, bound or not.
pub(super) struct Window {
    domain: Id<ProtectionDomain>,
    kind: WindowKind,
    pub(super) bound: Option<Bound>,
}

/// A binding that holds.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    pub(super) binding: Binding,
    /// For type 2: the one queue pair that may use it.
    queue_pair: Option<Qpn>,
}

impl Binding {
    /// The address of the first byte, as a peer counts.
    #[inline]
    pub(super) fn first_address(&self) -> u64 {
        match self.access.contains(Access::ZERO_BASED) {
            true => 0,
            false => self.address,
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
            .insert(Holder::Window(window))
            .ok_or(MemoryError::Exhausted)?;
        self.windows += 1;
        Ok(key)
    }

    /// Gives back the domain that the window stood in. Any key that the window had names it.
    pub(crate) fn free_window(&mut self, key: Key) -> Result<Id<ProtectionDomain>, MemoryError> {
        let key = self.keys.current(key).ok_or(MemoryError::UnknownKey(key))?;
        let Some(Holder::Window(window)) = self.keys.get_mut(key) else {
            return Err(MemoryError::UnknownKey(key));
        };
        let domain = window.domain;
        self.hold(key, None);
        self.keys.remove(key);
        self.windows -= 1;
        Ok(domain)
    }

    /// Binds, rebinds or (with no length) closes a type-1 window; its new key.
    pub(crate) fn bind_type_1(
        &mut self,
        party: Party,
        window: Key,
        binding: Binding,
    ) -> Result<Key, BindError> {
        let window = self.keys.current(window).ok_or(BindError::NotAWindow)?;
        let (kind, _) = self.window(party, window)?;
        if kind != WindowKind::One {
            return Err(BindError::WrongKind);
        }
        self.check_binding(party, &binding)?;
        let bound = (binding.length > 0).then_some(Bound {
            binding,
            queue_pair: None,
        });
        self.hold(window, bound);
        Ok(self.keys.renew(window))
    }

    /// Binds a type-2 window; its new key.
    ///
    /// The low 8 bits are those of `key`. The others stay the window's own, whatever `key` says, as
    /// with hardware.
    pub(crate) fn bind_type_2(
        &mut self,
        party: Party,
        window: Key,
        key: Key,
        binding: Binding,
    ) -> Result<Key, BindError> {
        let window = self.keys.current(window).ok_or(BindError::NotAWindow)?;
        let (kind, previous) = self.window(party, window)?;
        if kind != WindowKind::Two {
            return Err(BindError::WrongKind);
        }
        if previous.is_some() {
            return Err(BindError::AlreadyBound);
        }
        if binding.length == 0 {
            return Err(BindError::OutOfRange);
        }
        self.check_binding(party, &binding)?;
        let bound = Bound {
            binding,
            queue_pair: Some(party.queue_pair),
        };
        self.hold(window, Some(bound));
        Ok(self.keys.retag(window, key.value()))
    }

    /// Invalidates a key: local invalidate, or a peer's SEND with invalidate.
    pub(crate) fn invalidate(&mut self, party: Party, key: Key) -> Result<(), BindError> {
        self.check_invalidate(party, key)?;
        self.hold(key, None);
        Ok(())
    }

    /// Only a type-2 window bound through this queue pair can be invalidated.
    pub(crate) fn check_invalidate(&self, party: Party, key: Key) -> Result<(), BindError> {
        let (kind, bound) = self.window(party, key)?;
        if kind != WindowKind::Two {
            return Err(BindError::WrongKind);
        }
        if bound.is_some_and(|bound| bound.queue_pair != Some(party.queue_pair)) {
            return Err(BindError::OtherQueuePair);
        }
        Ok(())
    }

    /// Closes the type-2 windows of a queue pair that goes away: its number may come up again.
    pub(crate) fn release_queue_pair(&mut self, queue_pair: Qpn) {
        if self.private_windows == 0 {
            return;
        }
        let owned: Vec<Key> = self
            .keys
            .iter()
            .filter_map(|(key, holder)| match holder {
                Holder::Window(window) => window.bound.map(|bound| (key, bound)),
                Holder::Region(_) => None,
            })
            .filter(|(_, bound)| bound.queue_pair == Some(queue_pair))
            .map(|(key, _)| key)
            .collect();
        for key in owned {
            self.hold(key, None);
        }
    }

    /// The key that a window has now.
    pub(crate) fn window_key(&self, key: Key) -> Option<Key> {
        let key = self.keys.current(key)?;
        matches!(self.keys.get(key)?, Holder::Window(_)).then_some(key)
    }

    /// Memory that a peer names by the key of a window.
    pub(super) fn through_window(
        &self,
        window: &Window,
        party: Party,
        address: u64,
        length: u64,
        requirement: Requirement,
    ) -> Result<View<'_>, AccessError> {
        if window.domain != party.domain {
            return Err(AccessError::OtherDomain);
        }
        let bound = window.bound.as_ref().ok_or(AccessError::UnknownKey)?;
        // A type-2 window answers only through the queue pair that bound it (the kind called 2B).
        if bound
            .queue_pair
            .is_some_and(|owner| owner != party.queue_pair)
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
        let Some(Holder::Region(region)) = self.keys.get(binding.region) else {
            return Err(AccessError::UnknownKey);
        };
        // The window's rights stand in for the region's: they were compared when it was bound.
        region.view(binding.address + offset, length, Requirement::NOTHING)
    }

    fn window(&self, party: Party, key: Key) -> Result<(WindowKind, Option<Bound>), BindError> {
        match self.keys.get(key) {
            Some(Holder::Window(window)) if window.domain == party.domain => {
                Ok((window.kind, window.bound))
            }
            _ => Err(BindError::NotAWindow),
        }
    }

    fn check_binding(&self, party: Party, binding: &Binding) -> Result<(), BindError> {
        if binding.length == 0 {
            return Ok(());
        }
        let Some(Holder::Region(region)) = self.keys.get(binding.region) else {
            return Err(BindError::NotARegion);
        };
        if region.domain != party.domain {
            return Err(BindError::NotARegion);
        }
        if !region.access.contains(Access::WINDOW_BIND) {
            return Err(BindError::RegionForbidsBinding);
        }
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if binding.access.intersects(writes) && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(BindError::RegionNotWritable);
        }
        region
            .view(binding.address, binding.length, Requirement::NOTHING)
            .map(drop)
            .map_err(|_| BindError::OutOfRange)
    }

    /// Puts a binding in the place of the one that the window has.
    pub(super) fn hold(&mut self, window: Key, bound: Option<Bound>) {
        let Some(Holder::Window(window)) = self.keys.get_mut(window) else {
            return;
        };
        let former = std::mem::replace(&mut window.bound, bound);
        self.count_binding(former, -1);
        self.count_binding(bound, 1);
    }

    fn count_binding(&mut self, bound: Option<Bound>, change: i32) {
        let Some(bound) = bound else { return };
        if bound.queue_pair.is_some() {
            self.private_windows = self.private_windows.saturating_add_signed(change);
        }
        if let Some(Holder::Region(region)) = self.keys.get_mut(bound.binding.region) {
            region.windows = region.windows.saturating_add_signed(change);
        }
    }
}

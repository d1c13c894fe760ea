//! Registered memory: regions, windows, and the keys that open them.
//!
//! Every access from a work request or from the wire goes through [`Memory::local`] or
//! [`Memory::remote`], which check key, protection domain, rights and bounds and give back a
//! [`View`]: the only thing that can be read or written.

mod access;
mod extent;
mod keys;

pub use access::{Access, AccessError};
pub use extent::{Buffer, Extent, Presence};

pub(crate) use access::{Requirement, View};

use crate::incident::{Opened, SegmentFault};
use crate::random::Random;
use crate::table::Id;
use keys::Keys;
use smallvec::SmallVec;
use wire::{Key, Qpn};

/// Keeps queue pairs from using memory that was not registered for them.
///
/// It has no content of its own: two objects may meet when they stand in the same domain.
#[derive(Debug)]
pub struct ProtectionDomain {
    pub(crate) users: u32,
}

/// A piece of registered memory that a work request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins, in the region's own addresses.
    pub address: u64,
    /// How many bytes.
    pub length: u32,
    /// The local key of the region.
    pub key: Key,
}

/// The segments of one work request; most have one.
pub type Segments = SmallVec<[Segment; 1]>;

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

/// Why a registration, a window or a key was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// All keys are in use.
    #[error("the device has no memory key left: deregister something first")]
    Exhausted,
    /// No such region or window.
    #[error("no memory has the key {0}: it was never given out or is already gone")]
    UnknownKey(Key),
    /// Remote write and atomic access require local write.
    #[error("remote write and remote atomic access require local write access")]
    NeedsLocalWrite,
    /// The range wraps around the address space.
    #[error("{length} bytes from {address:#x} on reach beyond the end of the address space")]
    AddressOverflow {
        /// The first byte.
        address: u64,
        /// The length that was asked for.
        length: u64,
    },
    /// Windows are still bound to the region.
    #[error("{0} memory windows are still bound to the region: unbind or free them first")]
    WindowsBound(u32),
    /// No such protection domain.
    #[error("no such protection domain: it was destroyed or belongs to another device")]
    UnknownDomain,
    /// The binding can't be made.
    #[error("the window can't be bound: {0}")]
    Bind(#[from] BindError),
}

/// Why a window could not be bound or invalidated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The key names no window of this domain.
    #[error("the key names no memory window of this protection domain")]
    NotAWindow,
    /// The region's key is not one, or is in another domain.
    #[error("the key to bind to names no memory region of this protection domain")]
    NotARegion,
    /// The region was registered without the right to bind windows.
    #[error("the region was registered without window-bind access")]
    RegionForbidsBinding,
    /// The window's rights exceed the region's.
    #[error("a window that lets peers write needs a region with local write access")]
    RegionNotWritable,
    /// The range is not inside the region.
    #[error("the range to bind lies outside of the region")]
    OutOfRange,
    /// The kind of window does not fit the verb.
    #[error("this kind of window is not bound this way")]
    WrongKind,
    /// A type-2 window is bound already: invalidate it first.
    #[error("the window is bound already: invalidate it first")]
    AlreadyBound,
    /// Only the low 8 bits of a type-2 window's key may be chosen.
    #[error("only the low 8 bits of a window's key may be chosen")]
    KeyMismatch,
    /// It is bound through another queue pair.
    #[error("the window is bound through another queue pair")]
    OtherQueuePair,
}

/// Who asks for access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Party {
    pub(crate) domain: Id<ProtectionDomain>,
    pub(crate) queue_pair: Qpn,
}

struct Region {
    domain: Id<ProtectionDomain>,
    extent: Extent,
    address: u64,
    access: Access,
    windows: u32,
}

struct Window {
    domain: Id<ProtectionDomain>,
    kind: WindowKind,
    bound: Option<Bound>,
}

#[derive(Clone, Copy)]
struct Bound {
    binding: Binding,
    /// For type 2: the one queue pair that may use it.
    queue_pair: Option<Qpn>,
}

enum Holder {
    Region(Region),
    Window(Window),
}

/// All memory that a device may touch.
pub(crate) struct Memory {
    keys: Keys<Holder>,
    /// How many type-2 windows are bound.
    private_windows: u32,
}

impl Memory {
    pub(crate) fn new(random: Random) -> Self {
        Self {
            keys: Keys::new(random),
            private_windows: 0,
        }
    }

    /// How many regions and windows exist.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn register(
        &mut self,
        domain: Id<ProtectionDomain>,
        extent: Extent,
        address: u64,
        access: Access,
    ) -> Result<Registration, MemoryError> {
        let region = Region::new(domain, extent, address, access)?;
        let length = region.extent.length();
        let address = region.address;
        let key = self
            .keys
            .insert(Holder::Region(region))
            .ok_or(MemoryError::Exhausted)?;
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

    /// Gives back the domain that the region stood in.
    pub(crate) fn deregister(&mut self, key: Key) -> Result<Id<ProtectionDomain>, MemoryError> {
        match self.keys.get(key) {
            Some(Holder::Region(region)) if region.windows > 0 => {
                Err(MemoryError::WindowsBound(region.windows))
            }
            Some(Holder::Region(region)) => {
                let domain = region.domain;
                self.keys.remove(key);
                Ok(domain)
            }
            _ => Err(MemoryError::UnknownKey(key)),
        }
    }

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
        self.keys
            .insert(Holder::Window(window))
            .ok_or(MemoryError::Exhausted)
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

    /// Binds a type-2 window under a key whose low 8 bits the caller chose.
    pub(crate) fn bind_type_2(
        &mut self,
        party: Party,
        window: Key,
        key: Key,
        binding: Binding,
    ) -> Result<(), BindError> {
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
        if !Keys::<Holder>::same_slot(window, key) {
            return Err(BindError::KeyMismatch);
        }
        self.check_binding(party, &binding)?;
        let bound = Bound {
            binding,
            queue_pair: Some(party.queue_pair),
        };
        self.hold(window, Some(bound));
        self.keys.retag(window, key);
        Ok(())
    }

    /// Invalidates a key: local invalidate, or a peer's SEND with invalidate.
    ///
    /// Only a type-2 window bound through this queue pair can be invalidated.
    pub(crate) fn invalidate(&mut self, party: Party, key: Key) -> Result<(), BindError> {
        let (kind, bound) = self.window(party, key)?;
        if kind != WindowKind::Two {
            return Err(BindError::WrongKind);
        }
        if bound.is_some_and(|bound| bound.queue_pair != Some(party.queue_pair)) {
            return Err(BindError::OtherQueuePair);
        }
        self.hold(key, None);
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

    /// Memory that a work request of the application names.
    #[inline]
    pub(crate) fn local(
        &self,
        domain: Id<ProtectionDomain>,
        segment: &Segment,
        requirement: Requirement,
    ) -> Result<View<'_>, AccessError> {
        let Some(Holder::Region(region)) = self.keys.get(segment.key) else {
            return Err(AccessError::UnknownKey);
        };
        if region.domain != domain {
            return Err(AccessError::OtherDomain);
        }
        region.view(segment.address, u64::from(segment.length), requirement)
    }

    /// Memory that a peer names.
    #[inline]
    pub(crate) fn remote(
        &self,
        party: Party,
        key: Key,
        address: u64,
        length: u64,
        requirement: Requirement,
    ) -> Result<View<'_>, AccessError> {
        match self.keys.get(key).ok_or(AccessError::UnknownKey)? {
            Holder::Region(region) if region.domain != party.domain => {
                Err(AccessError::OtherDomain)
            }
            Holder::Region(region) => region.view(address, length, requirement),
            Holder::Window(window) => {
                self.through_window(window, party, address, length, requirement)
            }
        }
    }

    /// Whether a peer may use the key for this at all.
    pub(crate) fn permits(
        &self,
        party: Party,
        key: Key,
        requirement: Requirement,
    ) -> Result<(), AccessError> {
        let base = match self.keys.get(key).ok_or(AccessError::UnknownKey)? {
            Holder::Region(region) => region.address,
            Holder::Window(window) => match &window.bound {
                Some(bound) if !bound.binding.access.contains(Access::ZERO_BASED) => {
                    bound.binding.address
                }
                _ => 0,
            },
        };
        self.remote(party, key, base, 0, requirement).map(drop)
    }

    /// The first of a message's segments that can't be used, for whoever wants to know.
    #[cold]
    pub(crate) fn fault_in(
        &self,
        domain: Id<ProtectionDomain>,
        segments: &[Segment],
        requirement: Requirement,
    ) -> Option<SegmentFault> {
        let used = segments.iter().filter(|segment| segment.length > 0);
        used.map(|segment| (*segment, self.local(domain, segment, requirement)))
            .find_map(|(segment, tried)| {
                Some(SegmentFault {
                    segment,
                    error: tried.err()?,
                    opened: self.opened(segment.key),
                })
            })
    }

    /// What a key opens, for whoever wants to know.
    #[cold]
    pub(crate) fn opened(&self, key: Key) -> Option<Opened> {
        match self.keys.get(key)? {
            Holder::Region(region) => Some(Opened {
                address: region.address,
                length: region.extent.length(),
                access: region.access,
            }),
            Holder::Window(window) => window.bound.map(|bound| Opened {
                address: match bound.binding.access.contains(Access::ZERO_BASED) {
                    true => 0,
                    false => bound.binding.address,
                },
                length: bound.binding.length,
                access: bound.binding.access,
            }),
        }
    }

    fn through_window(
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
        let base = match binding.access.contains(Access::ZERO_BASED) {
            true => 0,
            false => binding.address,
        };
        let offset = address.checked_sub(base).ok_or(AccessError::OutOfRange)?;
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
    fn hold(&mut self, window: Key, bound: Option<Bound>) {
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
    fn view(
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

#[cfg(test)]
mod tests;

//! Registered memory: regions, on-device memory, windows.
//!
//! The wire may write registered memory at any moment, so it can never be a Rust slice. It is read
//! and written by copy, and each copy excludes the device for its duration: neither side ever sees
//! half of the other's copy.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use engine::{
    Access, Binding, Buffer, MemoryError, Registration, Remote, Segment, WindowKind, Work,
};
use wire::Key;

use crate::domain::ProtectionDomain;
use crate::request::Request;

/// Memory that queue pairs may use.
///
/// Dropping it deregisters it and closes the windows that are bound to it: work requests under way
/// that still need it fail.
pub struct MemoryRegion {
    domain: ProtectionDomain,
    buffer: Arc<Buffer>,
    registration: Registration,
}

impl MemoryRegion {
    pub(crate) fn register(
        domain: &ProtectionDomain,
        length: usize,
        access: Access,
    ) -> Result<Self, MemoryError> {
        let buffer = Buffer::try_zeroed(length).ok_or(MemoryError::Exhausted)?;
        let address = buffer.address();
        let id = domain.id();
        let registration = domain
            .driver()
            .call(|device| device.register(id, Arc::clone(&buffer), address, access))?;
        Ok(Self {
            domain: domain.clone(),
            buffer,
            registration,
        })
    }

    pub(crate) fn on_device(
        domain: &ProtectionDomain,
        length: usize,
        access: Access,
    ) -> Result<Self, MemoryError> {
        let id = domain.id();
        let (buffer, registration) = domain
            .driver()
            .call(|device| device.register_device_memory(id, length, access))?;
        Ok(Self {
            domain: domain.clone(),
            buffer,
            registration,
        })
    }

    /// Its size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// A part of it, for work requests: `memory.slice(..8)`.
    ///
    /// # Panics
    /// If the range is not inside, or longer than a segment can be (4 GiB less one byte).
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Segment {
        let range = within(range, self.len());
        Segment {
            address: self.registration.address + range.start as u64,
            length: u32::try_from(range.len()).expect("a segment is shorter than 4 GiB"),
            key: self.registration.local_key,
        }
    }

    /// All of it, for work requests.
    #[must_use]
    pub fn all(&self) -> Segment {
        self.slice(..)
    }

    /// What a peer must know to reach it from `offset` on.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        Remote {
            address: self.registration.address + offset as u64,
            key: self.registration.remote_key,
        }
    }

    /// Copies bytes out of it.
    ///
    /// # Panics
    /// If they are not inside.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.domain
            .driver()
            .exclusively(|| self.buffer.read(offset, into));
    }

    /// Copies bytes into it.
    ///
    /// # Panics
    /// If they are not inside.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.domain
            .driver()
            .exclusively(|| self.buffer.write(offset, from));
    }

    /// A copy of a part of it.
    ///
    /// # Panics
    /// If the range is not inside.
    #[must_use]
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Vec<u8> {
        let range = within(range, self.len());
        let mut bytes = vec![0; range.len()];
        self.read(range.start, &mut bytes);
        bytes
    }

    pub(crate) fn key(&self) -> Key {
        self.registration.local_key
    }
}

/// The bounds of a range in memory of `length` bytes.
///
/// # Panics
/// If the range is not inside.
fn within(range: impl RangeBounds<usize>, length: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => length,
    };
    assert!(
        start <= end && end <= length,
        "{start}..{end} is not inside of {length} bytes"
    );
    start..end
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("length", &self.len())
            .field("registration", &self.registration)
            .finish_non_exhaustive()
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let key = self.registration.local_key;
        // In a forked child there is nothing to revoke: the device stays with the parent.
        let _ = self.domain.driver().call(|device| device.revoke(key));
    }
}

/// A second key to a part of a region, with rights of its own, that can be taken back quickly.
#[derive(Debug)]
pub struct MemoryWindow {
    domain: ProtectionDomain,
    key: Key,
    kind: WindowKind,
}

impl MemoryWindow {
    pub(crate) fn allocate(
        domain: &ProtectionDomain,
        kind: WindowKind,
    ) -> Result<Self, MemoryError> {
        let id = domain.id();
        let key = domain
            .driver()
            .call(|device| device.allocate_window(id, kind))?;
        Ok(Self {
            domain: domain.clone(),
            key,
            kind,
        })
    }

    /// The request that binds it to a part of a region. Post it to a queue pair; when it has
    /// completed, [`remote_key`](Self::remote_key) gives the key for the peer.
    ///
    /// # Panics
    /// If the range is not inside of the region.
    #[must_use]
    pub fn bind(
        &self,
        region: &MemoryRegion,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Request {
        let part = region.slice(range);
        let binding = Binding {
            region: region.key(),
            address: part.address,
            length: u64::from(part.length),
            access,
        };
        Request::bind(Work::BindWindow {
            window: self.key,
            key: (self.kind == WindowKind::Two).then(|| self.next_key()),
            binding,
        })
    }

    /// The key that opens it now.
    #[must_use]
    pub fn remote_key(&self) -> Key {
        let key = self.key;
        self.domain
            .driver()
            .tell(|device| device.window_key(key))
            .expect("a window lives as long as its handle")
    }

    /// The key of the next binding: the low eight bits count.
    fn next_key(&self) -> Key {
        let value = self.remote_key().value();
        Key::new(value & !0xff | value.wrapping_add(1) & 0xff)
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let key = self.key;
        let _ = self.domain.driver().call(|device| device.free_window(key));
    }
}

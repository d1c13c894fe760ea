//! Memory regions, device memory and memory windows.
//!
//! Peers may write registered memory at any time, so it is not a Rust slice while the device can reach
//! it. It is read and written by copies of atomic words, without a lock.

mod owned;

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use engine::{
    Access, Binding, Buffer, Extent, MemoryError, Registration, RemoteMemory, Segment, WindowKind,
    Work,
};
use wire::Key;

use crate::protection_domain::ProtectionDomain;
use crate::request::Request;
use system::verbs;

pub use owned::{OwnedRegion, RegisterError};

/// Registered memory, for queue pairs of its protection domain.
///
/// Dropping it deregisters it and unbinds its windows. Outstanding requests that still have to read or write it fail. At a
/// device of the system, a region with bound windows can't be deregistered: drop the windows first. Such a region, and one
/// that is forgotten, stays registered, and its memory allocated.
#[must_use = "dropping it deregisters the memory"]
pub struct MemoryRegion {
    domain: ProtectionDomain,
    buffer: Arc<Buffer>,
    registration: Registration,
    /// The registration at a device of the system.
    system: Option<SystemMemory>,
}

/// Memory that is registered at a device of the system.
enum SystemMemory {
    Host(verbs::Region),
    Device(verbs::DeviceMemory),
}

impl ProtectionDomain {
    /// Allocates `length` bytes, all zero, and registers them. [`register`](Self::register) registers memory of yours.
    pub fn allocate_memory(
        &self,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion, MemoryError> {
        let buffer = Buffer::try_zeroed(length).ok_or(MemoryError::Exhausted)?;
        MemoryRegion::of_buffer(self, buffer, access)
    }

    /// Allocates device memory and registers it. Its addresses start at 0.
    pub fn allocate_device_memory(
        &self,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion, MemoryError> {
        if let Some(system) = self.system() {
            let memory = verbs::DeviceMemory::allocate(system, length, access)?;
            return Ok(MemoryRegion {
                domain: self.clone(),
                // The process has none of its bytes.
                buffer: Buffer::try_zeroed(0).ok_or(MemoryError::Exhausted)?,
                registration: memory.registration(),
                system: Some(SystemMemory::Device(memory)),
            });
        }
        let (driver, id) = self.software("regions of device memory")?;
        let (buffer, registration) =
            driver.call(|device| device.register_device_memory(id, length, access))?;
        Ok(MemoryRegion {
            domain: self.clone(),
            buffer,
            registration,
            system: None,
        })
    }

    /// Allocates a memory window.
    pub fn allocate_memory_window(&self, kind: WindowKind) -> Result<MemoryWindow, MemoryError> {
        if let Some(system) = self.system() {
            let window = verbs::Window::allocate(system, kind)?;
            return Ok(MemoryWindow {
                domain: self.clone(),
                key: window.name(),
                kind,
                system: Some(window),
            });
        }
        let (driver, id) = self.software("memory windows")?;
        let key = driver.call(|device| device.allocate_window(id, kind))?;
        Ok(MemoryWindow {
            domain: self.clone(),
            key,
            kind,
            system: None,
        })
    }
}

impl MemoryRegion {
    fn of_buffer(
        domain: &ProtectionDomain,
        buffer: Arc<Buffer>,
        access: Access,
    ) -> Result<Self, MemoryError> {
        if let Some(system) = domain.system() {
            let region = verbs::Region::register(system, &buffer, access)?;
            return Ok(Self {
                domain: domain.clone(),
                buffer,
                registration: region.registration(),
                system: Some(SystemMemory::Host(region)),
            });
        }
        let (driver, id) = domain.software("regions")?;
        let address = driver.virtual_address(buffer.address(), buffer.len());
        let registration =
            driver.call(|device| device.register(id, Arc::clone(&buffer), address, access))?;
        Ok(Self {
            domain: domain.clone(),
            buffer,
            registration,
            system: None,
        })
    }

    /// Its size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.registration.length as usize
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of the region, for work requests: `memory.slice(..8)`.
    ///
    /// # Panics
    /// If the range exceeds the region, or a segment (4 GiB less one byte).
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Segment {
        let range = within(range, self.len());
        Segment {
            address: self.registration.address + range.start as u64,
            length: u32::try_from(range.len()).expect("a segment is shorter than 4 GiB"),
            key: self.registration.local_key,
        }
    }

    /// The whole region, for work requests.
    ///
    /// # Panics
    /// If it exceeds a segment (4 GiB less one byte).
    #[must_use]
    pub fn all(&self) -> Segment {
        self.slice(..)
    }

    /// Address and key of the region from `offset` on, for the peer.
    #[must_use]
    pub fn remote(&self, offset: usize) -> RemoteMemory {
        RemoteMemory {
            address: self.registration.address + offset as u64,
            key: self.registration.remote_key,
        }
    }

    /// Copies bytes from the region.
    ///
    /// A peer may write the same bytes meanwhile. Then each aligned 8-byte word is from before or after
    /// that write. Data covered by a polled completion is read completely.
    ///
    /// # Panics
    /// If they exceed the region.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        match &self.system {
            None => self.domain.driver().note_memory_read(),
            Some(SystemMemory::Host(_)) => {}
            Some(SystemMemory::Device(memory)) => return memory.read(offset, into),
        }
        self.buffer.read(offset, into);
    }

    /// Copies bytes into it, as [`read`](Self::read) copies them out.
    ///
    /// Device memory of the system is written in words of four bytes: if the range begins or ends within one, the other bytes of the
    /// word are read and written again.
    ///
    /// # Panics
    /// If they exceed the region.
    pub fn write(&self, offset: usize, from: &[u8]) {
        if let Some(SystemMemory::Device(memory)) = &self.system {
            return memory.write(offset, from);
        }
        self.buffer.write(offset, from);
    }

    /// Gives a function all bytes as an ordinary slice. Until it returns, the device can't reach them:
    /// work requests and peers that use the region meanwhile fail with a protection error.
    ///
    /// ```
    /// # use rocinante::{Access, Context};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let context = Context::open("127.0.0.1")?;
    /// let domain = context.allocate_protection_domain()?;
    /// let mut memory = domain.allocate_memory(64, Access::LOCAL_WRITE)?;
    /// memory.lend(|bytes| bytes.fill(b'x'))?;
    /// # assert_eq!(memory.to_vec(..3), b"xxx");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If windows are bound to the region, in a forked child, where the device belongs to the parent, and at devices of the
    /// system, where memory would get other keys.
    pub fn lend<R>(&mut self, work: impl FnOnce(&mut [u8]) -> R) -> Result<R, MemoryError> {
        self.domain.software("regions that are lent")?;
        self.set_extent(Extent::detached(self.len() as u64))?;
        let lent = Lent(self);
        let buffer = Arc::get_mut(&mut lent.0.buffer).expect("the device has given its share back");
        let bytes = buffer.as_mut_slice();
        Ok(work(bytes.expect("memory that was allocated here")))
    }

    fn set_extent(&self, extent: Extent) -> Result<(), MemoryError> {
        let (key, address) = (self.key(), self.registration.address);
        let memory = Some((extent, address));
        self.domain
            .driver()
            .call(|device| device.reregister(key, None, memory, None))
    }

    /// A copy of a part of the region.
    ///
    /// # Panics
    /// If the range exceeds the region.
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

/// A region whose memory the device gets back when this is dropped.
struct Lent<'a>(&'a mut MemoryRegion);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let memory = Extent::from(Arc::clone(&self.0.buffer));
        // The region was lent, so the device has it, and no window can be bound to it.
        let _ = self.0.set_extent(memory);
    }
}

/// The bounds of a range in memory of `length` bytes.
///
/// # Panics
/// If the range exceeds the region.
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
        if self.system.is_some() {
            return;
        }
        let key = self.registration.local_key;
        // In a forked child there is nothing to revoke: the device stays with the parent.
        let _ = self.domain.driver().call(|device| device.revoke(key));
    }
}

/// A memory window: a second key for a part of a region, with its own access rights. It can be invalidated
/// quickly.
#[derive(Debug)]
pub struct MemoryWindow {
    domain: ProtectionDomain,
    key: Key,
    kind: WindowKind,
    /// The window of a device of the system.
    system: Option<Arc<verbs::Window>>,
}

impl MemoryWindow {
    /// The current key. At devices of the system it is that of the last binding that was posted.
    #[must_use]
    pub fn remote_key(&self) -> Key {
        if let Some(window) = &self.system {
            return window.remote_key();
        }
        let key = self.key;
        self.domain
            .driver()
            .call_without_transmit(|device| device.window_key(key))
            .expect("a window lives as long as its handle")
    }

    /// The key of the next binding: the low eight bits count.
    fn next_key(&self) -> Key {
        let value = self.remote_key().value();
        Key::new(value & !0xff | value.wrapping_add(1) & 0xff)
    }
}

impl Request {
    /// Binds a memory window to a part of a region. After the completion [`MemoryWindow::remote_key`] returns the
    /// key for the peer.
    ///
    /// # Panics
    /// If the range exceeds the region.
    #[must_use]
    pub fn bind_window(
        window: &MemoryWindow,
        region: &MemoryRegion,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Self {
        let part = region.slice(range);
        let binding = Binding {
            region: region.key(),
            address: part.address,
            length: u64::from(part.length),
            access,
        };
        Self::of(Work::BindWindow {
            window: window.key,
            key: (window.kind == WindowKind::Two).then(|| window.next_key()),
            binding,
        })
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        if self.system.is_some() {
            return;
        }
        let key = self.key;
        let _ = self.domain.driver().call(|device| device.free_window(key));
    }
}

//! Regions in memory that the application passes in and gets back.

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use engine::{Access, Buffer, MemoryError, OwnedMemory};

use super::{MemoryRegion, SystemMemory};
use crate::protection_domain::ProtectionDomain;

/// A [`MemoryRegion`] in memory of the application, which [`into_inner`](Self::into_inner) gives back.
///
/// The region can be used, but not exchanged for another one, or the memory would not be of type `M`:
/// ```compile_fail,E0596
/// # fn demo(mut mine: rocinante::OwnedRegion<Vec<u8>>, mut other: rocinante::MemoryRegion) {
/// std::mem::swap(&mut *mine, &mut other);
/// # }
/// ```
/// It can't be lent either, because some kinds of memory are shared with others:
/// ```compile_fail,E0596
/// # fn demo(mut mine: rocinante::OwnedRegion<rocinante::RawMemory>) {
/// mine.lend(|bytes| bytes.fill(0));
/// # }
/// ```
#[must_use = "dropping it deregisters the memory and drops it"]
pub struct OwnedRegion<M> {
    region: MemoryRegion,
    memory: PhantomData<fn() -> M>,
}

impl ProtectionDomain {
    /// Registers memory of the application: `Vec<u8>`, `Box<[u8]>`, or anything else that implements
    /// [`OwnedMemory`]. [`OwnedRegion::into_inner`] gives it back.
    ///
    /// ```
    /// # use rocinante::{Access, Context};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let context = Context::open("127.0.0.1")?;
    /// let domain = context.allocate_protection_domain()?;
    /// let message = domain.register(b"to be sent".to_vec(), Access::empty())?;
    /// // Post requests with `message.all()`, and wait for their completions.
    /// let message: Vec<u8> = message.into_inner().expect("this is no forked child");
    /// # assert_eq!(message, b"to be sent");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The reason, and the memory itself.
    pub fn register<M: OwnedMemory>(
        &self,
        memory: M,
        access: Access,
    ) -> Result<OwnedRegion<M>, RegisterError<M>> {
        OwnedRegion::register(self, memory, access)
    }
}

impl<M: OwnedMemory> OwnedRegion<M> {
    fn register(
        domain: &ProtectionDomain,
        memory: M,
        access: Access,
    ) -> Result<Self, RegisterError<M>> {
        let buffer = Buffer::owning(memory);
        match MemoryRegion::of_buffer(domain, Arc::clone(&buffer), access) {
            Ok(region) => Ok(Self {
                region,
                memory: PhantomData,
            }),
            Err(reason) => Err(RegisterError {
                memory: memory_of(buffer).expect("a refused region has no share in it"),
                reason,
            }),
        }
    }

    /// Deregisters the region and gives its memory back. Outstanding work requests that still need it fail.
    ///
    /// # Errors
    /// The region itself, if it stays registered: in a forked child, where the device and its memory belong to the parent, and at a
    /// device of the system that refuses, for instance because a window is bound to it.
    pub fn into_inner(mut self) -> Result<M, Self> {
        let can_end = match &mut self.region.system {
            Some(SystemMemory::Host(region)) => region.deregister().is_ok(),
            Some(SystemMemory::Device(_)) => true,
            None => !self.region.domain.driver().is_inherited(),
        };
        if !can_end {
            return Err(self);
        }
        let buffer = Arc::clone(&self.region.buffer);
        drop(self.region);
        Ok(memory_of(buffer).expect("a deregistered region has no share in it"))
    }
}

/// The memory of a buffer that has no other owner.
fn memory_of<M: OwnedMemory>(buffer: Arc<Buffer>) -> Option<M> {
    Arc::into_inner(buffer).and_then(Buffer::into_owner)
}

impl<M> Deref for OwnedRegion<M> {
    type Target = MemoryRegion;

    fn deref(&self) -> &MemoryRegion {
        &self.region
    }
}

impl<M> fmt::Debug for OwnedRegion<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedRegion").field(&self.region).finish()
    }
}

/// Memory could not be registered: the reason, and the memory itself.
pub struct RegisterError<M> {
    /// What was to be registered.
    pub memory: M,
    /// Why it was not.
    pub reason: MemoryError,
}

impl<M> fmt::Debug for RegisterError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisterError")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<M> fmt::Display for RegisterError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the memory can't be registered: {}", self.reason)
    }
}

impl<M> Error for RegisterError<M> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.reason)
    }
}

//! Protection domains.

use std::fmt;
use std::sync::Arc;

use engine::{Access, Id, MemoryError, ObjectError, OwnedMemory, WindowKind};

use crate::completion::CompletionQueue;
use crate::context::Context;
use crate::memory::{MemoryRegion, MemoryWindow, OwnedRegion, RegisterError};
use crate::queue_pair::QueuePairBuilder;
use driver::Driver;

/// A protection domain: its queue pairs can only access its own memory.
///
/// Cheap to clone. It is freed when the last clone and all objects created from it are dropped.
#[derive(Clone)]
pub struct ProtectionDomain(Arc<Owner>);

struct Owner {
    context: Context,
    id: Id<engine::ProtectionDomain>,
}

impl ProtectionDomain {
    pub(crate) fn allocate(context: &Context) -> Result<Self, ObjectError> {
        let id = context.driver().call(engine::Device::allocate_domain)?;
        Ok(Self(Arc::new(Owner {
            context: context.clone(),
            id,
        })))
    }

    /// Allocates and registers `length` bytes, all zero.
    pub fn register(&self, length: usize, access: Access) -> Result<MemoryRegion, MemoryError> {
        MemoryRegion::register(self, length, access)
    }

    /// Registers memory of the application: `Vec<u8>`, `Box<[u8]>`, or anything else that implements
    /// [`OwnedMemory`]. [`OwnedRegion::into_inner`] gives it back.
    ///
    /// ```
    /// # use rocinante::{Access, Context};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let context = Context::open("127.0.0.1")?;
    /// let domain = context.protection_domain()?;
    /// let message = domain.register_owned(b"to be sent".to_vec(), Access::empty())?;
    /// // Post requests with `message.all()`, and wait for their completions.
    /// let message: Vec<u8> = message.into_inner().expect("this is no forked child");
    /// # assert_eq!(message, b"to be sent");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The reason, and the memory itself.
    pub fn register_owned<M: OwnedMemory>(
        &self,
        memory: M,
        access: Access,
    ) -> Result<OwnedRegion<M>, RegisterError<M>> {
        OwnedRegion::register(self, memory, access)
    }

    /// Allocates device memory and registers it. Its addresses start at 0.
    pub fn register_on_device(
        &self,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion, MemoryError> {
        MemoryRegion::on_device(self, length, access)
    }

    /// Allocates a memory window.
    pub fn window(&self, kind: WindowKind) -> Result<MemoryWindow, MemoryError> {
        MemoryWindow::allocate(self, kind)
    }

    /// A builder for a queue pair whose requests complete in `completions`.
    #[must_use]
    pub fn queue_pair(&self, completions: &CompletionQueue) -> QueuePairBuilder {
        QueuePairBuilder::new(self, completions)
    }

    /// The device of this domain.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    pub(crate) fn driver(&self) -> &Driver {
        self.0.context.driver()
    }

    pub(crate) fn id(&self) -> Id<engine::ProtectionDomain> {
        self.0.id
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProtectionDomain")
            .field(&self.0.id.index())
            .finish()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let id = self.id;
        let _ = self.context.driver().call(|device| device.free_domain(id));
    }
}

//! Protection domains.

use std::fmt;
use std::sync::Arc;

use engine::{Id, ObjectError};

use crate::context::Context;
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

impl Context {
    /// Allocates a protection domain.
    pub fn protection_domain(&self) -> Result<ProtectionDomain, ObjectError> {
        let id = self.driver().call(engine::Device::allocate_domain)?;
        Ok(ProtectionDomain(Arc::new(Owner {
            context: self.clone(),
            id,
        })))
    }
}

impl ProtectionDomain {
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

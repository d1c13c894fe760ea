//! Protection domains.

use std::fmt;
use std::sync::Arc;

use engine::{Id, ObjectError, SystemRefusal};

use crate::context::{Context, Opened};
use driver::Driver;
use system::verbs;

/// A protection domain: its queue pairs can only access its own memory.
///
/// Cheap to clone. It is freed when the last clone and all objects created from it are dropped.
#[derive(Clone)]
pub struct ProtectionDomain(Arc<Owner>);

struct Owner {
    context: Context,
    object: Object,
}

enum Object {
    Software(Id<engine::ProtectionDomain>),
    System(Arc<verbs::Domain>),
}

impl Context {
    /// Allocates a protection domain.
    pub fn allocate_protection_domain(&self) -> Result<ProtectionDomain, ObjectError> {
        let object = match self.opened() {
            Opened::Software(driver) => {
                Object::Software(driver.call(engine::Device::allocate_domain)?)
            }
            Opened::System(system) => Object::System(verbs::Domain::allocate(&system.context)?),
        };
        Ok(ProtectionDomain(Arc::new(Owner {
            context: self.clone(),
            object,
        })))
    }
}

impl ProtectionDomain {
    /// The device of this domain.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The driver and the domain's number, for something that only our devices have.
    pub(crate) fn software(
        &self,
        what: &'static str,
    ) -> Result<(&Arc<Driver>, Id<engine::ProtectionDomain>), SystemRefusal> {
        match &self.0.object {
            Object::Software(id) => Ok((self.0.context.software(what)?, *id)),
            Object::System(_) => Err(SystemRefusal::NotOffered(what)),
        }
    }

    /// The driver of an object that exists at our devices only.
    pub(crate) fn driver(&self) -> &Arc<Driver> {
        self.0
            .context
            .driver()
            .expect("the object was created at one of our devices")
    }

    /// The system's domain, if it belongs to a device of the system.
    pub(crate) fn system(&self) -> Option<&Arc<verbs::Domain>> {
        match &self.0.object {
            Object::Software(_) => None,
            Object::System(domain) => Some(domain),
        }
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.object {
            Object::Software(id) => f
                .debug_tuple("ProtectionDomain")
                .field(&id.index())
                .finish(),
            Object::System(domain) => f.debug_tuple("ProtectionDomain").field(domain).finish(),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let (Object::Software(id), Some(driver)) = (&self.object, self.context.driver()) {
            let _ = driver.call(|device| device.free_domain(*id));
        }
    }
}

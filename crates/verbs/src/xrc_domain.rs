//! XRC domains.

use std::fmt;
use std::sync::Arc;

use engine::{Id, ObjectError};
use system::verbs;

use crate::context::{Context, Opened};

/// An XRC domain: shared receive queues and the targets that use them. Cheap to clone.
#[derive(Clone)]
pub struct XrcDomain(Arc<OpenDomain>);

struct OpenDomain {
    context: Context,
    object: Object,
}

enum Object {
    Software(Id<engine::XrcDomain>),
    System(Arc<verbs::XrcDomain>),
}

impl Context {
    /// Opens an XRC domain.
    pub fn open_xrc_domain(&self) -> Result<XrcDomain, ObjectError> {
        let object = match self.opened() {
            Opened::Software(driver) => {
                Object::Software(driver.call(engine::Device::open_xrc_domain)?)
            }
            Opened::System(system) => Object::System(verbs::XrcDomain::open(&system.context)?),
        };
        Ok(XrcDomain(Arc::new(OpenDomain {
            context: self.clone(),
            object,
        })))
    }
}

impl XrcDomain {
    /// Its number in the engine; `None` at devices of the system.
    pub(crate) fn id(&self) -> Option<Id<engine::XrcDomain>> {
        match &self.0.object {
            Object::Software(id) => Some(*id),
            Object::System(_) => None,
        }
    }

    /// The system's domain, if it belongs to a device of the system.
    pub(crate) fn system(&self) -> Option<&Arc<verbs::XrcDomain>> {
        match &self.0.object {
            Object::Software(_) => None,
            Object::System(domain) => Some(domain),
        }
    }
}

impl fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("XrcDomain")
            .field(&self.id().map(Id::index))
            .finish()
    }
}

impl Drop for OpenDomain {
    fn drop(&mut self) {
        if let (Object::Software(id), Some(driver)) = (&self.object, self.context.driver()) {
            let _ = driver.call(|device| device.close_xrc_domain(*id));
        }
    }
}

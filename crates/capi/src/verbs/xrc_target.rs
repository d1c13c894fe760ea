//! An XRC target queue pair, for which several handles may stand.

use engine::{CompletionQueue, Id, ProtectionDomain};

use super::event_target::EventTarget;

/// An XRC target. It lives until the last of its handles is destroyed: that of its creation, and those of `ibv_open_qp`.
pub(crate) struct SharedTarget {
    pub(super) resources: TargetResources,
    /// Its handles, oldest first.
    handles: Vec<EventTarget>,
}

/// The protection domain and completion queue of a target, which C creates without either.
pub(crate) struct TargetResources {
    pub(crate) domain: Id<ProtectionDomain>,
    pub(crate) completions: Id<CompletionQueue>,
}

impl SharedTarget {
    pub(super) fn new(resources: TargetResources) -> Self {
        Self {
            resources,
            handles: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, handle: EventTarget) {
        self.handles.push(handle);
    }

    /// Removes the handle at an address. Returns the oldest of the others; `None` if there are none, and then keeps the handle.
    pub(super) fn release(&mut self, address: usize) -> Option<EventTarget> {
        if self.handles.len() > 1 {
            self.handles.retain(|handle| handle.element != address);
            self.handles.first().cloned()
        } else {
            None
        }
    }
}

//! Work that sends nothing: binding and invalidating memory windows.

use super::QueuePair;
use crate::completion::Status;
use crate::shared::Shared;
use crate::work::Work;

impl QueuePair {
    /// Binds or invalidates a memory window.
    pub(super) fn carry_out(&self, work: &Work, shared: &mut Shared) -> Result<(), Status> {
        let party = self.party();
        let memory = &mut shared.memory;
        let bound = match *work {
            Work::LocalInvalidate(key) => {
                let invalidated = memory.invalidate(party, key);
                // "Memory management operation error": what hardware says of bindings and
                // invalidations alike.
                return invalidated.map_err(|_| Status::WindowBind);
            }
            Work::BindWindow {
                window,
                key: Some(key),
                binding,
            } => memory.bind_type_2(party, window, key, binding),
            Work::BindWindow {
                window, binding, ..
            } => memory.bind_type_1(party, window, binding),
            _ => return Err(Status::LocalOperation),
        };
        bound.map(drop).map_err(|_| Status::WindowBind)
    }
}

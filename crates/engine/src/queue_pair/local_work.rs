//! Local work: binding and invalidating memory windows. It sends no packets.

use super::QueuePair;
use crate::completion::Status;
use crate::device_state::DeviceState;
use crate::work_request::Work;

impl QueuePair {
    /// Binds or invalidates a memory window.
    pub(super) fn execute_local(
        &self,
        work: &Work,
        device: &mut DeviceState,
    ) -> Result<(), Status> {
        let accessor = self.accessor();
        let mut memory = device.objects.memory_mut();
        let bound = match *work {
            Work::LocalInvalidate(key) => {
                let invalidated = memory.invalidate(accessor, key);
                // "Memory management operation error": hardware reports it for failed bindings and
                // for failed invalidations.
                return invalidated.map_err(|_| Status::WindowBind);
            }
            Work::BindWindow {
                window,
                key: Some(key),
                binding,
            } => memory.bind_type_2(accessor, window, key, binding),
            Work::BindWindow {
                window, binding, ..
            } => memory.bind_type_1(accessor, window, binding),
            _ => return Err(Status::LocalOperation),
        };
        bound.map(drop).map_err(|_| Status::WindowBind)
    }
}

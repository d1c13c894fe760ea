//! Requests to queue pairs of the same device that need no packets.

use wire::Qpn;

use super::Device;
use crate::work_request::SendRequest;

impl Device {
    /// Executes a request without packets, if it is for this device and both ends are idle. Returns how many bytes it has; `None`
    /// if it must be queued for packets.
    pub(super) fn execute_directly(&mut self, number: Qpn, request: &SendRequest) -> Option<usize> {
        if !self.executes_directly {
            return None;
        }
        let state = &mut self.state;
        let [sender, receiver] = self.queue_pairs.with_peer(number)?;
        let direct = sender.direct_request(request)?;
        if !receiver.expects(&direct, sender) {
            return None;
        }
        let memory = state.objects.memory();
        sender.copy_directly(&direct, receiver, &memory, &mut self.piece)?;
        drop(memory);
        sender.complete_directly(&direct, receiver, state);
        let length = direct.length();
        self.fail_users_of_overrun_queues();
        Some(length)
    }
}

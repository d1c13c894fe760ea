//! Requests to queue pairs of the same device that need no packets.

use wire::Qpn;

use super::Device;
use crate::work_request::SendRequest;

impl Device {
    /// Sets whether packets to own queue pairs are handled at once, without ICRC, instead of being sent. Packets
    /// that were sent before must have arrived, or they arrive out of order.
    pub fn set_own_delivery(&mut self, on: bool) {
        self.own_delivery = on;
        let state = &self.state;
        // These belong to packets.
        let needs_packets = state.observations.are_recorded()
            || state.incidents.are_recorded()
            || state.planted.is_any();
        self.executes_directly = on && !needs_packets;
    }

    /// Whether there is nothing to send now or later, and no event: what was posted is executed.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.ready.is_empty()
            && self.pacing.next().is_none()
            && !self.has_events()
            && self.state.questions.is_empty()
    }

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

//! Requests to queue pairs of the same device that need no packets.

use wire::Qpn;

use super::Device;
use crate::now::Now;
use crate::transmit::OwnDelivery;

impl Device {
    /// Executes the next request of a queue pair without packets, if it is for this device and both ends are idle. Returns how
    /// many bytes it has; `None` if packets must be built.
    ///
    /// Observations, incidents and planted bugs belong to packets.
    pub(super) fn execute_directly(
        &mut self,
        now: &Now,
        number: Qpn,
        buffer: &mut Vec<u8>,
    ) -> Option<usize> {
        let state = &mut self.state;
        if state.observations.are_recorded()
            || state.incidents.are_recorded()
            || state.planted.is_any()
        {
            return None;
        }
        let sender = self.queue_pairs.get(number)?;
        let request = sender.direct_request()?;
        let own_delivery = OwnDelivery {
            gids: &self.gids,
            numbers: self.queue_pairs.space(),
            given: &self.given,
        };
        let is_own = own_delivery.includes(&request.route, request.receiver);
        if !is_own || request.receiver == number {
            return None;
        }
        let receiver = self.queue_pairs.get(request.receiver)?;
        if !receiver.expects(&request) {
            return None;
        }
        sender.copy_directly(&request, receiver, &state.objects.memory(), buffer)?;
        let receiver = self.queue_pairs.get_mut(request.receiver)?;
        let acknowledgement = receiver.note_received_directly(&request, state);
        let sender = self.queue_pairs.get_mut(number)?;
        sender.note_sent_directly(&request, &acknowledgement, now, state);
        sender.queued = false;
        self.reschedule(number);
        Some(request.length())
    }
}

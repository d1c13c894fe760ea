//! Requests to queue pairs of the same device that need no packets.

use wire::Qpn;

use super::{Device, MAX_OWN_DELIVERY};
use crate::queue_pair::Kind;
use crate::work_request::{SendRequest, Work};

/// A short request counts as many bytes of [`MAX_OWN_DELIVERY`], because it takes as much time.
const LEAST_OWN_DELIVERY: usize = 256;

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
        !self.has_ready()
            && self.pacing.next().is_none()
            && !self.has_events()
            && self.state.questions.is_empty()
    }

    /// A call that posts begins. It may execute as much as [`poll_transmit`](Self::poll_transmit) delivers at once; what is more waits in
    /// the send queues.
    #[inline]
    pub fn begin_posts(&mut self) {
        self.own_delivery_left = MAX_OWN_DELIVERY;
    }

    /// Executes a request without packets, if it is for this device and both ends are idle. `None` if it must be queued for packets.
    #[inline]
    pub(super) fn execute_directly(&mut self, number: Qpn, request: &SendRequest) -> Option<()> {
        if !self.executes_directly || self.own_delivery_left == 0 {
            return None;
        }
        match request.work {
            Work::Send | Work::SendImmediate(_) => {
                self.execute(number, request, Kind::Send(request.work.immediate()))
            }
            Work::Write(remote) => self.execute(number, request, Kind::Write(remote)),
            Work::Read(remote) => self.execute(number, request, Kind::Read(remote)),
            _ => None,
        }
    }

    /// Compiled for each kind of request: most of it depends on that.
    #[inline(always)]
    fn execute(&mut self, number: Qpn, request: &SendRequest, kind: Kind) -> Option<()> {
        let state = &mut self.state;
        let [sender, receiver] = self.queue_pairs.with_peer(number)?;
        let is_known = sender.is_known_in_step_with(receiver);
        if !is_known && !sender.is_in_step_with(receiver) {
            return None;
        }
        let direct = sender.direct_request(request, kind)?;
        if !receiver.admits(direct) {
            return None;
        }
        let memory = state.objects.memory();
        sender.copy_directly(direct, receiver, &memory, &mut self.piece)?;
        drop(memory);
        sender.complete_directly(direct, receiver, state);
        if !is_known {
            sender.enter_step_with(receiver);
        }
        let used = direct.length().max(LEAST_OWN_DELIVERY);
        self.own_delivery_left = self.own_delivery_left.saturating_sub(used);
        self.fail_users_of_overrun_queues();
        Some(())
    }
}

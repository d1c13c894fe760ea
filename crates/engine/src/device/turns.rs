//! Which queue pair is next, and what follows from what it did.

use std::time::Instant;

use wire::Qpn;

use super::Device;
use crate::now::Now;
use crate::transmit::{SharedRoom, Transmit};

impl Device {
    /// Fills `buffer` with the packets of one send, if there is anything to send.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        self.poll_transmit_shared(&now.into(), buffer, &mut ())
    }

    /// As [`poll_transmit`](Self::poll_transmit), but builds long packets in shared memory where there is room. The time is
    /// read only if something depends on it.
    #[must_use]
    pub fn poll_transmit_shared(
        &mut self,
        now: &Now,
        buffer: &mut Vec<u8>,
        shared_room: &mut dyn SharedRoom,
    ) -> Option<Transmit> {
        let transmit = self.deliver_or_transmit(now, buffer, shared_room);
        while let Some(number) = self.delivered.pop() {
            if let Some(queue_pair) = self.queue_pairs.get_mut(number) {
                queue_pair.arm_timer_after_delivery(now);
                self.settle(number);
            }
        }
        transmit
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) must be called again: it returned `None` because it has
    /// delivered enough to own queue pairs for one call.
    #[must_use]
    pub fn has_more_to_deliver(&self) -> bool {
        self.own_delivery && self.has_ready() && !(self.is_closed && self.ready.is_empty())
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) may return packets now.
    #[must_use]
    pub fn may_transmit(&self, now: &Now) -> bool {
        self.has_ready() || self.pacing.next().is_some_and(|at| at <= now.get())
    }

    /// Lets queue pairs try again that wait for [room](crate::SharedRoom).
    pub fn note_room(&mut self) {
        self.ready.extend(self.without_room.drain(..));
    }

    /// Lets one queue pair try again.
    pub(super) fn note_room_for(&mut self, number: Qpn) {
        let mut waiting = self.without_room.iter();
        if let Some(index) = waiting.position(|it| *it == number) {
            self.without_room.remove(index);
            self.ready.push_back(number);
        }
    }

    /// Whether a queue pair may have something to send, or its turn on its path.
    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || self.state.paths.has_turns()
    }

    /// The next queue pair that may have packets to send, and whether it has its turn on its path. Those that wait for their
    /// paths alternate with others. If nothing leaves the device, they keep their places.
    pub(super) fn next_queue_pair(&mut self, now: &Now) -> Option<(Qpn, bool)> {
        if self.is_closed {
            return Some((self.ready.pop_front()?, false));
        }
        self.turn_is_next = !self.turn_is_next;
        let turn = self.turn_is_next.then(|| self.take_turn(now)).flatten();
        turn.or_else(|| Some((self.ready.pop_front()?, false)))
            .or_else(|| self.take_turn(now))
    }

    fn take_turn(&mut self, now: &Now) -> Option<(Qpn, bool)> {
        let number = self.state.paths.take_turn(now)?;
        let queue_pair = self.queue_pairs.get_mut(number);
        queue_pair.expect("it leaves the line first").begin_turn();
        Some((number, true))
    }

    /// A queue pair has changed: starts its timer, and tells its path.
    pub(super) fn settle(&mut self, number: Qpn) {
        let Some(queue_pair) = self.queue_pairs.get_mut(number) else {
            return;
        };
        queue_pair.settle_path(&mut self.state.paths);
        if let Some(deadline) = queue_pair.deadline()
            && queue_pair.scheduled.is_none_or(|at| deadline < at)
        {
            queue_pair.scheduled = Some(deadline);
            self.timers.push(deadline, number);
        }
    }
}

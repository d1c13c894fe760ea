//! Which queue pair is next, and what follows from what it did.

use wire::Qpn;

use super::Device;
use crate::now::Now;

impl Device {
    /// The next queue pair that may have packets to send, and whether it has its turn on its path. Those that wait for their
    /// paths alternate with others.
    pub(super) fn next_queue_pair(&mut self, now: &Now) -> Option<(Qpn, bool)> {
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

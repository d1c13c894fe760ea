//! What a member remembers for the repair of the group.

use std::time::{Duration, Instant};

use super::number_block::NumberBlock;
use super::registry::Stamp;
use crate::times::{GIVE_UP_AFTER, LIVENESS_CHECK_INTERVAL, SCHEDULED, TICK};

/// What a member knows about its own index, and when its next checks are due.
#[derive(Debug)]
pub(super) struct RepairState {
    /// The latest known round of probes.
    pub(super) round: u64,
    /// The lowest index at which a probe of this round arrived; `None` until one arrives.
    pub(super) socket_index: Option<u32>,
    /// Whether the index is not in the registry yet.
    pub(super) unrecorded: bool,
    /// The round and the index with which this member entered the registry.
    pub(super) entered: Option<(u64, u32)>,
    /// When to install the program, unless another member has done so before.
    pub(super) publish_at: Option<Instant>,
    /// The version of the table whose program this member installed last.
    pub(super) installed: Option<Stamp>,
    probe_timeout: Duration,
    /// When the wait for a probe ends.
    pub(super) probe_deadline: Option<Instant>,
    /// The owner of a packet that was steered to this member by mistake, or could not be forwarded.
    pub(super) suspect: Option<NumberBlock>,
    /// Strays cause no check of the registry before this time.
    pub(super) next_stray_check: Option<Instant>,
    /// When to check again whether the processes of other members run.
    pub(super) due: Option<Instant>,
    /// How many such checks were made.
    pub(super) checks: usize,
    /// How often in a row the registry was locked by another process when this member needed it.
    locked: u32,
    /// Whether a process has ended that is still in the registry.
    pub(super) someone_died: bool,
    /// Whether no packets are steered to this member, because it is leaving, or its queue pairs are not there yet. The other
    /// members maintain the group then.
    pub(super) withdrawn: bool,
}

impl RepairState {
    pub(super) fn new(withdrawn: bool) -> Self {
        Self {
            round: 0,
            socket_index: None,
            unrecorded: false,
            entered: None,
            publish_at: None,
            installed: None,
            probe_timeout: SCHEDULED,
            probe_deadline: None,
            suspect: None,
            next_stray_check: None,
            due: None,
            checks: 0,
            locked: 0,
            someone_died: false,
            withdrawn,
        }
    }

    /// Records the owner of a packet that was steered to this member by mistake, or could not be
    /// forwarded.
    pub(super) fn suspect(&mut self, owner: NumberBlock) {
        self.suspect = Some(owner);
    }

    /// Starts to wait for a probe of this round.
    pub(super) fn expect(&mut self, round: u64) {
        self.round = round;
        self.socket_index = None;
        self.unrecorded = false;
        self.probe_deadline = None;
    }

    /// Records a probe of the current round. Returns whether its index is lower than the known one.
    pub(super) fn note(&mut self, socket_index: u32) -> bool {
        if self.socket_index.is_some_and(|known| known <= socket_index) {
            return false;
        }
        self.socket_index = Some(socket_index);
        self.unrecorded = true;
        self.probe_timeout = SCHEDULED;
        self.probe_deadline = None;
        true
    }

    /// Whether the wait for a probe has timed out. The first call starts the clock.
    pub(super) fn probe_timed_out(&mut self, now: Instant, members: usize) -> bool {
        if self.socket_index.is_some() {
            return false;
        }
        // The probes arrive one after the other.
        let all = SCHEDULED / 100 * members as u32;
        let probe_deadline = *self
            .probe_deadline
            .get_or_insert(now + self.probe_timeout + all);
        if now < probe_deadline {
            return false;
        }
        self.probe_timeout = (self.probe_timeout * 2).min(GIVE_UP_AFTER);
        self.probe_deadline = Some(now + self.probe_timeout + all);
        true
    }

    /// What has failed is not tried again before `until`.
    pub(super) fn postpone(&mut self, until: Instant) {
        for at in [&mut self.probe_deadline, &mut self.publish_at] {
            *at = at.map(|at| at.max(until));
        }
    }

    /// Another process has locked the registry, mostly for less than a millisecond. What needs it is tried again after a time that
    /// doubles: many members may need it at once, and its holder may be stopped.
    pub(super) fn try_again_soon(&mut self, now: Instant) {
        let pause = TICK.saturating_mul(1 << self.locked.min(16));
        let until = now + pause.min(LIVENESS_CHECK_INTERVAL);
        self.locked = self.locked.saturating_add(1);
        self.due = Some(until);
        self.postpone(until);
    }

    /// What needed the registry has succeeded.
    pub(super) fn note_success(&mut self) {
        self.locked = 0;
    }

    /// When the next maintenance is due, unless strays cause it earlier.
    pub(super) fn next_due(&self, now: Instant) -> Instant {
        let times = [self.due.or(Some(now)), self.probe_deadline, self.publish_at];
        times.into_iter().flatten().min().unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_index_of_a_round_counts() {
        let mut repair = RepairState::new(false);
        repair.expect(7);
        assert!(repair.note(5));
        assert!(!repair.note(5) && !repair.note(6));
        assert_eq!(repair.socket_index, Some(5));
        assert!(repair.note(2));
        assert_eq!(repair.socket_index, Some(2));
    }

    /// Otherwise a process that has no descriptor left tries without a pause.
    #[test]
    fn what_has_failed_is_tried_again_after_a_pause() {
        let mut repair = RepairState::new(false);
        let now = Instant::now();
        repair.expect(7);
        repair.probe_timed_out(now, 0);
        repair.publish_at = Some(now);
        let again = now + GIVE_UP_AFTER;
        repair.due = Some(again);
        assert!(repair.next_due(now) <= now);
        repair.postpone(again);
        assert_eq!(repair.next_due(now), again);
    }

    #[test]
    fn a_locked_registry_is_tried_again_after_a_pause_that_doubles() {
        let mut repair = RepairState::new(false);
        let now = Instant::now();
        let pause = |repair: &mut RepairState| {
            repair.publish_at = Some(now);
            repair.try_again_soon(now);
            repair.next_due(now) - now
        };
        for expected in [1, 2, 4, 8, 16, 32, 64, 128, 250, 250] {
            assert_eq!(pause(&mut repair), expected * TICK);
        }
        repair.note_success();
        assert_eq!(pause(&mut repair), TICK);
    }

    #[test]
    fn a_missing_probe_is_waited_for_longer_each_time() {
        let mut repair = RepairState::new(false);
        let begin = Instant::now();
        let mut now = begin;
        assert!(!repair.probe_timed_out(now, 0));
        for wait in [SCHEDULED, SCHEDULED * 2, SCHEDULED * 4] {
            assert!(!repair.probe_timed_out(now + wait - Duration::from_nanos(1), 0));
            now += wait;
            assert!(repair.probe_timed_out(now, 0), "{wait:?}");
        }
        for _ in 0..20 {
            now += GIVE_UP_AFTER;
            assert!(repair.probe_timed_out(now, 0));
        }
        repair.note(0);
        // A first call would start the clock.
        for later in 1..4 {
            assert!(!repair.probe_timed_out(now + later * GIVE_UP_AFTER, 0));
        }
    }
}

//! What a step of a lane leaves to do when its lock is free: it wakes threads, writes files or takes other locks.

use std::sync::Arc;

use net::tap::capture::CaptureError;

use super::Lane;
use super::state::LaneState;
use crate::capture_and_faults::report_capture_error;
use crate::check::{DeviceCheck, Finding};
use crate::clock::now;
use crate::diagnostics::Problem;
use crate::lanes::LaneMessage;

/// Carried out in this order, before the wake-ups that the step has caused.
#[must_use]
pub(super) struct Effects {
    /// The thread has taken the wake-up of others that sleep on the sockets.
    took_wakeup: bool,
    messages: Vec<LaneMessage>,
    /// The check whose records are to be written into its log.
    publication: Option<Arc<DeviceCheck>>,
    findings: Option<(Arc<DeviceCheck>, Vec<Finding>)>,
    problems: Vec<Problem>,
    capture_error: Option<CaptureError>,
}

impl Effects {
    /// Takes the effects of a step out of the state.
    #[cold]
    pub(super) fn of(lane: &Lane, state: &mut LaneState) -> Self {
        let mut effects = Self::without_publication(lane, state);
        effects.publication = state.publication();
        effects
    }

    /// For a step that is part of a publication.
    pub(super) fn without_publication(lane: &Lane, state: &mut LaneState) -> Self {
        Self {
            findings: state.take_findings(),
            publication: None,
            problems: match lane.reporter {
                Some(_) if state.has_problems() => state.take_problems(),
                _ => Vec::new(),
            },
            messages: state.take_lane_messages(),
            capture_error: state.take_capture_error(),
            took_wakeup: lane.turn.has_waits() && state.took_wakeup(),
        }
    }

    pub(super) fn carry_out(self, lane: &Lane) {
        if self.took_wakeup && lane.turn.note_wakeup_taken(now()) {
            lane.waker.wake();
        }
        if !self.messages.is_empty() {
            lane.siblings.deliver(self.messages);
        }
        if let Some(check) = self.publication {
            lane.publish(&check);
        }
        if let Some((check, findings)) = self.findings {
            check.report(findings);
        }
        if let Some(reporter) = &lane.reporter {
            lane.report(reporter, self.problems);
        }
        self.capture_error.iter().for_each(report_capture_error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Driver;
    use crate::options::OpenOptions;

    /// The reader of stderr may be slow, and other threads need the lock.
    #[test]
    fn the_end_of_a_capture_is_told_after_the_lock_is_released() {
        let options = OpenOptions {
            capture: Some("/dev/full".into()),
            ..OpenOptions::default()
        };
        let driver = Driver::without_thread_with("127.58.94.23", &options);
        let lane = driver.lane();
        let mut state = lane.lock();
        state.transmit(now());
        assert!(state.has_effects(false));
        let effects = Effects::of(lane, &mut state);
        drop(state);
        let told = effects.capture_error.map(|error| error.to_string());
        let told = told.expect("an error that is not told yet");
        assert!(told.contains("/dev/full ends early"), "{told}");
        lane.lock().transmit(now());
        assert!(!lane.lock().has_effects(false), "it is told once");
    }
}

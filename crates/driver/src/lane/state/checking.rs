//! What a checked device observes, on its way to the checker and into the log that processes share.

use std::sync::Arc;
use std::time::Instant;

use super::LaneState;
use super::progress::Responses;
use crate::check::{DeviceCheck, Finding};

impl LaneState {
    /// The checker of the program, if it is checked.
    pub(crate) fn check(&self) -> Option<&Arc<DeviceCheck>> {
        self.check.as_ref()
    }

    /// Checks what has happened. Returns findings, to be reported after the lock is released.
    pub(crate) fn take_findings(&mut self) -> Option<(Arc<DeviceCheck>, Vec<Finding>)> {
        self.note_observations();
        self.check_observations();
        let check = self.check.as_ref().filter(|_| !self.findings.is_empty())?;
        Some((Arc::clone(check), std::mem::take(&mut self.findings)))
    }

    /// Whether packets must wait: other processes may learn from them, and the records of what happened before are written
    /// into the log after the lock is released.
    pub(super) fn waits_for_publication(&mut self) -> bool {
        if self.check.as_ref().is_some_and(|it| it.tells_threads()) {
            self.note_observations();
            self.check_observations();
        }
        if !self.check.as_ref().is_some_and(|it| it.publishes()) {
            return false;
        }
        self.note_observations();
        self.check_observations();
        let waits = !self.is_published();
        if waits {
            // If nobody publishes them, the lane's thread does.
            self.responses = Responses::Unpublished;
        }
        waits
    }

    fn is_published(&self) -> bool {
        (self.check.as_ref()).is_none_or(|it| it.is_published(self.recorded))
    }

    /// The check whose records must be written into the log, and before packets that wait, after the lock is released.
    pub(crate) fn publication(&self) -> Option<Arc<DeviceCheck>> {
        let check = self.check.as_ref().filter(|it| it.publishes())?;
        (self.responses == Responses::Unpublished || !self.is_published())
            .then(|| Arc::clone(check))
    }

    /// Writes the records of what has happened into the log. The lane ends: nobody else can wait for its lock.
    pub(super) fn publish(&mut self) {
        self.note_observations();
        self.check_observations();
        if let Some(check) = self.publication() {
            check.publish();
        }
    }

    /// Sends packets that waited for records in the log.
    pub(crate) fn send_published(&mut self, now: Instant) {
        if self.responses == Responses::Unpublished {
            self.transmit(now);
        }
    }

    fn check_observations(&mut self) {
        if let Some(check) = &self.check
            && !self.sockets.is_cut_off()
            && !self.observed.is_empty()
        {
            let (findings, recorded) = check.observe(self.observed.drain(..));
            self.findings.extend(findings);
            self.recorded = recorded;
        }
    }

    /// Records in the capture what has happened, and keeps it for the checker.
    pub(super) fn note_observations(&mut self) {
        if !self.host.device().has_observations() {
            return;
        }
        let observations = self.host.device_mut().take_observations();
        if let Some(capture) = &self.capture_and_faults {
            observations.iter().for_each(|one| capture.observe(one));
        }
        if self.check.is_some() {
            self.observed.extend(observations);
        }
    }
}

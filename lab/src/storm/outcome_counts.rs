//! Counts how the programs ended.

use std::fmt;

use super::exit_check::End;
use super::program::{Intervention, Program};

#[derive(Default)]
pub(super) struct Tally {
    pub(super) started: usize,
    succeeded: usize,
    failed: usize,
    killed: usize,
    dismissed: usize,
}

impl Tally {
    pub(super) fn count(&mut self, program: &Program, end: End) {
        match (end, program.intervention) {
            (End::Success, _) => self.succeeded += 1,
            (End::ClearError, _) => self.failed += 1,
            (End::Signalled, Intervention::Terminated) => self.dismissed += 1,
            (End::Signalled, _) => self.killed += 1,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} programs: {} succeeded, {} said why they failed, {} were killed, {} waited for a peer \
             that was gone",
            self.started, self.succeeded, self.failed, self.killed, self.dismissed
        )
    }
}

//! How the tests ended.

use std::fmt;
use std::time::Duration;

use super::job::{Job, Report};

/// How many of the slowest tests a run names.
const NAMED_SLOW_TESTS: usize = 12;

#[derive(Default)]
pub(super) struct Summary {
    passed: usize,
    durations: Vec<(Duration, String)>,
    failures: Vec<Failure>,
}

struct Failure {
    name: String,
    output: String,
    /// It passed when it ran a second time.
    passed_again: bool,
}

impl Summary {
    /// Adds a job that ran once, or a second time after it had failed.
    pub(super) fn add(&mut self, job: &Job<'_>, report: Report, again: Option<Report>) {
        self.durations.push((report.duration, job.to_string()));
        match again {
            None => self.passed += 1,
            Some(again) => self.failures.push(Failure {
                name: job.to_string(),
                output: report.output,
                passed_again: again.passed,
            }),
        }
    }

    /// Fails if a test failed, also if it passed later: then the test or what it tests is wrong sometimes.
    pub(super) fn verdict(&self) -> Result<(), String> {
        match self.failures.len() {
            0 => Ok(()),
            1 => Err("1 test failed".into()),
            count => Err(format!("{count} tests failed")),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut slowest: Vec<_> = self.durations.iter().collect();
        slowest.sort_unstable_by(|one, other| other.cmp(one));
        writeln!(f, "\nslowest:")?;
        for (duration, name) in slowest.iter().take(NAMED_SLOW_TESTS) {
            writeln!(f, "{:>7.1} s  {name}", duration.as_secs_f32())?;
        }
        if !self.failures.is_empty() {
            // The excerpt of a failed step begins with this line.
            writeln!(f, "\nfailures:")?;
        }
        for failure in &self.failures {
            writeln!(f, "\n{failure}")?;
        }
        write!(
            f,
            "\n{} passed, {} failed",
            self.passed,
            self.failures.len()
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { name, output, .. } = self;
        write!(f, "---- {name}")?;
        if self.passed_again {
            f.write_str(
                ", which passed when it ran again, alone: a defect of the test or of what it tests",
            )?;
        }
        write!(f, "\n{output}")
    }
}

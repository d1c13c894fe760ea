//! The results: a summary for people, JSON and JUnit XML for programs, and an HTML page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use super::trial::{Failure, MessageSource};
use crate::markup::escaped;
use crate::output::{BAD, GOOD, STRONG, Table, count, styled};

/// Everything about a campaign.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) command: String,
    /// How many runs it was to have.
    pub(super) planned: usize,
    /// Whether the user ended it before that.
    pub(super) interrupted: bool,
    pub(super) seconds: f64,
    /// How many faults of each kind were injected.
    pub(super) injected: BTreeMap<String, usize>,
    pub(super) failures: Vec<FailureReport>,
    pub(super) runs: Vec<RunReport>,
}

/// One run.
#[derive(Serialize)]
pub(super) struct RunReport {
    pub(super) number: usize,
    pub(super) seed: u64,
    pub(super) seconds: f64,
    pub(super) faults: usize,
    pub(super) failure: Option<String>,
}

/// One kind of failure.
#[derive(Clone, Serialize)]
pub(super) struct FailureReport {
    pub(super) what: String,
    pub(super) who: &'static str,
    /// The last line on stderr, or the first finding of the check.
    pub(super) message: String,
    #[serde(skip)]
    pub(super) source: MessageSource,
    /// In how many runs it happened.
    pub(super) runs: usize,
    pub(super) first_run: usize,
    pub(super) seed: u64,
    /// The faults of the first run.
    pub(super) plan: String,
    /// The smallest set of faults with this failure.
    pub(super) faults: Vec<String>,
    /// Whether the command passes without any one of these faults.
    pub(super) is_minimal: bool,
    /// The packets that these faults concern.
    pub(super) packets: Vec<String>,
    /// How often the smallest set failed when it was repeated.
    pub(super) repeated: String,
    /// The command that repeats it.
    pub(super) replay: String,
    /// Output, log and capture.
    pub(super) directory: PathBuf,
}

impl FailureReport {
    pub(super) fn new(
        run: usize,
        seed: u64,
        failure: &Failure,
        plan: &str,
        directory: PathBuf,
    ) -> Self {
        FailureReport {
            what: failure.what.clone(),
            who: failure.who,
            message: failure.message.clone(),
            source: failure.source,
            runs: 1,
            first_run: run,
            seed,
            plan: plan.to_owned(),
            faults: Vec::new(),
            is_minimal: false,
            packets: Vec::new(),
            repeated: String::new(),
            replay: String::new(),
            directory,
        }
    }

    /// The size of the smallest set.
    pub(super) fn size(&self) -> String {
        let faults = count(self.faults.len(), "fault", "faults");
        if self.is_minimal || self.faults.len() <= 1 {
            return faults;
        }
        format!("{faults}, perhaps fewer")
    }

    pub(super) fn title(&self) -> String {
        format!("{} of the {}", self.what, self.who)
    }
}

impl Report {
    pub(super) fn failed_runs(&self) -> usize {
        self.runs.iter().filter(|run| run.failure.is_some()).count()
    }

    /// The summary for a terminal.
    pub(super) fn summary(&self) -> String {
        let mut text = String::new();
        let mut injected = Table::new(["fault", "injected"]);
        for (kind, number) in &self.injected {
            injected.push([kind.clone(), number.to_string()]);
        }
        if !self.injected.is_empty() {
            let _ = writeln!(text, "{injected}");
        }
        if !self.failures.is_empty() {
            let mut table =
                Table::new(["failure", "runs", "seed", "smallest set of faults", "fails"]);
            for failure in &self.failures {
                table.push([
                    failure.title(),
                    failure.runs.to_string(),
                    failure.seed.to_string(),
                    failure.size(),
                    failure.repeated.clone(),
                ]);
            }
            let _ = writeln!(text, "{table}");
        }
        for failure in &self.failures {
            let _ = writeln!(text, "{}", styled(STRONG, failure.title()));
            if !failure.message.is_empty() {
                let source = match failure.source {
                    MessageSource::LastLine => "last line on stderr",
                    MessageSource::FirstFinding => "first finding",
                };
                let _ = writeln!(text, "  {source}: {}", failure.message);
            }
            for packet in &failure.packets {
                let _ = writeln!(text, "  {packet}");
            }
            let _ = writeln!(
                text,
                "  capture and output: {}",
                failure.directory.display()
            );
            let _ = writeln!(text, "  {}\n", failure.replay);
        }
        let tone = if self.failed_runs() == 0 { GOOD } else { BAD };
        let _ = writeln!(text, "{}", styled(tone, self.verdict()));
        text
    }

    /// How it ended, in one sentence.
    pub(super) fn verdict(&self) -> String {
        let failed = match self.failed_runs() {
            0 => "none failed".to_owned(),
            some => format!("{some} failed"),
        };
        let seconds = self.seconds;
        if self.interrupted {
            let (runs, planned) = (self.runs.len(), self.planned);
            return format!(
                "Interrupted after {runs} of {planned} runs in {seconds:.0} s: {failed}."
            );
        }
        let runs = count(self.runs.len(), "run", "runs");
        format!("{runs} in {seconds:.0} s: {failed}.")
    }

    pub(super) fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        write(path, &(text + "\n"))
    }

    pub(super) fn write_junit(&self, path: &Path) -> anyhow::Result<()> {
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let name = escaped(&format!("roci torture {}", self.command));
        let _ = writeln!(
            text,
            "<testsuite name=\"{name}\" tests=\"{}\" failures=\"{}\" time=\"{:.3}\">",
            self.runs.len(),
            self.failed_runs(),
            self.seconds
        );
        for run in &self.runs {
            let (seed, seconds) = (run.seed, run.seconds);
            let case = format!(
                "<testcase name=\"seed {seed}\" classname=\"torture\" time=\"{seconds:.3}\""
            );
            let _ = match &run.failure {
                None => writeln!(text, "  {case}/>"),
                Some(failure) => {
                    let replay = self.failures.iter().find(|one| one.first_run == run.number);
                    let replay = replay.map_or("", |one| one.replay.as_str());
                    let (failure, replay) = (escaped(failure), escaped(replay));
                    writeln!(
                        text,
                        "  {case}><failure message=\"{failure}\">{replay}</failure></testcase>"
                    )
                }
            };
        }
        text.push_str("</testsuite>\n");
        write(path, &text)
    }
}

pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("{} can't be written", path.display()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two runs, of which the second failed.
    pub(crate) fn report() -> Report {
        let failure = Failure {
            what: "exit status 1".to_owned(),
            who: "command",
            message: "a < b".to_owned(),
            source: MessageSource::LastLine,
        };
        let replay = format!(
            "roci torture --replay '{}' -- ./test",
            "drop:nth=1;".repeat(40)
        );
        let failure = FailureReport {
            faults: vec!["drop:nth=1".to_owned()],
            replay,
            ..FailureReport::new(2, 8, &failure, "drop:nth=1", PathBuf::from("nowhere"))
        };
        let run = |number, failure| RunReport {
            number,
            seed: 6 + number as u64,
            seconds: 0.5,
            faults: 1,
            failure,
        };
        Report {
            command: "-- ./test".to_owned(),
            planned: 200,
            interrupted: false,
            seconds: 1.0,
            injected: BTreeMap::from([("drop".to_owned(), 2)]),
            failures: vec![failure],
            runs: vec![
                run(1, None),
                run(2, Some("command: exit status 1".to_owned())),
            ],
        }
    }

    #[test]
    fn the_verdict_of_an_interrupted_campaign_says_how_far_it_came() {
        let mut report = report();
        assert_eq!(report.verdict(), "2 runs in 1 s: 1 failed.");
        report.interrupted = true;
        let verdict = "Interrupted after 2 of 200 runs in 1 s: 1 failed.";
        assert_eq!(report.verdict(), verdict);
    }
}

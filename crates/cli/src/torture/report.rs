//! The results: a summary for people, JSON and JUnit XML for programs, and an HTML page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use explain::Analysis;
use explain::terminal::{View, render};
use serde::Serialize;

use super::trial::Failure;
use crate::output::{BAD, GOOD, STRONG, Table, count, styled};

/// Everything about a campaign.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) command: String,
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
#[derive(Serialize)]
pub(super) struct FailureReport {
    pub(super) what: String,
    pub(super) who: &'static str,
    pub(super) message: String,
    /// In how many runs it happened.
    pub(super) runs: usize,
    pub(super) first_run: usize,
    pub(super) seed: u64,
    /// The faults of the first run.
    pub(super) plan: String,
    /// The smallest set of faults with this failure.
    pub(super) faults: Vec<String>,
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
            runs: 1,
            first_run: run,
            seed,
            plan: plan.to_owned(),
            faults: Vec::new(),
            packets: Vec::new(),
            repeated: String::new(),
            replay: String::new(),
            directory,
        }
    }

    fn title(&self) -> String {
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
                    count(failure.faults.len(), "fault", "faults"),
                    failure.repeated.clone(),
                ]);
            }
            let _ = writeln!(text, "{table}");
        }
        for failure in &self.failures {
            let _ = writeln!(text, "{}", styled(STRONG, failure.title()));
            if !failure.message.is_empty() {
                let _ = writeln!(text, "  last line on stderr: {}", failure.message);
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
        let runs = count(self.runs.len(), "run", "runs");
        let failed = self.failed_runs();
        let verdict = if failed == 0 {
            styled(GOOD, "none failed")
        } else {
            styled(BAD, format!("{failed} failed"))
        };
        let _ = writeln!(text, "{runs} in {:.0} s: {verdict}.", self.seconds);
        text
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

    /// One file without references to others. The page of `roci explain` for each failure is a frame in it.
    pub(super) fn write_page(&self, path: &Path) -> anyhow::Result<()> {
        let mut text = String::from(PAGE_BEGIN);
        let command = escaped(&format!("roci torture {}", self.command));
        let _ = write!(text, "<h1>Torture</h1><p><code>{command}</code></p>");
        let summary = anstream::adapter::strip_str(&self.summary()).to_string();
        let _ = write!(text, "<pre>{}</pre>", escaped(&summary));
        for failure in &self.failures {
            let _ = write!(text, "<h2>{}</h2>", escaped(&failure.title()));
            let _ = write!(text, "<p>{}</p>", escaped(&failure.message));
            let _ = write!(text, "<p><code>{}</code></p><ul>", escaped(&failure.replay));
            for packet in &failure.packets {
                let _ = write!(text, "<li><code>{}</code></li>", escaped(packet));
            }
            text.push_str("</ul>");
            text.push_str(&output(&failure.directory));
            text.push_str(&explained(&failure.directory.join("capture.pcapng")));
        }
        text.push_str("</body></html>\n");
        write(path, &text)
    }
}

const PAGE_BEGIN: &str = "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>roci torture</title><style>\
body{font-family:sans-serif;margin:2em auto;max-width:75em;padding:0 1em}pre{overflow:auto;background:#f4f4f4;padding:1em}\
iframe{width:100%;height:45em;border:1px solid #999}</style></head><body>";

/// What the processes of a failed run have printed.
fn output(directory: &Path) -> String {
    let mut text = String::new();
    for who in ["command", "server", "client"] {
        for stream in ["stdout", "stderr"] {
            let name = format!("{who}.{stream}");
            let bytes = fs::read(directory.join(&name)).unwrap_or_default();
            if !bytes.is_empty() {
                let printed = escaped(&String::from_utf8_lossy(&bytes));
                let _ = write!(text, "<h3>{name}</h3><pre>{printed}</pre>");
            }
        }
    }
    text
}

/// The capture as `roci explain` shows it: as text, and as a page.
fn explained(capture: &Path) -> String {
    let analysis = File::open(capture)
        .ok()
        .and_then(|file| Analysis::read(file).ok());
    let Some(analysis) = analysis else {
        return "<p>There is no capture: no packet was sent.</p>".to_owned();
    };
    let plain = anstream::adapter::strip_str(&render(&analysis, &View::default())).to_string();
    let mut page = Vec::new();
    let title = capture.display().to_string();
    let frame = match analysis.write_page(&title, &mut page) {
        Ok(()) => format!(
            "<iframe srcdoc=\"{}\"></iframe>",
            escaped(&String::from_utf8_lossy(&page))
        ),
        Err(_) => String::new(),
    };
    format!(
        "<h3>What happened</h3><pre>{}</pre>{frame}",
        escaped(&plain)
    )
}

/// Text for HTML and XML. Characters that XML forbids are left out.
fn escaped(text: &str) -> String {
    let is_allowed = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    let mut out = String::with_capacity(text.len());
    for c in text.chars().filter(is_allowed) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("{} can't be written", path.display()))
}

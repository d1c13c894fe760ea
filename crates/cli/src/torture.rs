//! `roci torture`: runs a test again and again, each time with other faults.

mod fault_log;
mod merged_capture;
mod page;
mod plan;
mod report;
mod shrink;
mod trial;
mod workspace;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use net::tap::fault::FaultSpec;

use crate::output::{count, print, print_line, remark};
use fault_log::FaultRecord;
use plan::{FaultKind, Plan};
use report::{FailureReport, Report, RunReport};
use shrink::{Shrunk, shrink};
use trial::{Rules, Subject, Trial};
use workspace::Workspace;

/// How often a set of faults is tried before it counts as harmless, because programs have races.
const TRIES: usize = 3;
/// The most sets that the search for the smallest set of faults tries, for each failure.
const SHRINK_SETS: usize = 60;
/// How many different failures are kept. More of them are counted only.
const KEPT_FAILURES: usize = 10;
/// The exit status after Ctrl-C, as in shells.
const INTERRUPTED: u8 = 130;

/// The options of `roci torture`.
#[derive(Args)]
#[command(after_help = "\
The command runs as under `roci run`, first without faults, then with a different plan of faults in each run: packets
are lost, duplicated, reordered, corrupted and delayed, receivers are not ready, CM messages are lost, processes are
stopped, cut off and killed. A run fails if the command exits with a status other than 0, is ended by a
signal, or takes longer than the limit. After `partition` and `kill` it may exit with an error, but it must end.

For each different failure it finds the smallest set of faults that still makes the command fail, often one packet,
and prints the command that repeats it. Captures and outputs are in the directory of --out.
The exit status is 1 if a run has failed. Ctrl-C ends the runs and prints the results so far; the exit status is 130
if none has failed.

Examples:
  roci torture -- ./my-test                      200 runs
  roci torture -n 1000 --jobs 2 -- ./my-test     more of them, two at a time
  roci torture --server 'ib_send_bw -R' --client 'ib_send_bw -R 127.0.0.1'
  roci torture --kinds loss,cm --html report.html --junit report.xml -- ./my-test
  roci torture --replay 'drop:context=2,opcode=RC_SEND_ONLY,nth=3' -- ./my-test")]
pub(crate) struct Options {
    /// How often to run the command
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 200)]
    runs: usize,
    /// How many runs at a time, each in its own network namespace
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    jobs: usize,
    /// How many seconds a run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    timeout: u64,
    /// The seed of the first plan; the next run has the next seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// The kinds of faults, separated by commas; without it, all of them
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    kinds: Vec<FaultKind>,
    /// Run with these faults only, in the format of ROCI_FAULT
    #[arg(long, value_name = "FAULTS")]
    replay: Option<String>,
    /// Check the command as `roci run --check=fail` does; a finding is a failure
    #[arg(long)]
    check: bool,
    /// Stop after the first failure
    #[arg(long)]
    first: bool,
    /// The directory for captures and outputs of failures
    #[arg(long, value_name = "DIRECTORY", default_value = "torture-out")]
    out: PathBuf,
    /// Write the results to this file, for scripts
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results to this file as JUnit XML, for CI systems
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the results to this file as an HTML page, with the explained capture of each failure
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// A server, as a shell command; it is started anew for each run
    #[arg(long, value_name = "COMMAND", requires = "client")]
    server: Option<String>,
    /// The client of the server, as a shell command
    #[arg(
        long,
        value_name = "COMMAND",
        requires = "server",
        conflicts_with = "command"
    )]
    client: Option<String>,
    /// The command and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// Runs `roci torture`.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let mut campaign = Campaign::new(options)?;
    let report = match &options.replay {
        Some(faults) => campaign.replay(faults),
        None => campaign.run(),
    };
    let report = match report {
        Err(_) if campaign.is_interrupted() => {
            remark("interrupted before a run with faults has ended");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        ended => ended?,
    };
    if let Some(path) = &options.json {
        report.write_json(path)?;
    }
    if let Some(path) = &options.junit {
        report.write_junit(path)?;
    }
    if let Some(path) = &options.html {
        report::write(path, &page::page(&report))?;
    }
    print(report.summary())?;
    Ok(match report.failed_runs() {
        0 if report.interrupted => ExitCode::from(INTERRUPTED),
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

struct Campaign<'a> {
    options: &'a Options,
    rules: Rules,
    workspaces: Vec<Workspace>,
}

/// A failure that is kept, and its first run.
struct Found {
    report: FailureReport,
    plan: Plan,
    record: FaultRecord,
    what: String,
}

/// What the jobs share.
#[derive(Default)]
struct Results {
    runs: Vec<RunReport>,
    injected: BTreeMap<String, usize>,
    found: BTreeMap<String, Found>,
}

impl<'a> Campaign<'a> {
    fn new(options: &'a Options) -> anyhow::Result<Self> {
        let subject = match (&options.server, &options.client) {
            (Some(server), Some(client)) => Subject::Pair {
                server: server.clone(),
                client: client.clone(),
            },
            _ if options.command.is_empty() => {
                bail!("there is nothing to run: add `-- COMMAND`, or --server and --client")
            }
            _ => Subject::One(options.command.clone()),
        };
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // In this order, so that a second signal ends the program at once.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                INTERRUPTED.into(),
                Arc::clone(&interrupted),
            )
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)))
            .context("no signal handler")?;
        }
        let rules = Rules {
            subject,
            timeout: Duration::from_secs(options.timeout.max(1)),
            server_must_end: false,
            check: options.check,
            interrupted,
        };
        Ok(Campaign {
            options,
            rules,
            workspaces: Vec::new(),
        })
    }

    fn run(&mut self) -> anyhow::Result<Report> {
        let begin = Instant::now();
        let usual = self.run_without_faults()?;
        if usual.record.contexts.is_empty() {
            bail!("the command opens no RDMA device of ours, so there is nothing to disturb");
        }
        self.rules.server_must_end = usual.server_ended;
        let results = self.run_with_faults(&usual.record)?;
        let mut failures = Vec::new();
        for (_, found) in results.found {
            failures.push(self.minimize(found)?);
        }
        failures.sort_by_key(|failure| failure.first_run);
        Ok(Report {
            command: self.command_line(),
            planned: self.options.runs,
            interrupted: self.is_interrupted(),
            seconds: begin.elapsed().as_secs_f64(),
            runs: results.runs,
            injected: results.injected,
            failures,
        })
    }

    /// Finds out whether the command works at all, and which packets it sends. Also decides whether jobs can have
    /// networks of their own: a program may need an address that only the machine's network has.
    fn run_without_faults(&mut self) -> anyhow::Result<Trial> {
        let quiet = Plan::new([]);
        let mut complaint = None;
        for own_network in [true, false] {
            let Some(workspace) = Workspace::new(0, own_network)? else {
                continue;
            };
            let usual = trial::run(&self.rules, &quiet, &workspace)?;
            let Some(failure) = usual.failure else {
                self.workspaces.push(workspace);
                self.add_workspaces(own_network)?;
                return Ok(usual);
            };
            workspace.keep(&self.options.out.join("without-faults"))?;
            complaint = Some(failure);
        }
        let Some(failure) = complaint else {
            bail!("the command can't be run");
        };
        bail!(
            "the {} fails without any fault ({}): {}; its output is in {}",
            failure.who,
            failure.what,
            failure.message.trim_end_matches('.'),
            self.options.out.join("without-faults").display()
        )
    }

    fn add_workspaces(&mut self, own_network: bool) -> anyhow::Result<()> {
        if self.options.jobs > 1 && !own_network {
            remark(
                "one run at a time, because the command does not work in a network namespace of its own",
            );
            return Ok(());
        }
        for job in 1..self.options.jobs {
            self.workspaces.extend(Workspace::new(job, own_network)?);
        }
        Ok(())
    }

    fn run_with_faults(&self, seen: &FaultRecord) -> anyhow::Result<Results> {
        let progress = Progress::new(self.options.runs as u64);
        let results = Mutex::new(Results::default());
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let jobs: Vec<_> = self
                .workspaces
                .iter()
                .map(|workspace| {
                    scope.spawn(|| self.work(workspace, seen, &next, &results, &progress))
                })
                .collect();
            let mut ended = jobs
                .into_iter()
                .map(|job| job.join().expect("a job does not panic"));
            ended.try_for_each(|result| result)
        })?;
        progress.bar.finish_and_clear();
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.runs.sort_by_key(|run| run.number);
        Ok(results)
    }

    /// One job: takes the next run until there is none.
    fn work(
        &self,
        workspace: &Workspace,
        seen: &FaultRecord,
        next: &AtomicUsize,
        results: &Mutex<Results>,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= self.options.runs {
                return Ok(());
            }
            let seed = self.options.seed + number as u64;
            let plan = plan::plan(seed, &self.kinds(), seen);
            let trial = match trial::run(&self.rules, &plan, workspace) {
                Err(_) if self.is_interrupted() => return Ok(()),
                ended => ended?,
            };
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            self.note(number + 1, seed, plan, &trial, workspace, &mut results)?;
            progress.advance(results.found.len());
            if self.options.first && trial.failure.is_some() {
                next.store(self.options.runs, Ordering::Relaxed);
            }
        }
    }

    fn note(
        &self,
        number: usize,
        seed: u64,
        plan: Plan,
        trial: &Trial,
        workspace: &Workspace,
        results: &mut Results,
    ) -> anyhow::Result<()> {
        for fault in &trial.record.faults {
            *results.injected.entry(fault.kind()).or_default() += 1;
        }
        let failure = trial.failure.as_ref();
        results.runs.push(RunReport {
            number,
            seed,
            seconds: trial.duration.as_secs_f64(),
            faults: trial.record.faults.len(),
            failure: failure.map(|failure| format!("{}: {}", failure.who, failure.what)),
        });
        let Some(failure) = failure else {
            return Ok(());
        };
        let signature = failure.signature();
        if let Some(found) = results.found.get_mut(&signature) {
            found.report.runs += 1;
            return Ok(());
        }
        if results.found.len() >= KEPT_FAILURES {
            return Ok(());
        }
        let directory = self.options.out.join(format!("run-{number}"));
        workspace.keep(&directory)?;
        let found = Found {
            report: FailureReport::new(number, seed, failure, &plan.text(), directory),
            plan,
            record: trial.record.clone(),
            what: failure.what.clone(),
        };
        results.found.insert(signature, found);
        Ok(())
    }

    fn is_interrupted(&self) -> bool {
        self.rules.interrupted.load(Ordering::Relaxed)
    }

    /// Reports a failure with the smallest set of faults that repeats it, or with all of them after Ctrl-C.
    fn minimize(&self, found: Found) -> anyhow::Result<FailureReport> {
        let whole = FailureReport {
            packets: found.record.descriptions(),
            faults: found.plan.rules.clone(),
            replay: self.replay_command(&found.plan),
            repeated: "not tried".to_owned(),
            ..found.report.clone()
        };
        match self.smallest(found) {
            Err(_) if self.is_interrupted() => Ok(whole),
            ended => ended,
        }
    }

    /// Finds the smallest set of faults of a failure, and repeats it.
    fn smallest(&self, found: Found) -> anyhow::Result<FailureReport> {
        let Found {
            mut report,
            plan,
            record,
            what,
        } = found;
        let named = record.faults.iter().map(|fault| fault.rule.clone());
        let named: Vec<String> = named.collect();
        // The list of a partition has no end, and a storm may decide otherwise after a part of its faults.
        let (start, failed) = match self.failures_of(&named, &what, TRIES)? {
            failed if failed > 0 && !plan.is_harsh() => (named, failed),
            _ => (
                plan.rules.clone(),
                self.failures_of(&plan.rules, &what, TRIES)?,
            ),
        };
        // A failure that depends on chance too much would lead to a set that fails by chance alone.
        let wanted = if failed > TRIES / 2 { TRIES / 2 + 1 } else { 1 };
        let Shrunk { faults, is_minimal } = shrink(start, SHRINK_SETS, |rules| {
            Ok::<_, anyhow::Error>(self.failures_of(rules, &what, wanted)? >= wanted)
        })?;
        let smallest = Plan::new(faults);
        let workspace = &self.workspaces[0];
        let mut repeated = 0;
        report.packets = record.descriptions();
        for _ in 0..TRIES {
            let trial = trial::run(&self.rules, &smallest, workspace)?;
            if trial.failure.is_some_and(|failure| failure.what == what) {
                repeated += 1;
                workspace.keep(&report.directory)?;
                report.packets = trial.record.descriptions();
            }
        }
        report.repeated = format!("{repeated} of {TRIES}");
        report.is_minimal = repeated > 0 && is_minimal;
        let shown = if repeated == 0 { plan } else { smallest };
        report.replay = self.replay_command(&shown);
        report.faults = shown.rules;
        Ok(report)
    }

    /// How many of a few runs with these faults fail in this way. Stops when `enough` have failed, or can't any more.
    fn failures_of(&self, rules: &[String], what: &str, enough: usize) -> anyhow::Result<usize> {
        let plan = Plan::new(rules.iter().cloned());
        let mut failed = 0;
        for run in 0..TRIES {
            if failed >= enough || failed + TRIES - run < enough.min(TRIES / 2 + 1) {
                break;
            }
            let trial = trial::run(&self.rules, &plan, &self.workspaces[0])?;
            failed += usize::from(trial.failure.is_some_and(|failure| failure.what == what));
        }
        Ok(failed)
    }

    /// Runs once, with the given faults.
    fn replay(&mut self, faults: &str) -> anyhow::Result<Report> {
        let begin = Instant::now();
        let spec: FaultSpec = faults.parse()?;
        let usual = self.run_without_faults()?;
        self.rules.server_must_end = usual.server_ended;
        let rules = spec.rules().iter().map(ToString::to_string);
        let seed = Some(format!("seed={}", spec.seed())).filter(|_| spec.seed() != 0);
        let plan = Plan::new(rules.chain(seed));
        let workspace = &self.workspaces[0];
        let trial = trial::run(&self.rules, &plan, workspace)?;
        let mut results = Results::default();
        self.note(
            1,
            spec.seed(),
            plan.clone(),
            &trial,
            workspace,
            &mut results,
        )?;
        for packet in trial.record.descriptions() {
            print_line(packet)?;
        }
        let failures = results.found.into_values().map(|found| FailureReport {
            packets: found.record.descriptions(),
            faults: plan.rules.clone(),
            replay: self.replay_command(&plan),
            repeated: "1 of 1".to_owned(),
            ..found.report
        });
        Ok(Report {
            command: self.command_line(),
            planned: 1,
            interrupted: false,
            seconds: begin.elapsed().as_secs_f64(),
            failures: failures.collect(),
            runs: results.runs,
            injected: results.injected,
        })
    }

    fn kinds(&self) -> Vec<FaultKind> {
        if self.options.kinds.is_empty() {
            FaultKind::value_variants().to_vec()
        } else {
            self.options.kinds.clone()
        }
    }

    fn command_line(&self) -> String {
        match &self.rules.subject {
            Subject::One(words) => {
                let words = words.iter().map(|word| quoted(&word.to_string_lossy()));
                format!("-- {}", words.collect::<Vec<_>>().join(" "))
            }
            Subject::Pair { server, client } => {
                format!("--server {} --client {}", quoted(server), quoted(client))
            }
        }
    }

    fn replay_command(&self, plan: &Plan) -> String {
        let timeout = match self.options.timeout {
            20 => String::new(),
            other => format!(" --timeout {other}"),
        };
        let check = if self.options.check { " --check" } else { "" };
        let faults = quoted(&plan.text());
        format!(
            "roci torture --replay {faults}{timeout}{check} {}",
            self.command_line()
        )
    }
}

/// One line on a terminal, and elsewhere a line in a while.
struct Progress {
    bar: ProgressBar,
    last_line: Mutex<Instant>,
}

impl Progress {
    /// A run takes milliseconds or seconds. A log is not to be full of these lines.
    const INTERVAL: Duration = Duration::from_secs(30);

    fn new(runs: u64) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos} of {len} runs, {msg}, {eta} left");
        let bar = ProgressBar::new(runs)
            .with_style(style.expect("the template is right"))
            .with_message(different_failures(0));
        Self {
            bar,
            last_line: Mutex::new(Instant::now()),
        }
    }

    /// Another run has ended; so many different failures were found.
    fn advance(&self, found: usize) {
        self.bar.inc(1);
        self.bar.set_message(different_failures(found));
        if self.bar.is_hidden()
            && let Some(line) = self.line(Instant::now())
        {
            remark(&line);
        }
    }

    /// The line, if one is due.
    fn line(&self, now: Instant) -> Option<String> {
        let mut last = self
            .last_line
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(*last) < Self::INTERVAL {
            return None;
        }
        *last = now;
        let (done, runs) = (self.bar.position(), self.bar.length().unwrap_or(0));
        Some(format!("{done} of {runs} runs, {}", self.bar.message()))
    }
}

fn different_failures(number: usize) -> String {
    count(number, "different failure", "different failures")
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%+@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_a_line_in_a_while_says_how_far_it_is() {
        let progress = Progress::new(200);
        let begin = Instant::now();
        progress.advance(1);
        assert_eq!(progress.line(begin), None);
        let later = begin + Progress::INTERVAL + Progress::INTERVAL;
        let line = progress.line(later).expect("it is due");
        assert_eq!(line, "1 of 200 runs, 1 different failure");
        assert_eq!(progress.line(later), None);
    }

    #[test]
    fn one_failure_is_not_called_failures() {
        let said = [0, 1, 2].map(different_failures);
        let expected = [
            "0 different failures",
            "1 different failure",
            "2 different failures",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("drop:nth=1"), "drop:nth=1");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}

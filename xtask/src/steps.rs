//! Steps run one after the other, and some beside them: a header before each, a table behind the last one.

mod failure_excerpt;
mod log;

use std::cmp::Reverse;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::CommandLine;
use crate::laboratory;
use log::LogDirectory;

/// How many of the slowest steps a run names.
const NAMED_SLOW_STEPS: usize = 5;

/// One thing that is checked.
pub struct Step {
    /// What `--only` calls it.
    pub name: &'static str,
    /// What is known once the step has passed.
    pub promise: &'static str,
    /// How it is checked.
    pub work: Work,
    /// When it runs.
    pub turn: Turn,
}

/// When a step runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// After the one before it in the list.
    InOrder,
    /// Beside those, after the one before it that does the same: compilers, an emulated machine and programs that wait leave a
    /// processor idle. Such a step shares no network with another and measures no time.
    Beside,
}

/// How a step finds out.
pub enum Work {
    /// Commands, one after the other; the first one that fails is the step's failure.
    Commands(Vec<CommandLine>),
    /// A check inside this program; the error is the text to show.
    Check(fn(&Path) -> Result<(), String>),
    /// A check of the laboratory, which knows the step by its name, and what the step needs.
    Laboratory,
    /// Nothing to do on this machine or at this pace; the sentence says why.
    LeftOut(String),
}

impl Step {
    /// A step of this name that promises this.
    pub fn new(name: &'static str, promise: &'static str, work: Work) -> Self {
        Step {
            name,
            promise,
            work,
            turn: Turn::InOrder,
        }
    }

    /// The same step, run beside others.
    pub fn beside(self) -> Self {
        Step {
            turn: Turn::Beside,
            ..self
        }
    }
}

impl Work {
    /// One cargo command, given as what follows `cargo`.
    pub fn command(words: &str) -> Self {
        Work::Commands(vec![CommandLine::cargo(words)])
    }
}

/// How a step ended.
#[derive(Debug, PartialEq)]
enum Outcome {
    Passed,
    LeftOut(String),
    /// The command that repeats the failure.
    Failed(String),
}

struct Report {
    name: &'static str,
    duration: Duration,
    outcome: Outcome,
}

/// Runs each step as a process of its own, whose output goes to a file. A run prints some 40 lines; of a
/// failed step it prints what failed.
pub fn run_logged(root: &Path, steps: &[Step], quick: bool) -> ExitCode {
    let logs = match LogDirectory::new(root, quick) {
        Ok(logs) => logs,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let started = Instant::now();
    let reports = run_in_turn(steps, |step| match &step.work {
        Work::LeftOut(_) => perform(root, step),
        Work::Commands(_) | Work::Check(_) => logs.run(step.name),
        Work::Laboratory => in_laboratory(root, step.name, || logs.run(step.name)),
    });
    let exit_code = report(&reports);
    println!("{} s in all", started.elapsed().as_secs());
    exit_code
}

/// Runs the steps in this process, one after the other and with all their output, up to the first that fails.
pub fn run(root: &Path, steps: &[Step]) -> ExitCode {
    let steps: Vec<_> = steps.iter().collect();
    let failed = AtomicBool::new(false);
    report(&run_until_failure(&steps, &failed, |step| {
        perform(root, step)
    }))
}

fn report(reports: &[Report]) -> ExitCode {
    print_table(reports);
    let mut exit_code = ExitCode::SUCCESS;
    for Report { name, outcome, .. } in reports {
        if let Outcome::Failed(repeat) = outcome {
            eprintln!("step {name} failed: run `{repeat}` to repeat it");
            exit_code = ExitCode::FAILURE;
        }
    }
    exit_code
}

/// Runs each step when it is its turn. After a failure no step begins; one that runs beside the failed one goes on to its end.
/// The reports are in the order of the steps.
fn run_in_turn(steps: &[Step], perform: impl Fn(&Step) -> Outcome + Sync) -> Vec<Report> {
    let (beside, in_order): (Vec<_>, Vec<_>) =
        steps.iter().partition(|step| step.turn == Turn::Beside);
    let failed = AtomicBool::new(false);
    let mut reports = thread::scope(|scope| {
        let beside = scope.spawn(|| run_until_failure(&beside, &failed, &perform));
        let mut reports = run_until_failure(&in_order, &failed, &perform);
        reports.extend(beside.join().expect("no step panics"));
        reports
    });
    reports.sort_by_key(|report| steps.iter().position(|step| step.name == report.name));
    reports
}

fn run_until_failure(
    steps: &[&Step],
    failed: &AtomicBool,
    perform: impl Fn(&Step) -> Outcome,
) -> Vec<Report> {
    let mut reports = Vec::new();
    for step in steps {
        if failed.load(Ordering::Relaxed) {
            break;
        }
        println!("\n=== {}: {}", step.name, step.promise);
        let started = Instant::now();
        let outcome = perform(step);
        if matches!(outcome, Outcome::Failed(_)) {
            failed.store(true, Ordering::Relaxed);
        }
        reports.push(Report {
            name: step.name,
            duration: started.elapsed(),
            outcome,
        });
    }
    reports
}

fn perform(root: &Path, step: &Step) -> Outcome {
    match &step.work {
        Work::Commands(commands) => run_commands(root, commands),
        Work::Check(check) => run_check(root, step.name, check),
        Work::Laboratory => in_laboratory(root, step.name, || {
            run_check(root, step.name, |root| laboratory::check(root, step.name))
        }),
        Work::LeftOut(reason) => left_out(reason.clone()),
    }
}

/// Asks first, so that the parts of a run that are left out are known to the one who prints its table.
fn in_laboratory(root: &Path, name: &str, perform: impl FnOnce() -> Outcome) -> Outcome {
    match laboratory::missing(root, name) {
        Some(reason) => left_out(reason),
        None => perform(),
    }
}

fn left_out(reason: String) -> Outcome {
    println!("left out: {reason}");
    Outcome::LeftOut(reason)
}

fn run_commands(root: &Path, commands: &[CommandLine]) -> Outcome {
    for command in commands {
        println!("$ {command}");
        match command.run(root) {
            Ok(true) => {}
            Ok(false) => return Outcome::Failed(command.to_string()),
            Err(error) => {
                eprintln!("it could not be started: {error}");
                return Outcome::Failed(command.to_string());
            }
        }
    }
    Outcome::Passed
}

fn run_check(root: &Path, name: &str, check: impl FnOnce(&Path) -> Result<(), String>) -> Outcome {
    match check(root) {
        Ok(()) => Outcome::Passed,
        Err(findings) => {
            eprintln!("{findings}");
            Outcome::Failed(format!("cargo xtask test --only {name}"))
        }
    }
}

fn print_table(reports: &[Report]) {
    println!();
    for report in reports {
        println!("{report}");
    }
    if reports.len() > NAMED_SLOW_STEPS {
        println!("slowest: {}", slowest(reports));
    }
}

/// The steps that took most of the time.
fn slowest(reports: &[Report]) -> String {
    let mut sorted: Vec<_> = reports.iter().collect();
    sorted.sort_by_key(|report| Reverse(report.duration));
    let named = sorted.iter().take(NAMED_SLOW_STEPS);
    let named = named.map(|report| format!("{} {} s", report.name, report.duration.as_secs()));
    named.collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, seconds) = (self.name, self.duration.as_secs_f32());
        match &self.outcome {
            Outcome::Passed => write!(f, "{name:<11} {seconds:>7.1} s  passed"),
            Outcome::Failed(_) => write!(f, "{name:<11} {seconds:>7.1} s  FAILED"),
            Outcome::LeftOut(reason) => write!(f, "{name:<11} {:>9}  left out: {reason}", "-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn step(name: &'static str, work: Work) -> Step {
        Step::new(name, "a test", work)
    }

    fn outcomes(steps: &[Step]) -> Vec<Outcome> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        run_in_turn(steps, |step| perform(root, step))
            .into_iter()
            .map(|report| report.outcome)
            .collect()
    }

    #[test]
    fn the_first_failure_stops_the_run() {
        let steps = [
            step("good", Work::Check(|_| Ok(()))),
            step("bad", Work::Check(|_| Err("found something".into()))),
            step("never", Work::Check(|_| unreachable!("behind a failure"))),
        ];
        let repeat = "cargo xtask test --only bad".to_owned();
        assert_eq!(outcomes(&steps), [Outcome::Passed, Outcome::Failed(repeat)]);
    }

    /// Each of the two steps ends only if the other one has begun.
    #[test]
    fn a_step_runs_beside_others_and_is_reported_in_its_place() {
        static BOTH_RUN: Barrier = Barrier::new(2);
        fn meet(_: &Path) -> Result<(), String> {
            BOTH_RUN.wait();
            Ok(())
        }
        let steps = [
            step("first", Work::Check(|_| Ok(()))),
            step("beside", Work::Check(meet)).beside(),
            step("last", Work::Check(meet)),
        ];
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let reports = run_in_turn(&steps, |step| perform(root, step));
        let names: Vec<_> = reports.iter().map(|report| report.name).collect();
        assert_eq!(names, ["first", "beside", "last"]);
    }

    #[test]
    fn no_step_begins_after_a_failure_beside_it() {
        let step = step("never", Work::Check(|_| Ok(())));
        let failed = AtomicBool::new(true);
        let reports = run_until_failure(&[&step], &failed, |_| unreachable!("behind a failure"));
        assert!(reports.is_empty());
    }

    #[test]
    fn a_failing_command_names_itself() {
        let nowhere = Path::new("/no/such/directory");
        let failing = CommandLine::cargo("--version").directory(nowhere);
        let steps = [step("bad", Work::Commands(vec![failing]))];
        let repeat = "cd /no/such/directory && cargo --version".to_owned();
        assert_eq!(outcomes(&steps), [Outcome::Failed(repeat)]);
    }

    #[test]
    fn slowest_steps_are_named_first() {
        let report = |name, seconds| Report {
            name,
            duration: Duration::from_secs(seconds),
            outcome: Outcome::Passed,
        };
        let reports = [report("short", 1), report("long", 90), report("middle", 5)];
        assert_eq!(slowest(&reports), "long 90 s, middle 5 s, short 1 s");
    }

    #[test]
    fn a_skipped_step_does_not_stop_the_run() {
        let steps = [
            step("absent", Work::LeftOut("no tool".into())),
            step("good", Work::Check(|_| Ok(()))),
        ];
        assert_eq!(
            outcomes(&steps),
            [Outcome::LeftOut("no tool".into()), Outcome::Passed]
        );
    }
}

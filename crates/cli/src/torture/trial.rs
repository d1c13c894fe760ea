//! One run of the command, and how it ended.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use net::tap::fault::{FAULT_LOG_VARIABLE, FAULT_VARIABLE};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use super::fault_log::FaultRecord;
use super::plan::Plan;
use super::workspace::Workspace;

/// How often a running command is looked at.
const INTERVAL: Duration = Duration::from_millis(5);
/// The longest wait for a server to open its device before the client starts.
const SERVER_START: Duration = Duration::from_secs(2);
/// A server that has opened its device also listens after this time.
const SERVER_LISTENS: Duration = Duration::from_millis(150);
/// How long a server may take to end after its client.
const SERVER_END: Duration = Duration::from_secs(2);

/// What is tested.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    One(Vec<OsString>),
    Pair { server: String, client: String },
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) failure: Option<Failure>,
    pub(super) record: FaultRecord,
    pub(super) duration: Duration,
    /// Whether the server ended by itself.
    pub(super) server_ended: bool,
}

/// Why a run counts as failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// For example `exit status 1`, or the rules that a check found violated.
    pub(super) what: String,
    /// `command`, `server` or `client`.
    pub(super) who: &'static str,
    pub(super) message: String,
    pub(super) source: MessageSource,
}

/// Where the message about a failure is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageSource {
    /// The last line that the party printed on stderr.
    LastLine,
    /// The first finding of the check, which alone makes the run a failure.
    FirstFinding,
}

impl Failure {
    /// Equal for runs that fail in the same way: numbers in the message don't count. Those in a finding are hexadecimal,
    /// and its rules say enough.
    pub(super) fn signature(&self) -> String {
        let Self { what, who, .. } = self;
        match self.source {
            MessageSource::LastLine => format!("{what} {who} {}", without_numbers(&self.message)),
            MessageSource::FirstFinding => format!("{what} {who}"),
        }
    }
}

/// What all runs have in common.
pub(super) struct Rules {
    pub(super) subject: Subject,
    pub(super) timeout: Duration,
    /// Whether the server ends by itself without faults, so that it must do so with them.
    pub(super) server_must_end: bool,
    /// Whether the command is checked for wrong use of verbs.
    pub(super) check: bool,
    /// Set when the user presses Ctrl-C.
    pub(super) interrupted: std::sync::Arc<AtomicBool>,
}

/// One started process with its name and its output.
struct Party {
    who: &'static str,
    child: Child,
    stderr: PathBuf,
    /// What the check of the command found.
    findings: PathBuf,
    status: Option<ExitStatus>,
}

/// Runs the subject once with these faults.
pub(super) fn run(rules: &Rules, plan: &Plan, workspace: &Workspace) -> anyhow::Result<Trial> {
    workspace.clear()?;
    let begin = Instant::now();
    let mut running = Running {
        rules,
        plan,
        workspace,
        parties: Vec::new(),
        continued: 0,
        pending: Vec::new(),
        deadline: begin + rules.timeout,
    };
    let ended = running.run_all();
    let server_ended = running
        .parties
        .first()
        .is_some_and(|party| party.status.is_some());
    let failure = ended.map(|()| running.failure());
    running.end_all();
    Ok(Trial {
        failure: failure?,
        record: FaultRecord::read(&workspace.log()),
        duration: begin.elapsed(),
        server_ended,
    })
}

struct Running<'a> {
    rules: &'a Rules,
    plan: &'a Plan,
    workspace: &'a Workspace,
    parties: Vec<Party>,
    /// How many faults of the log were looked at.
    continued: usize,
    /// Stopped processes, and when to continue them.
    pending: Vec<(Instant, Pid)>,
    deadline: Instant,
}

impl Running<'_> {
    fn run_all(&mut self) -> anyhow::Result<()> {
        match &self.rules.subject {
            Subject::One(command) => {
                self.start("command", command)?;
                self.wait_for(0, self.deadline)
            }
            Subject::Pair { server, client } => {
                self.start("server", &shell(server))?;
                self.wait_until_server_listens()?;
                self.start("client", &shell(client))?;
                self.wait_for(1, self.deadline)?;
                let grace = if self.rules.server_must_end {
                    self.deadline
                } else {
                    Instant::now() + SERVER_END
                };
                self.wait_for(0, grace)
            }
        }
    }

    fn start(&mut self, who: &'static str, words: &[OsString]) -> anyhow::Result<()> {
        let directory = self.workspace.path();
        let output = |name: &str| {
            let path = directory.join(format!("{who}.{name}"));
            File::create(&path).with_context(|| format!("{} can't be written", path.display()))
        };
        let mut command = self.workspace.command();
        let roci = std::env::current_exe().context("the path of the roci executable is unknown")?;
        command.arg(roci).arg("run");
        let findings = directory.join(format!("{who}.findings.json"));
        if self.rules.check {
            command
                .arg("--check=fail")
                .arg("--check-json")
                .arg(&findings);
        }
        command.arg("--").args(words);
        command
            .env(FAULT_VARIABLE, self.plan.text())
            .env(FAULT_LOG_VARIABLE, self.workspace.log())
            .env("ROCI_PCAP", directory.join("capture.pcapng"))
            .env("XDG_RUNTIME_DIR", self.workspace.runtime())
            .stdin(Stdio::null())
            .stdout(output("stdout")?)
            .stderr(output("stderr")?)
            .process_group(0);
        let child = command.spawn().context("the command can't be started")?;
        self.parties.push(Party {
            who,
            child,
            stderr: directory.join(format!("{who}.stderr")),
            findings,
            status: None,
        });
        Ok(())
    }

    fn wait_until_server_listens(&mut self) -> anyhow::Result<()> {
        let latest = Instant::now() + SERVER_START;
        let is_open = || !FaultRecord::read(&self.workspace.log()).contexts.is_empty();
        while Instant::now() < latest && !is_open() {
            thread::sleep(INTERVAL);
        }
        let ready = Instant::now() + SERVER_LISTENS;
        self.wait_for(0, ready)
    }

    /// Waits until the party has ended, or until the deadline. Continues stopped processes meanwhile.
    fn wait_for(&mut self, party: usize, deadline: Instant) -> anyhow::Result<()> {
        loop {
            if self.rules.interrupted.load(Ordering::Relaxed) {
                self.end_all();
                bail!("interrupted");
            }
            self.serve_stops();
            let party = &mut self.parties[party];
            if party.status.is_none() {
                party.status = party.child.try_wait().context("the command is lost")?;
            }
            if party.status.is_some() || Instant::now() >= deadline {
                return Ok(());
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Sends SIGCONT to processes that a fault has stopped, when their time is over.
    fn serve_stops(&mut self) {
        if self.plan.rules.iter().any(|rule| rule.contains("stop:")) {
            let record = FaultRecord::read(&self.workspace.log());
            let new = record.faults.iter().skip(self.continued);
            let now = Instant::now();
            self.pending.extend(new.filter_map(|fault| {
                let process = record.process(fault.context)?;
                let pid = Pid::from_raw(i32::try_from(process).ok()?)?;
                Some((now + fault.stops_for()?, pid))
            }));
            self.continued = record.faults.len();
        }
        self.pending.retain(|(due, pid)| {
            let is_due = *due <= Instant::now();
            if is_due {
                // It may have ended.
                let _ = kill_process(*pid, Signal::CONT);
            }
            !is_due
        });
    }

    fn failure(&self) -> Option<Failure> {
        self.parties.iter().find_map(|party| self.failure_of(party))
    }

    fn failure_of(&self, party: &Party) -> Option<Failure> {
        let may_run = party.who == "server" && !self.rules.server_must_end;
        let finding = finding(&fs::read_to_string(&party.findings).unwrap_or_default());
        let what = match party.status {
            None if may_run => None,
            None => Some("hang".to_owned()),
            Some(status) => wrong(status, self.plan, finding.is_some()),
        };
        let (what, message, source) = match (what, finding) {
            (Some(what), _) => (what, last_line(&party.stderr), MessageSource::LastLine),
            (None, Some((what, message))) => (what, message, MessageSource::FirstFinding),
            (None, None) => return None,
        };
        Some(Failure {
            what,
            who: party.who,
            message,
            source,
        })
    }

    /// Ends everything that the parties have started in their process groups.
    fn end_all(&mut self) {
        for party in &mut self.parties {
            if let Some(group) = i32::try_from(party.child.id()).ok().and_then(Pid::from_raw) {
                // Nobody may be left in it.
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = party.child.wait();
        }
    }
}

/// What a check has found, from its file: the violated rules, and the first finding. Notes don't count.
fn finding(file: &str) -> Option<(String, String)> {
    let lines = file.lines().map(serde_json::from_str::<Value>);
    let errors = lines.flatten().filter(|it| it["level"] == "error");
    let mut rules = BTreeSet::new();
    let mut first = None;
    for error in errors {
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        let rule = text("rule");
        first.get_or_insert_with(|| format!("{rule}: {} {}", text("what"), text("remedy")));
        rules.insert(rule);
    }
    let rules: Vec<_> = rules.into_iter().collect();
    Some((format!("finding ({})", rules.join(", ")), first?))
}

/// What is wrong with an exit status, if anything is. A check with findings explains its own.
fn wrong(status: ExitStatus, plan: &Plan, has_findings: bool) -> Option<String> {
    /// The exit status of a Rust program that panics.
    const PANIC: i32 = 101;
    /// The exit status of `roci run --check=fail` with findings.
    const FINDING: i32 = 66;
    /// A shell adds this to the signal that ended its command.
    const BY_SIGNAL: i32 = 128;
    let killed = Signal::KILL.as_raw();
    let signal = status.signal().or_else(|| {
        let by_shell = status.code()? - BY_SIGNAL;
        (1..=64).contains(&by_shell).then_some(by_shell)
    });
    match (signal, status.code()) {
        (Some(signal), _) if signal == killed && plan.kills() => None,
        (Some(signal), _) => Some(format!("signal {signal}")),
        (None, Some(0)) => None,
        (None, Some(FINDING)) if has_findings => None,
        (None, Some(code)) if code != PANIC && plan.is_harsh() => None,
        (None, code) => Some(format!("exit status {}", code.unwrap_or(-1))),
    }
}

fn shell(command: &str) -> [OsString; 3] {
    ["sh".into(), "-c".into(), command.into()]
}

fn last_line(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    last_message(&text)
}

/// A text without its numbers, decimal or hexadecimal.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split("0x");
    let begin = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    let words = [begin].into_iter().chain(rest).flat_map(str::chars);
    words.filter(|c| !c.is_ascii_digit()).collect()
}

/// The last line of the program before a backtrace. The check prints the last lines, with a list.
fn last_message(text: &str) -> String {
    let is_backtrace = |line: &&str| line.trim().eq_ignore_ascii_case("stack backtrace:");
    let mut is_of_check = false;
    let told: Vec<_> = text
        .lines()
        .take_while(|line| !is_backtrace(line))
        .filter(|line| {
            let is_listed = is_of_check && line.starts_with("    ");
            is_of_check = is_listed || line.starts_with("roci: check: ");
            !is_of_check
        })
        .collect();
    let mut lines = told.into_iter().rev().map(str::trim);
    let is_hint =
        |line: &str| line.is_empty() || line.starts_with("note: run with `RUST_BACKTRACE");
    lines.find(|line| !is_hint(line)).unwrap_or("").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(raw: i32, rule: &str) -> Option<String> {
        wrong(
            ExitStatus::from_raw(raw),
            &Plan::new([rule.to_owned()]),
            false,
        )
    }

    #[test]
    fn runs_that_say_the_same_about_other_numbers_fail_in_the_same_way() {
        let failure = |message: &str| Failure {
            what: "exit status 1".to_owned(),
            who: "client",
            message: message.to_owned(),
            source: MessageSource::LastLine,
        };
        let of = |message| failure(message).signature();
        assert_eq!(of("QP 0xab3f: 3 retries."), of("QP 0x82221b: 12 retries."));
        assert_ne!(of("QP 0xab3f: 3 retries."), of("QP 0xab3f: 3 errors."));
    }

    #[test]
    fn what_the_check_says_at_the_end_is_no_message_of_the_program() {
        let said = "connected\nroci: check: leak: left.\n    at main\nno room\n\
                    roci: check: 0 errors, 1 note, 1 other failure.\n    \
                    note: leak: QP 0x3f94ad\n    explained: QP 0x3f94ad: No response.\n";
        assert_eq!(last_message(said), "no room");
    }

    #[test]
    fn exit_statuses_and_signals_are_failures_unless_the_fault_excuses_them() {
        const EXIT: i32 = 256;
        assert_eq!(
            last_message("first\nsecond\n\nStack backtrace:\n  0: main\n"),
            "second"
        );
        assert_eq!(judged(0, "drop:nth=1"), None);
        assert_eq!(judged(EXIT, "drop:nth=1").as_deref(), Some("exit status 1"));
        assert_eq!(judged(11, "kill:nth=1").as_deref(), Some("signal 11"));
        assert_eq!(
            judged(139 * EXIT, "kill:nth=1").as_deref(),
            Some("signal 11")
        );
        assert_eq!(judged(EXIT, "kill:nth=1"), None);
        assert_eq!(judged(9, "kill:nth=1"), None);
        assert_eq!(judged(9, "drop:nth=1").as_deref(), Some("signal 9"));
        assert_eq!(
            judged(101 * EXIT, "kill:nth=1").as_deref(),
            Some("exit status 101")
        );
        let status = ExitStatus::from_raw(66 * EXIT);
        let plan = Plan::new(["drop:nth=1".to_owned()]);
        let own = wrong(status, &plan, false);
        assert_eq!(own.as_deref(), Some("exit status 66"));
        assert_eq!(wrong(status, &plan, true), None, "the check tells it");
    }

    #[test]
    fn findings_are_told_by_their_rules_and_notes_are_not() {
        let line = |rule: &str, level: &str, what: &str| {
            let line = serde_json::json!({ "rule": rule, "level": level, "what": what, "remedy": "Wait." });
            format!("{line}\n")
        };
        let note = line("leak", "note", "QP 0x12 is left.");
        assert_eq!(finding(&note), None);
        let file = [
            note,
            line("remote-race", "error", "QP 0x12 wrote."),
            line("buffer-changed", "error", "It changed."),
            line("remote-race", "error", "QP 0x13 wrote."),
        ];
        let (what, message) = finding(&file.concat()).expect("errors");
        assert_eq!(what, "finding (buffer-changed, remote-race)");
        assert_eq!(message, "remote-race: QP 0x12 wrote. Wait.");
        let failure = |message: &str| Failure {
            what: what.clone(),
            who: "client",
            message: message.to_owned(),
            source: MessageSource::FirstFinding,
        };
        let of = |message| failure(message).signature();
        assert_eq!(of("QP 0xab wrote."), of("QP 0xcd wrote."));
    }
}

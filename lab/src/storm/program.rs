//! A process of the step: its start, its output and its end.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use xtask::command::shown;

/// How long the debugger may take to print the stacks of a process that hangs.
const DEBUGGER_SECONDS: &str = "20";

/// The number of a program in a storm.
pub(super) type Number = usize;

/// How the step ended the program, if it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Intervention {
    /// The step sent no signal that ends it.
    None,
    /// We sent SIGKILL.
    Killed,
    /// Its peer is gone and it waited for a message that can't come: we sent SIGTERM.
    Terminated,
}

pub(super) struct Program {
    pub(super) number: Number,
    /// Its command line.
    shown: String,
    child: Child,
    directory: PathBuf,
    pub(super) started: Instant,
    pub(super) intervention: Intervention,
    pub(super) is_stopped: bool,
    /// Whether descriptors, memory or disk are short.
    pub(super) is_limited: bool,
}

impl Program {
    /// Starts it with its output in files of the directory.
    pub(super) fn start(
        mut command: Command,
        number: Number,
        scratch: &Path,
    ) -> Result<Self, String> {
        let shown = shown(&command);
        let failed = |error| format!("`{shown}` can't be started: {error}");
        let directory = scratch.join(format!("program-{number}"));
        fs::create_dir(&directory).map_err(failed)?;
        let output = File::create(directory.join("stdout")).map_err(failed)?;
        let errors = File::create(directory.join("stderr")).map_err(failed)?;
        let child = command
            .current_dir(&directory)
            .env("XDG_RUNTIME_DIR", scratch)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(failed)?;
        Ok(Self {
            number,
            shown,
            child,
            directory,
            started: Instant::now(),
            intervention: Intervention::None,
            is_stopped: false,
            is_limited: false,
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn output(&self) -> String {
        self.read("stdout")
    }

    pub(super) fn errors(&self) -> String {
        self.read("stderr")
    }

    fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.directory.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether its output reports a failure. `rping` succeeds when the server ends the connection.
    pub(super) fn complains(&self) -> bool {
        self.errors().contains("failed")
    }

    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(super) fn kill(&mut self) {
        self.intervention = Intervention::Killed;
        self.signal(Signal::KILL);
    }

    pub(super) fn dismiss(&mut self) {
        self.intervention = Intervention::Terminated;
        self.resume();
        self.signal(Signal::TERM);
    }

    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
        self.signal(Signal::STOP);
    }

    pub(super) fn resume(&mut self) {
        self.is_stopped = false;
        self.signal(Signal::CONT);
    }

    /// Whether it has not been reaped, so that its id can't belong to another process.
    fn signal(&self, signal: Signal) {
        if let Some(process) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(process, signal);
        }
    }

    /// Whether it listens at this TCP port of its own host.
    pub(super) fn listens_at(&self, port: u16) -> bool {
        let table = format!("/proc/{}/net/tcp", self.child.id());
        let tables = [table.clone(), format!("{table}6")];
        let tables = tables.map(|path| fs::read_to_string(path).unwrap_or_default());
        tables
            .iter()
            .any(|table| crate::programs::session::listens_at(table, port))
    }

    /// Children of it that have ended and were not waited for.
    pub(super) fn zombies(&self) -> usize {
        let parent = self.child.id().to_string();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let states = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
        states.filter(|stat| is_zombie_of(stat, &parent)).count()
    }

    /// What a reader needs to find out what happened.
    pub(super) fn describe(&self, what: &str) -> String {
        let age = self.started.elapsed().as_secs_f32();
        let (output, errors) = (self.output(), self.errors());
        format!(
            "{what}, {age:.1} s after its start, number {}:\n$ {}\n--- stdout\n{}\n--- stderr\n{}",
            self.number,
            self.shown,
            tail(&output),
            tail(&errors)
        )
    }

    /// Its command and its last error message, in one line.
    pub(super) fn summary(&self) -> String {
        let age = self.started.elapsed().as_secs_f32();
        let errors = self.errors();
        let complaint = errors.lines().last().unwrap_or_default();
        let (number, shown) = (self.number, &self.shown);
        format!("{number}, {age:.1} s, $ {shown}: {complaint}")
    }

    /// A description of a program that hangs, with the stacks of its threads.
    pub(super) fn describe_hanging(&self) -> String {
        format!("{}\n{}", self.describe("HANGS"), stacks(self.child.id()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command line with quotes where a shell needs them.
pub(super) fn shown_status(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("ended by signal {signal}"),
        None => format!("ended with {}", status.code().unwrap_or_default()),
    }
}

/// Whether a line of `/proc/PID/stat` is that of a zombie with this parent. The name is in parentheses, and
/// may contain some.
fn is_zombie_of(stat: &str, parent: &str) -> bool {
    let behind_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let mut fields = behind_name.split(' ');
    fields.next() == Some("Z") && fields.next() == Some(parent)
}

/// The end of a long text.
fn tail(text: &str) -> String {
    const LINES: usize = 25;
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// The stacks of a process: from the debugger, or else those in the kernel.
fn stacks(process: u32) -> String {
    let debugger = Command::new("timeout")
        .args([DEBUGGER_SECONDS, "gdb", "--batch", "-nx"])
        .args(["-ex", "thread apply all backtrace 25"])
        .args(["-p", &process.to_string()])
        .stdin(Stdio::null())
        .output();
    let text = debugger.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    if text.contains("#0") {
        return text.into_owned();
    }
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let places = threads.into_iter().flatten().flatten().map(|thread| {
        let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        format!("thread at {}\n{}", read("wchan"), read("stack"))
    });
    places.collect::<Vec<_>>().join("\n")
}

/// The time after this duration.
pub(super) fn after(milliseconds: u64) -> Instant {
    Instant::now() + Duration::from_millis(milliseconds)
}

#[cfg(test)]
mod tests {
    use super::is_zombie_of;

    #[test]
    fn a_zombie_is_found_by_its_parent() {
        assert!(is_zombie_of("12 (a) Z (b) Z 7 12 12 0", "7"));
        assert!(!is_zombie_of("12 (rping) S 7 12 12 0", "7"));
        assert!(!is_zombie_of("12 (rping) Z 77 12 12 0", "7"));
    }
}

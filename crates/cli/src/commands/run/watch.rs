//! A program as a child of ours, for those who can't see that it is one.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// What others send to end or to disturb a program. To stop it, they stop us too: the terminal sends
/// that to all of us.
const HANDED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Runs it to its end; signals for us are for it.
pub(super) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    // Before it starts: a signal that comes now waits for it.
    let mut signals = Signals::new(HANDED_ON)?;
    let handle = signals.handle();
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    thread::scope(|scope| {
        scope.spawn(move || {
            for signal in signals.forever() {
                hand_on(pid, signal);
            }
        });
        let status = child.wait();
        handle.close();
        status
    })
}

fn hand_on(child: Pid, signal: i32) {
    let from_keyboard = [SIGINT, SIGQUIT].contains(&signal) && in_foreground();
    if let Some(signal) = Signal::from_named_raw(signal).filter(|_| !from_keyboard) {
        // It may have ended a moment ago.
        let _ = kill_process(child, signal);
    }
}

/// Whether what is typed at the terminal reaches us, and the child as well.
fn in_foreground() -> bool {
    let Ok(stat) = fs::read_to_string("/proc/self/stat") else {
        return false;
    };
    // Behind the name, which is in parentheses: state, parent, group, session, terminal, the
    // terminal's foreground group.
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let mut fields = fields.split(' ').skip(2);
    let group = fields.next();
    group.is_some() && group == fields.nth(2)
}

/// Ends as the child did.
pub(super) fn end_like(status: ExitStatus) -> ExitCode {
    if let Some(code) = status.code() {
        return ExitCode::from(code.to_le_bytes()[0]);
    }
    let signal = status.signal().unwrap_or(0);
    // Returns only for those that end nothing here.
    let _ = emulate_default_handler(signal);
    ExitCode::from(128_u8.saturating_add(signal.to_le_bytes()[0]))
}

//! `roci top` in a real terminal.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::run_roci::{Directory, own_address, roci};

/// How long the screen may take to show what is expected.
const SCREEN_TIMEOUT: Duration = Duration::from_secs(30);

/// A terminal of tmux, with a server of its own. It ends with this.
struct Terminal {
    socket: String,
    _directory: Directory,
}

impl Terminal {
    /// Starts a shell command. Nothing if tmux is not installed.
    fn start(name: &str, command: &str, environment: &[(&str, String)]) -> Option<Self> {
        let directory = Directory::new(name);
        let terminal = Self {
            socket: directory.path().join("tmux").display().to_string(),
            _directory: directory,
        };
        let mut start = Command::new("tmux");
        start.args(["-f", "/dev/null", "-S", &terminal.socket]);
        start.args(["new-session", "-d", "-x", "150", "-y", "40", command]);
        for (name, value) in environment {
            start.env(name, value);
        }
        let started = start.env("TERM", "xterm").output().ok()?;
        assert!(started.status.success(), "{started:?}");
        Some(terminal)
    }

    fn tmux(&self, words: &[&str]) -> std::process::Output {
        let mut command = Command::new("tmux");
        let output = command.args(["-S", &self.socket]).args(words).output();
        output.expect("tmux runs")
    }

    /// The process that the shell runs.
    fn child_of_shell(&self) -> String {
        let shown = self.tmux(&["list-panes", "-F", "#{pane_pid}"]);
        let shell = String::from_utf8_lossy(&shown.stdout).trim().to_owned();
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        children.expect("the shell runs").trim().to_owned()
    }

    fn screen(&self) -> String {
        let shown = self.tmux(&["capture-pane", "-p"]);
        String::from_utf8_lossy(&shown.stdout).into_owned()
    }

    fn press(&self, keys: &[&str]) {
        let pressed = self.tmux(&[&["send-keys"], keys].concat());
        assert!(pressed.status.success(), "{pressed:?}");
    }

    /// Waits until the screen is as expected.
    #[track_caller]
    fn await_screen(&self, expected: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + SCREEN_TIMEOUT;
        loop {
            let screen = self.screen();
            if expected(&screen) {
                return;
            }
            assert!(Instant::now() < deadline, "the screen stays:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn a_terminal_shows_running_processes_until_q() {
    let address = own_address();
    let devices = format!("topped={address}");
    // The shell says how the command ended, and that the terminal is as before.
    let command = format!(
        "{} top topped -i 0.2; echo ended with $?; stty -a | grep -o ' echo ' ; cat",
        env!("CARGO_BIN_EXE_roci")
    );
    let environment = [("ROCI_DEVICES", devices.clone())];
    let Some(terminal) = Terminal::start("top", &command, &environment) else {
        return println!("left out: tmux is not installed");
    };
    terminal.await_screen(|screen| screen.contains("No process of this user"));

    let ping = |words: &[&str]| {
        let words = [&["ping"], words, &["-a", &address, "-p", "7394"]].concat();
        roci(words).env("ROCI_DEVICES", &devices)
    };
    let mut server = ping(&["-s", "-d"]).start();
    while server.line() != "rdma_listen" {}
    server.read_on();
    let client = ping(&["-c"]).start();
    let id = client.id().to_string();
    let has_rate = |text: &str| [" kB", " MB"].iter().any(|unit| text.contains(unit));
    let is_busy = |line: &str| line.contains(&id) && line.contains("RTS") && has_rate(line);
    // Each of the two processes publishes at its own times what it has.
    let all = "2 processes, 2 open devices, 2 queue pairs";
    terminal.await_screen(|screen| screen.contains(all) && screen.lines().any(is_busy));

    terminal.press(&["/", &id, "Enter"]);
    terminal.await_screen(|screen| screen.contains("1 process, 1 open device, 1 queue pair "));
    terminal.press(&["Enter"]);
    let title = format!("of roci (process {id}) at topped {address}");
    terminal.await_screen(|screen| screen.contains(&title) && has_rate(screen));
    client.interrupt();
    client.end();
    server.end();
    terminal.await_screen(|screen| screen.contains("does not exist any more"));
    terminal.press(&["Escape"]);
    terminal.await_screen(|screen| screen.contains("No process of this user"));
    terminal.press(&["?"]);
    terminal.await_screen(|screen| screen.contains("Any key goes back"));
    terminal.press(&["x"]);
    terminal.await_screen(|screen| !screen.contains("Any key goes back"));
    terminal.press(&["q"]);
    terminal.await_screen(|screen| screen.contains("ended with 0\n echo"));
}

#[test]
fn the_terminal_is_restored_after_a_signal() {
    let command = format!(
        "{} top none; echo ended with $?; stty -a | grep -o ' echo '; cat",
        env!("CARGO_BIN_EXE_roci")
    );
    let Some(terminal) = Terminal::start("top-signal", &command, &[]) else {
        return println!("left out: tmux is not installed");
    };
    terminal.await_screen(|screen| screen.contains("No process of this user"));
    let child = terminal.child_of_shell();
    let killed = Command::new("kill").args(["-TERM", &child]).status();
    assert!(killed.expect("`kill` is everywhere").success());
    terminal.await_screen(|screen| screen.contains("ended with 0\n echo"));
}

#[test]
fn the_process_ends_with_its_terminal() {
    let command = format!("{} top none; cat", env!("CARGO_BIN_EXE_roci"));
    let Some(terminal) = Terminal::start("top-gone", &command, &[]) else {
        return println!("left out: tmux is not installed");
    };
    terminal.await_screen(|screen| screen.contains("No process of this user"));
    let process = format!("/proc/{}", terminal.child_of_shell());
    drop(terminal);
    let deadline = Instant::now() + SCREEN_TIMEOUT;
    while fs::exists(&process).expect("/proc can be read") {
        assert!(Instant::now() < deadline, "it runs without a terminal");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn without_a_terminal_it_names_the_command_for_scripts() {
    let complaint = roci(["top"]).run().complaint();
    assert!(complaint.contains("roci stat --json"), "{complaint}");
}

//! C programs that wait for something that never comes, under `ROCI_EXPLAIN` or `ROCI_CHECK`: after two seconds they are told why,
//! and what waits is listed when a signal ends them.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::support;

/// How long a line may take. A busy machine is slow.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

struct Program {
    child: Child,
    lines: Receiver<String>,
    heard: Vec<String>,
}

impl Program {
    /// `number` gives it addresses of its own.
    fn start(case: &str, number: u32, variables: &[(&str, &str)]) -> Self {
        let libraries = support::library_directory(&format!("hangs-{number}"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/checked/hangs.c");
        let program = libraries.join("hangs");
        support::compile(&source, &program, Some(&libraries));
        let left = format!("127.33.{number}.1");
        let mut child = Command::new(&program)
            .arg(case)
            .env("LD_LIBRARY_PATH", &libraries)
            .env(
                "ROCI_DEVICES",
                format!("left={left},right=127.33.{number}.2"),
            )
            .env("LEFT_ADDRESS", left)
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it was compiled");
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let (say, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                let _ = say.send(line);
            }
        });
        Self {
            child,
            lines,
            heard: Vec::new(),
        }
    }

    /// Waits for a line with these words.
    fn hear(&mut self, words: &str) {
        while !self.heard.last().is_some_and(|line| line.contains(words)) {
            match self.lines.recv_timeout(LINE_TIMEOUT) {
                Ok(line) => self.heard.push(line),
                Err(error) => panic!("{words}: {error}: {:#?}", self.heard),
            }
        }
    }

    /// Sends a signal, and returns how the program ended and all that it said.
    fn end_by(mut self, signal: &str) -> (ExitStatus, String) {
        let process = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &process]).status();
        assert!(sent.expect("kill is everywhere").success());
        let status = self.child.wait().expect("a child");
        self.heard.extend(self.lines.iter());
        (status, self.heard.join("\n"))
    }
}

const EXPLAIN: (&str, &str) = ("ROCI_EXPLAIN", "1");
const CHECK: (&str, &str) = ("ROCI_CHECK", "1");

/// The case is explained in these words. A signal lists the call, and the idle server that waits without a reason.
fn explains(case: &str, number: u32, option: (&str, &str), signal: &str, call: &str, words: &str) {
    if !support::can_compile() {
        return;
    }
    let mut program = Program::start(case, number, &[option]);
    program.hear(&format!("roci: {call} has waited for "));
    let line = program.heard.last().expect("it was heard");
    assert!(line.contains(words), "{line}");
    let (status, said) = program.end_by(signal);
    assert!(!said.contains("rdma_get_cm_event has waited"), "{said}");
    assert!(
        said.contains(&format!("roci: SIG{signal} ends the program.")),
        "{said}"
    );
    assert!(said.contains(&format!("    {call}, for ")), "{said}");
    assert!(said.contains("    rdma_get_cm_event, for "), "{said}");
    let numbers = [("INT", 2), ("QUIT", 3), ("TERM", 15)];
    let number = numbers.iter().find(|(name, _)| *name == signal);
    let number = number.map(|(_, number)| *number);
    assert_eq!(status.signal(), number, "{said}");
}

#[test]
fn an_event_that_is_not_acknowledged() {
    let words = "1 event of the object is not acknowledged. The call returns when the program has acknowledged";
    explains(
        "unacknowledged",
        1,
        EXPLAIN,
        "TERM",
        "ibv_destroy_cq",
        words,
    );
}

#[test]
fn an_event_of_an_id_that_is_not_acknowledged() {
    let words = "1 event of the object is not acknowledged. The call returns when the program has called rdma_ack_cm_event";
    explains(
        "unacknowledged_id",
        2,
        CHECK,
        "INT",
        "rdma_destroy_id",
        words,
    );
}

#[test]
fn completions_that_are_left_after_an_event() {
    let words = "completions that the program has not polled. The queue was armed when they were already there";
    explains("one_for_each", 3, CHECK, "QUIT", "ibv_get_cq_event", words);
}

#[test]
fn completions_of_a_queue_that_is_not_armed() {
    let words = "completions that the program has not polled. The queue is not armed";
    explains("not_armed", 4, EXPLAIN, "TERM", "ibv_get_cq_event", words);
}

#[test]
fn a_peer_that_has_disconnected() {
    let words =
        "The peer of its connection has disconnected, and the program has not taken the event.";
    explains("disconnected", 6, CHECK, "TERM", "ibv_get_cq_event", words);
}

#[test]
fn a_program_that_handles_the_signal_gets_it_alone() {
    if !support::can_compile() {
        return;
    }
    let handles = ("HANDLES_SIGNALS", "1");
    let mut program = Program::start("unacknowledged", 5, &[EXPLAIN, handles]);
    program.hear("ibv_destroy_cq has waited for ");
    let (status, said) = program.end_by("TERM");
    assert_eq!(status.code(), Some(7), "{said}");
    assert!(!said.contains("ends the program"), "{said}");
}

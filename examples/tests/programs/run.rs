//! Running the programs, one alone or two that talk, and never longer than they may take.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Far more than anything here needs, also on a busy machine.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// A directory for the captures of one test.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("examples-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the target directory can be written");
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Cargo builds the examples of a package before it runs the package's tests, and puts them beside.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let built = test.parent().and_then(Path::parent).expect("target/debug");
    let program = built.join("examples").join(name);
    let hint = "run `cargo test -p examples` without --test, or build them with --examples first";
    assert!(
        program.exists(),
        "there is no {}: {hint}",
        program.display()
    );
    program
}

/// An address for this run of the tests alone, as far as that can be.
fn address(number: u8, host: u8) -> String {
    let run = std::process::id();
    format!(
        "127.{}.{}.{}",
        128 + run % 64,
        (run >> 6) % 256,
        4 * number + host
    )
}

fn command(directory: &Directory, name: &str, address: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program(name));
    command
        .args(arguments)
        .current_dir(&directory.0)
        .env("ROCI_DEVICES", format!("device={address}"))
        .env_remove("ROCI_PCAP")
        .env_remove("ROCI_FAULT")
        .env_remove("ROCI_EXPLAIN")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a program that needs no other; what it printed.
pub(crate) fn alone(directory: &Directory, number: u8, name: &str, arguments: &[&str]) -> String {
    let command = command(directory, name, &address(number, 1), arguments);
    Running::start(command, "").success()
}

/// Runs a program whose output nobody reads; what it complained about.
pub(crate) fn without_a_reader(directory: &Directory, number: u8, name: &str) -> String {
    let mut command = command(directory, name, &address(number, 1), &[]);
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let output = command.stdout(writer).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server and a client of one program, each with an address of its own.
pub(crate) struct Pair<'f> {
    directory: &'f Directory,
    number: u8,
    name: &'static str,
}

impl<'f> Pair<'f> {
    /// Each test has a number of its own, at most 62.
    pub(crate) fn new(directory: &'f Directory, number: u8, name: &'static str) -> Self {
        Self {
            directory,
            number,
            name,
        }
    }

    pub(crate) fn server_address(&self) -> String {
        address(self.number, 1)
    }

    pub(crate) fn client_address(&self) -> String {
        address(self.number, 2)
    }

    pub(crate) fn server(&self, arguments: &[&str], input: &str) -> Running {
        let address = self.server_address();
        Running::start(
            command(self.directory, self.name, &address, arguments),
            input,
        )
    }

    /// A client whose device injects these faults.
    pub(crate) fn client_with_faults(
        &self,
        faults: &str,
        arguments: &[&str],
        input: &str,
    ) -> Running {
        let address = self.client_address();
        let mut command = command(self.directory, self.name, &address, arguments);
        command.env("ROCI_FAULT", faults);
        Running::start(command, input)
    }

    pub(crate) fn client(&self, arguments: &[&str], input: &str) -> Running {
        let address = self.client_address();
        Running::start(
            command(self.directory, self.name, &address, arguments),
            input,
        )
    }
}

/// A program that runs, and does not outlive the test.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    /// What it has printed so far.
    output: String,
    complaints: Option<JoinHandle<String>>,
}

impl Running {
    fn start(mut command: Command, input: &str) -> Self {
        let mut child = command.spawn().expect("the program starts");
        let mut keyboard = child.stdin.take().expect("a pipe");
        keyboard
            .write_all(input.as_bytes())
            .expect("a pipe has room");
        drop(keyboard);
        let output = child.stdout.take().expect("a pipe");
        let mut errors = child.stderr.take().expect("a pipe");
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.map(|line| tell.send(line)).all(|sent| sent.is_ok());
        });
        let complaints = thread::spawn(move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            text
        });
        Self {
            child,
            lines,
            output: String::new(),
            complaints: Some(complaints),
        }
    }

    /// The port in the output of a server.
    pub(crate) fn port(&mut self) -> String {
        let deadline = Instant::now() + PROGRAM_TIMEOUT;
        while let Some(line) = self.next_line(deadline) {
            if let Some((_, rest)) = line.split_once(" port ") {
                return rest.split(' ').next().unwrap_or_default().to_owned();
            }
        }
        panic!("it names no port:\n{}", self.finish().1);
    }

    /// What it has printed so far.
    pub(crate) fn output(&self) -> &str {
        &self.output
    }

    /// What it printed, if it ended well.
    #[track_caller]
    pub(crate) fn success(&mut self) -> String {
        let (code, complaints) = self.finish();
        assert_eq!(code, Some(0), "{}{complaints}", self.output);
        self.output.clone()
    }

    /// What it complained about.
    #[track_caller]
    pub(crate) fn complaint(&mut self) -> String {
        let (code, complaints) = self.finish();
        assert_eq!(code, Some(1), "{}{complaints}", self.output);
        complaints
    }

    fn next_line(&mut self, deadline: Instant) -> Option<String> {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = self.lines.recv_timeout(left).ok()?;
        self.output.push_str(&line);
        self.output.push('\n');
        Some(line)
    }

    /// Its exit code, unless it takes too long, and its complaints.
    fn finish(&mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PROGRAM_TIMEOUT;
        // Its output ends when it ends.
        while self.next_line(deadline).is_some() {}
        if Instant::now() >= deadline {
            let _ = self.child.kill();
        }
        let code = self.child.wait().expect("it was started").code();
        let complaints = self.complaints.take().map(JoinHandle::join);
        let complaints = complaints.and_then(Result::ok).unwrap_or_default();
        (code, complaints)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

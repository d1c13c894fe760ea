//! Runs the command with a timeout.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Far more than anything here needs, also on a busy machine: some commands run programs a hundred times.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// What it printed, if all went well.
    #[track_caller]
    pub(crate) fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// What it complained about, which is one line.
    #[track_caller]
    pub(crate) fn complaint(self) -> String {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        self.stderr.trim().to_owned()
    }

    /// What it printed for a script.
    #[track_caller]
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.success()).expect("it prints JSON")
    }
}

/// The command, about to be run. It sees two devices, `a` and `b`, and no configuration.
pub(crate) struct Roci(Command);

pub(crate) fn roci<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Roci {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roci"));
    let [a, b] = [address(1), address(2)];
    command
        .args(arguments)
        .env("ROCI_DEVICES", format!("a={a},b={b}"))
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env_remove("ROCI_FAULT")
        .env_remove("ROCI_PCAP")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Roci(command)
}

/// An address for this run of the tests alone, as far as that can be.
pub(crate) fn address(host: u8) -> String {
    let run = std::process::id();
    format!("127.{}.{}.{host}", 64 + (run >> 8) % 64, run % 256)
}

/// An address that no other test of this run has: its counters and listeners belong to the caller alone.
pub(crate) fn own_address() -> String {
    static USED: AtomicU8 = AtomicU8::new(0);
    let host = 1 + USED.fetch_add(1, Ordering::Relaxed);
    let run = std::process::id();
    format!("127.{}.{}.{host}", 128 + (run >> 8) % 64, run % 256)
}

pub(crate) fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--help").output().is_ok()
}

impl Roci {
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    pub(crate) fn without_env(mut self, name: &str) -> Self {
        self.0.env_remove(name);
        self
    }

    /// It may write files of this many blocks of 512 bytes.
    pub(crate) fn with_file_size_limit(self, blocks: u32) -> Self {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -f {blocks} && exec \"$0\" \"$@\"");
        (shell.arg("-c").arg(script))
            .arg(self.0.get_program())
            .args(self.0.get_args())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, value) in self.0.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        Self(shell)
    }

    pub(crate) fn within(mut self, directory: &Path) -> Self {
        self.0.current_dir(directory);
        self
    }

    /// Lets the test write to its input.
    pub(crate) fn with_input(mut self) -> Self {
        self.0.stdin(Stdio::piped());
        self
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Outcome {
        self.start().end()
    }

    /// Starts it.
    pub(crate) fn start(mut self) -> Running {
        let mut child = self.0.spawn().expect("the command starts");
        let stdout = child.stdout.take().map(BufReader::new);
        let stderr = child.stderr.take().map(read_all);
        Running {
            child,
            stdout,
            rest: None,
            stderr,
        }
    }
}

/// The command while it runs; it does not outlive this.
pub(crate) struct Running {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    rest: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    /// Its next line of output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let output = self.stdout.as_mut().expect("its output is a pipe");
        output.read_line(&mut line).expect("its output is text");
        line.trim_end().to_owned()
    }

    /// Writes an empty line to its input.
    pub(crate) fn write_line(&mut self) {
        let input = self.child.stdin.as_mut().expect("its input is a pipe");
        input.write_all(b"\n").expect("it reads its input");
    }

    /// Keeps what it prints from now on for its [`end`](Self::end): a program that prints much would block on
    /// a reader.
    pub(crate) fn read_on(&mut self) {
        self.rest = self.stdout.take().map(read_all);
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// As Ctrl-C does it. A command that does not handle that may ignore it: a shell's background job does, and its children
    /// inherit it.
    pub(crate) fn interrupt(&self) {
        self.signal("-INT");
    }

    /// Ends a command that handles no signals.
    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    fn signal(&self, signal: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("`kill` is everywhere").success());
    }

    /// Waits for its end, for at most [`COMMAND_TIMEOUT`].
    pub(crate) fn end(mut self) -> Outcome {
        if self.rest.is_none() {
            self.read_on();
        }
        let code = self.wait();
        let text = |reader: Option<JoinHandle<String>>| {
            reader.map_or_else(String::new, |reader| reader.join().expect("reading works"))
        };
        Outcome {
            code,
            stdout: text(self.rest.take()),
            stderr: text(self.stderr.take()),
        }
    }

    fn wait(&mut self) -> Option<i32> {
        let end = Instant::now() + COMMAND_TIMEOUT;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child.kill().expect("it can be ended");
        panic!("the command ran longer than {COMMAND_TIMEOUT:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("reading works");
        // A shell that is given a damaged program quotes what it finds there.
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A directory that disappears with the test.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("roci-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

//! What one process runs: one test, or all tests of a program that opens no device.

use std::fmt;
use std::fs;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Variable;
use super::isolation::{Isolation, RuntimeDirectory};
use super::test_programs::TestProgram;

/// Tests without I/O are threads of one process: more than half of all tests, and most take less than a millisecond.
const WITHOUT_IO: [&str; 11] = [
    "rocinante-abi",
    "rocinante-wire",
    "rocinante-engine",
    "rocinante-cm",
    "rocinante-host",
    "rocinante-check",
    "rocinante-errors",
    "rocinante-explain",
    "rocinante-macros",
    "rocinante-statistics",
    "sim",
];

/// Test programs of these packages that open devices all the same, by package and name.
const WITH_DEVICES: [(&str, &str); 1] = [("rocinante-explain", "analysis")];

/// No test takes a minute on a quiet machine. One that takes this long hangs.
const TIMEOUT: Duration = Duration::from_secs(600);

/// How often to check whether a process has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

pub(super) struct Job<'a> {
    program: &'a TestProgram,
    /// `None`: all tests of the program.
    test: Option<String>,
}

/// How a job ended.
pub(super) struct Report {
    pub(super) passed: bool,
    pub(super) duration: Duration,
    /// What it printed, and why it was ended.
    pub(super) output: String,
}

/// The jobs that run all tests of these programs. Long ones come first, so that no processor is idle at the end.
pub(super) fn all(programs: &[TestProgram]) -> Result<Vec<Job<'_>>, String> {
    let (without_io, others): (Vec<_>, Vec<_>) =
        programs.iter().partition(|program| is_without_io(program));
    let whole = without_io.into_iter().map(|program| Job {
        program,
        test: None,
    });
    let mut jobs: Vec<_> = whole.collect();
    for program in others {
        let tests = tests_of(program)?.into_iter().map(Some);
        jobs.extend(tests.map(|test| Job { program, test }));
    }
    Ok(jobs)
}

fn is_without_io(program: &TestProgram) -> bool {
    let opens_devices = WITH_DEVICES.contains(&(&*program.package, &*program.name));
    WITHOUT_IO.contains(&&*program.package) && !opens_devices
}

fn tests_of(program: &TestProgram) -> Result<Vec<String>, String> {
    let file = program.file.display();
    let mut command = Command::new(&program.file);
    prepare(&mut command, program).args(["--list", "--format", "terse"]);
    let output = command.output();
    let output = output.map_err(|error| format!("{file} can't be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("{file} does not list its tests"));
    }
    let listed = String::from_utf8_lossy(&output.stdout);
    let tests = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    Ok(tests.map(str::to_owned).collect())
}

/// Sets what cargo sets.
fn prepare<'a>(command: &'a mut Command, program: &TestProgram) -> &'a mut Command {
    command
        .current_dir(&program.directory)
        .env("CARGO_MANIFEST_DIR", &program.directory)
        .env("CARGO_PKG_NAME", &program.package)
        .env("LD_LIBRARY_PATH", &program.library_path)
        .stdin(Stdio::null())
}

impl Job<'_> {
    pub(super) fn run(&self, isolation: &Isolation, environment: &[Variable<'_>]) -> Report {
        let started = Instant::now();
        let ended = self.run_in_directory(isolation, environment);
        let (passed, output) = ended.unwrap_or_else(|why| (false, why));
        Report {
            passed,
            duration: started.elapsed(),
            output,
        }
    }

    fn run_in_directory(
        &self,
        isolation: &Isolation,
        environment: &[Variable<'_>],
    ) -> Result<(bool, String), String> {
        let directory = RuntimeDirectory::new()?;
        let failed = |error: io::Error| format!("the test can't be started: {error}");
        // A file and not a pipe: a process that outlives its test would keep the pipe open.
        let log = directory.file("output");
        let output = fs::File::create(&log).map_err(failed)?;
        let mut command = isolation.command(&self.program.file, &directory);
        prepare(&mut command, self.program)
            .args(self.arguments())
            .envs(environment.iter().copied())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output);
        let mut child = command.spawn().map_err(failed)?;
        let ended = wait(&mut child).map_err(failed)?;
        let printed = fs::read(&log).unwrap_or_default();
        let mut printed = String::from_utf8_lossy(&printed).into_owned();
        match ended {
            Some(status) if status.success() => return Ok((true, printed)),
            Some(status) => printed += &format!("{status}\n"),
            None => printed += &format!("it did not end within {} s\n", TIMEOUT.as_secs()),
        }
        Ok((false, printed))
    }

    fn arguments(&self) -> Vec<&str> {
        match &self.test {
            Some(test) => vec!["--exact", test, "--test-threads", "1"],
            None => Vec::new(),
        }
    }
}

/// Waits for the end of a process, and kills it after [`TIMEOUT`].
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(POLL_INTERVAL);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

impl fmt::Display for Job<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TestProgram { package, name, .. } = self.program;
        write!(f, "{package} {name}")?;
        match &self.test {
            Some(test) => write!(f, " {test}"),
            None => Ok(()),
        }
    }
}

//! Each step's output in a file of its own, so that a failure is not lost among thousands of lines.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use super::Outcome;
use super::failure_excerpt::digest;

/// From the workspace's root.
const DIRECTORY: &str = "target/test-logs";

/// Where the steps of one run leave what they printed.
pub(super) struct LogDirectory {
    path: PathBuf,
    /// This program. A step may build it again; then the running file has no name any more.
    program: PathBuf,
    quick: bool,
}

impl LogDirectory {
    pub(super) fn new(root: &Path, quick: bool) -> Result<Self, String> {
        let path = root.join(DIRECTORY);
        fs::create_dir_all(&path).map_err(|error| format!("{DIRECTORY} can't be made: {error}"))?;
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        Ok(LogDirectory {
            path,
            program,
            quick,
        })
    }

    /// Runs a step in a process of its own. When it fails, prints what failed.
    pub(super) fn run(&self, name: &str) -> Outcome {
        let log = self.path.join(format!("{name}.log"));
        match self.start(name, &log) {
            Ok(status) if status.success() => Outcome::Passed,
            Ok(_) => {
                let text = fs::read(&log).unwrap_or_default();
                println!("{}", digest(&String::from_utf8_lossy(&text)));
                println!("all it printed: {DIRECTORY}/{name}.log");
                Outcome::Failed(self.repeat(name))
            }
            Err(error) => {
                println!("the step can't be started: {error}");
                Outcome::Failed(self.repeat(name))
            }
        }
    }

    fn start(&self, name: &str, log: &Path) -> io::Result<ExitStatus> {
        let output = File::create(log)?;
        Command::new(&self.program)
            .args(["test", "--only", name])
            .args(self.quick.then_some("--quick"))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .status()
    }

    fn repeat(&self, name: &str) -> String {
        let quick = if self.quick { " --quick" } else { "" };
        format!("cargo xtask test --only {name}{quick}")
    }
}

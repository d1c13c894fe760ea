//! A command line that can be run, and shown so that a reader can run it again.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::workspace_root;

/// Which packages the profile for development optimises.
const MANIFEST: &str = include_str!("../../Cargo.toml");

/// A cargo command with its environment, run from the workspace's root unless another directory is set.
#[derive(Clone, Debug)]
pub struct CommandLine {
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    directory: Option<PathBuf>,
}

impl CommandLine {
    /// `words` are what follows `cargo`, separated by spaces.
    ///
    /// The name is looked up in PATH rather than taken from `CARGO`: that variable names the
    /// compiler set we were built with, and only rustup's own `cargo` understands `+nightly`.
    pub fn cargo(words: &str) -> Self {
        CommandLine {
            arguments: words.split_whitespace().map(str::to_owned).collect(),
            environment: Vec::new(),
            directory: None,
        }
    }

    /// More arguments, each as it is.
    pub fn arguments(mut self, more: &[String]) -> Self {
        self.arguments.extend_from_slice(more);
        self
    }

    /// More arguments, separated by spaces.
    pub fn arguments_of(mut self, words: &str) -> Self {
        self.arguments
            .extend(words.split_whitespace().map(str::to_owned));
        self
    }

    /// Without optimisation: for code that is compiled for one step, where that takes most of the time.
    pub fn unoptimised(mut self) -> Self {
        for package in optimised_packages() {
            let setting = format!("profile.dev.package.{package}.opt-level=0");
            self.arguments.extend(["--config".to_owned(), setting]);
        }
        self
    }

    /// What follows `cargo`.
    pub fn words(&self) -> &[String] {
        &self.arguments
    }

    /// A variable of its environment.
    pub fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// The directory that it runs in.
    pub fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Runs with our own terminal; true when it succeeded.
    pub fn run(&self, root: &Path) -> io::Result<bool> {
        self.prepare(root).status().map(|status| status.success())
    }

    /// Runs quietly and returns everything it printed.
    pub fn capture(&self, root: &Path) -> io::Result<Output> {
        self.prepare(root).stdin(Stdio::null()).output()
    }

    /// Whether the command exists and works here: for probes such as `--version`.
    pub fn works(&self, root: &Path) -> bool {
        self.capture(root)
            .is_ok_and(|output| output.status.success())
    }

    fn prepare(&self, root: &Path) -> Command {
        let mut command = Command::new("cargo");
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.directory.as_deref().unwrap_or(root));
        command
    }
}

/// The command as it is typed into a shell.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(directory) = &self.directory {
            let directory = directory
                .strip_prefix(workspace_root())
                .unwrap_or(directory);
            write!(f, "cd {} && ", directory.display())?;
        }
        for (name, value) in &self.environment {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str("cargo")?;
        for argument in &self.arguments {
            write!(f, " {}", quoted(argument))?;
        }
        Ok(())
    }
}

fn optimised_packages() -> impl Iterator<Item = &'static str> {
    let tables = MANIFEST.lines().filter_map(|line| line.strip_prefix('['));
    tables.filter_map(|table| {
        table
            .strip_prefix("profile.dev.package.")?
            .strip_suffix(']')
    })
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-_=./:,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A command as it is typed into a shell.
pub fn shown(command: &Command) -> String {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// Runs a command; the error has what it wrote to stderr.
pub fn call(command: &mut Command) -> Result<(), String> {
    let shown = shown(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("`{shown}` can't be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{shown}` failed: {}", errors.trim()))
}

/// Shows a cargo command, given as what follows `cargo`, and runs it.
pub fn cargo(root: &Path, words: &str) -> Result<(), String> {
    run_cargo(root, &CommandLine::cargo(words))
}

/// Shows a command and runs it.
pub fn run_cargo(root: &Path, command: &CommandLine) -> Result<(), String> {
    println!("$ {command}");
    match command.run(root) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("`{command}` failed")),
        Err(error) => Err(format!("cargo can't be started: {error}")),
    }
}

/// We are in the directory of the unoptimised build ourselves.
pub fn program_beside_us(name: &str) -> Result<PathBuf, String> {
    let ours = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(ours.with_file_name(name))
}

/// Whether rustup, which installs compilers and standard libraries, is installed.
pub fn has_rustup() -> bool {
    let asked = Command::new("rustup").arg("--version").output();
    asked.is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_is_typed() {
        let line = CommandLine::cargo("test  --workspace")
            .arguments(&["it's here".to_owned()])
            .env("PROPTEST_CASES", "8");
        assert_eq!(
            line.to_string(),
            r"PROPTEST_CASES=8 cargo test --workspace 'it'\''s here'"
        );
    }

    #[test]
    fn every_package_that_the_manifest_optimises_is_left_unoptimised() {
        let shown = CommandLine::cargo("test").unoptimised().to_string();
        let optimised = MANIFEST.matches("\n[profile.dev.package.").count();
        assert_eq!(shown.matches(".opt-level=0").count(), optimised);
        assert!(shown.contains("--config profile.dev.package.rocinante-engine.opt-level=0"));
        assert!(!shown.contains(']'), "{shown}");
    }

    #[test]
    fn a_command_that_does_not_exist_does_not_work() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(CommandLine::cargo("--version").works(root));
        assert!(!CommandLine::cargo("no-such-command --version").works(root));
    }
}

//! Wheels of PyPI, each group in a virtual environment of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Packages that are installed together.
pub(super) struct Environment {
    pub(super) name: &'static str,
    /// With their versions, the one that the row is about first. Nothing else is installed.
    pub(super) packages: &'static [&'static str],
}

/// Says what is installed in an environment.
const RECORD: &str = "installed";

/// Bounds how long pip tries to reach the index: a machine without a network fails within two minutes.
const PIP_TIMEOUT: [&str; 4] = ["--retries", "1", "--timeout", "60"];

impl Environment {
    pub(super) fn version(&self) -> &'static str {
        let first = self.packages.first().and_then(|it| it.split_once("=="));
        first.map_or("", |(_, version)| version)
    }

    /// Makes it in the directory, unless it is there as it should be.
    pub(super) fn prepare(&self, directory: &Path) -> Result<(), String> {
        let path = directory.join(self.name);
        let wanted = self.packages.join("\n");
        let record = path.join(RECORD);
        if fs::read_to_string(&record).is_ok_and(|found| found == wanted) {
            return Ok(());
        }
        let make = ["-m", "venv", "--clear"].map(str::to_owned);
        let path_text = path.to_string_lossy().into_owned();
        run("python3", make.into_iter().chain([path_text]))?;
        let python = path.join("bin/python").to_string_lossy().into_owned();
        let install = ["-m", "pip", "install", "--quiet", "--no-deps"];
        let wheels = ["--only-binary=:all:", "--disable-pip-version-check"];
        let words = [&install[..], &wheels, &PIP_TIMEOUT, self.packages].concat();
        run(&python, words.into_iter().map(str::to_owned))?;
        fs::write(&record, wanted).map_err(|error| format!("{}: {error}", record.display()))
    }
}

fn run(program: &str, words: impl Iterator<Item = String>) -> Result<(), String> {
    let words: Vec<String> = words.collect();
    println!("$ {program} {}", words.join(" "));
    let output = Command::new(program)
        .args(&words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program} can't be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    Err(last.unwrap_or("it failed and said nothing").to_owned())
}

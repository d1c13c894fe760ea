//! Unpacks the suite from the distribution, and runs it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xtask::command::{call, program_beside_us, shown};
use xtask::scratch::Scratch;

use super::huge_pages::HugePages;
use super::newest_rdma_core::NewestRdmaCore;
use crate::programs::build;
use crate::programs::network::{Host, TestNetworks, VETH};

/// Runs the cases and reports each.
const CASES: &str = include_str!("cases.py");

/// Where Debian puts the suite, partly compressed; below the root of a system.
const TESTS: &str = "usr/share/doc/rdma-core/tests";
const PACKAGE: &str = "python3-pyverbs";

/// The interpreter for which Debian's extension modules are built.
const PYTHON: &str = "/usr/bin/python3";

/// The whole suite takes twenty seconds; a single case is given two minutes by the script.
const SECONDS: &str = "900";

/// The result of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Passed,
    /// With the suite's message.
    Skipped(String),
    Failed(String),
}

/// The results of all cases.
pub(super) struct Results {
    /// By name, without the cases for the cards of one vendor.
    pub(super) cases: BTreeMap<String, Outcome>,
    /// How many cases are for the cards of one vendor.
    pub(super) of_vendors: usize,
    /// Whether the suite ran to its end; the error says how it stopped.
    pub(super) ended: Result<(), String>,
    /// What the suite printed, with the trace of every failure.
    pub(super) log: String,
}

/// Runs the cases with this in their name, in this system or in the newest.
pub(super) fn run(
    root: &Path,
    part: &str,
    newest: Option<&NewestRdmaCore>,
) -> Result<Results, String> {
    build(root)?;
    let scratch = Scratch::new("conformance")?;
    match newest {
        None => unpack(&suite_of_machine(&scratch.0)?, &scratch.0)?,
        Some(newest) => unpack(&newest.system.join(TESTS), &scratch.0)?,
    }
    let script = scratch.0.join("cases.py");
    fs::write(&script, CASES).map_err(|error| format!("{}: {error}", script.display()))?;
    let _pages = HugePages::reserve();
    let test_networks = TestNetworks::with_namespaces(0)?;
    let host = ethernet(&test_networks)?;
    let (report, log) = (scratch.0.join("report"), scratch.0.join("log"));
    let roci = program_beside_us("roci")?;
    let mut command = host.command("timeout");
    command.args(["--kill-after=5", SECONDS]);
    if let Some(newest) = newest {
        let built = roci.parent().ok_or("a program is in a directory")?;
        command
            .args(["unshare", "--mount", "sh"])
            .arg(root.join("lab/src/conformance/enter.sh"))
            .args([&newest.system, built, &scratch.0]);
    }
    command
        .arg(roci)
        .args(["run", "--devices", &host.devices(), "--", PYTHON])
        .args([&script, &scratch.0])
        .arg(Host::device())
        .arg(&report)
        .args((!part.is_empty()).then_some(part))
        .env("XDG_RUNTIME_DIR", &scratch.0);
    println!("$ {}", shown(&command));
    let ended = run_into(&mut command, &log)?;
    let log = fs::read(&log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log).into_owned();
    let report =
        fs::read_to_string(&report).map_err(|_| format!("{log}\nthe suite did not start"))?;
    Ok(read_report(&report, ended, log))
}

/// A host with a veth interface. With Linux, an id that is bound to a loopback address has no device yet, but the suite
/// needs it at once.
fn ethernet(test_networks: &TestNetworks) -> Result<&Host, String> {
    let mut networks = test_networks.networks.iter();
    let network = networks.find(|network| network.name == VETH);
    network
        .map(|network| &network.server)
        .ok_or_else(|| "the test networks have no veth pair".to_owned())
}

/// The inner error says how the suite stopped, if it did not run to its end.
fn run_into(command: &mut Command, log: &Path) -> Result<Result<(), String>, String> {
    let failed = |error| format!("the suite can't be started: {error}");
    let output = File::create(log).map_err(failed)?;
    let both = output.try_clone().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(output).stderr(both);
    let status = command.status().map_err(failed)?;
    Ok(if status.success() {
        Ok(())
    } else {
        Err(format!("the suite itself ended with {status}"))
    })
}

/// Images for containers leave out what is below /usr/share/doc.
fn suite_of_machine(directory: &Path) -> Result<PathBuf, String> {
    let installed = Path::new("/").join(TESTS);
    if installed.is_dir() {
        Ok(installed)
    } else {
        from_archive(directory)
    }
}

/// Puts the suite into the directory, ready for the interpreter.
fn unpack(tests: &Path, directory: &Path) -> Result<(), String> {
    let copy = directory.join("tests");
    let words = ["--recursive", "--dereference", "--no-target-directory"];
    call(Command::new("cp").args(words).args([tests, &copy]))?;
    call(Command::new("gunzip").arg("--recursive").arg(&copy))
}

fn from_archive(directory: &Path) -> Result<PathBuf, String> {
    let (archives, unpacked) = (directory.join("archives"), directory.join("unpacked"));
    fs::create_dir(&archives).map_err(|error| error.to_string())?;
    call(
        Command::new("apt-get")
            .args(["download", PACKAGE])
            .current_dir(&archives),
    )?;
    let mut files = fs::read_dir(&archives).into_iter().flatten().flatten();
    let archive = files.next().ok_or("apt-get downloaded nothing")?.path();
    call(
        Command::new("dpkg-deb")
            .arg("--extract")
            .args([&archive, &unpacked]),
    )?;
    Ok(unpacked.join(TESTS))
}

/// Each line is a word, a case and perhaps a remark.
fn read_report(report: &str, ended: Result<(), String>, log: String) -> Results {
    let mut results = Results {
        cases: BTreeMap::new(),
        of_vendors: 0,
        ended,
        log,
    };
    let mut running = None;
    for line in report.lines() {
        let (event, remark) = line.split_once('\t').unwrap_or((line, ""));
        let (word, case) = event.split_once(' ').unwrap_or((event, ""));
        let case = case.strip_prefix("tests.").unwrap_or(case).to_owned();
        let outcome = match word {
            "vendor" => {
                results.of_vendors += 1;
                continue;
            }
            "starts" => {
                running = Some(case);
                continue;
            }
            "passed" => Outcome::Passed,
            "skipped" => Outcome::Skipped(remark.to_owned()),
            _ => Outcome::Failed(remark.to_owned()),
        };
        running = None;
        results.note(case, outcome);
    }
    if let Some(case) = running {
        results.note(case, Outcome::Failed("it did not end".to_owned()));
    }
    results
}

impl Results {
    /// A case that failed once has failed, whatever follows.
    fn note(&mut self, case: String, outcome: Outcome) {
        let known = self.cases.entry(case).or_insert(Outcome::Passed);
        if !matches!(known, Outcome::Failed(_)) {
            *known = outcome;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(report: &str) -> Vec<Outcome> {
        let results = read_report(report, Ok(()), String::new());
        results.cases.into_values().collect()
    }

    #[test]
    fn a_report_is_read() {
        let report = "vendor tests.test_mlx5_cq.A.b\t\nstarts tests.test_a.A.a\t\n\
                      passed tests.test_a.A.a\t\nstarts tests.test_a.A.b\t\n\
                      skipped tests.test_a.A.b\tno such thing\n";
        let skipped = Outcome::Skipped("no such thing".into());
        assert_eq!(outcomes(report), [Outcome::Passed, skipped]);
        let results = read_report(report, Ok(()), String::new());
        assert_eq!(results.of_vendors, 1);
        assert!(results.cases.contains_key("test_a.A.b"));
    }

    #[test]
    fn a_case_that_does_not_end_has_failed() {
        let failed = |why: &str| Outcome::Failed(why.into());
        assert_eq!(outcomes("starts a.b.c\t\n"), [failed("it did not end")]);
        let twice = "starts a.b.c\t\nfailed a.b.c\twrong\nskipped a.b.c\tlate\n";
        assert_eq!(outcomes(twice), [failed("wrong")]);
    }
}

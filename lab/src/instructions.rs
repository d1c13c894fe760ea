//! How many instructions a request takes: exact where times are noise.

use std::fs;
use std::path::Path;
use std::process::Command;

use xtask::command::CommandLine;
use xtask::scratch::Scratch;

/// What was last measured, and why it may change.
const TABLE: &str = "crates/verbs/benches/instructions/table.txt";

/// Two runs with these numbers of requests. What a program does once is the same in both.
const COUNTS: [u64; 2] = [2_000, 12_000];

/// Compilers and system libraries change some instructions.
const TOLERANCE: f64 = 0.02;

/// Counts each row of the table again. Fails if one has become more.
pub(crate) fn measure(root: &Path) -> Result<(), String> {
    let path = root.join(TABLE);
    let text = fs::read_to_string(&path).map_err(|error| format!("{TABLE}: {error}"))?;
    let variable = runner_variable()?;
    println!("instructions of one request within a process, from post to completion");
    let mut worse = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [operation, length, known] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(format!(
                "{TABLE}: {line:?} is not an operation, a length and a count"
            ));
        };
        let known: f64 = known.parse().map_err(|error| format!("{TABLE}: {error}"))?;
        let [few, many] =
            COUNTS.map(|count| count_instructions(root, &variable, operation, length, count));
        let each = (many? - few?) as f64 / (COUNTS[1] - COUNTS[0]) as f64;
        println!("{operation:>6} {length:>6} {each:>8.0}, {known:.0} before");
        if each > known * (1.0 + TOLERANCE) {
            worse.push(format!("{operation} {length}"));
        }
    }
    if worse.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} take more instructions than {TABLE} says: make them cheaper, or say there why not",
        worse.join(", ")
    ))
}

/// The variable by which cargo runs programs under another one.
fn runner_variable() -> Result<String, String> {
    let counts = Command::new("valgrind").arg("--version").output();
    counts.map_err(|error| format!("valgrind counts instructions: {error}; install it"))?;
    let version = Command::new("rustc").arg("-vV").output();
    let version = version.map_err(|error| format!("`rustc -vV` failed: {error}"))?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("`rustc -vV` names no host")?;
    let host = host.to_uppercase().replace('-', "_");
    Ok(format!("CARGO_TARGET_{host}_RUNNER"))
}

/// Counts the instructions of the thread that posts and polls. Those of the device's own thread depend on how long the run takes.
fn count_instructions(
    root: &Path,
    variable: &str,
    operation: &str,
    length: &str,
    count: u64,
) -> Result<u64, String> {
    // To open a device takes longer the more other processes have opened one.
    let scratch = Scratch::new("instructions")?;
    let counts = scratch.0.join("counts");
    let valgrind = format!(
        "valgrind --tool=callgrind --separate-threads=yes --callgrind-out-file={}",
        counts.display()
    );
    let words = format!("bench -p rocinante --bench instructions -- {operation} {length} {count}");
    let command = CommandLine::cargo(&words);
    let output = Command::new("cargo")
        .args(command.words())
        .env(variable, &valgrind)
        .env("XDG_RUNTIME_DIR", &scratch.0)
        .current_dir(root)
        .output()
        .map_err(|error| format!("`{command}` can't be started: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let first_thread = fs::read_to_string(scratch.0.join("counts-01")).unwrap_or_default();
    let mut lines = first_thread.lines();
    let total = lines.find_map(|line| line.strip_prefix("totals: "));
    total
        .and_then(|count| count.trim().parse().ok())
        .ok_or_else(|| format!("`{command}` under `{valgrind}` counted nothing:\n{said}"))
}

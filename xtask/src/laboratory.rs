//! The laboratory, a program of its own: it runs other people's software, and its code is compiled only for the commands
//! and steps that need it.

use std::path::Path;

use crate::command::{CommandLine, run_cargo};

/// The commands of the laboratory, which are also commands of `cargo xtask`, and what they do.
pub const COMMANDS: [(&str, &str); 9] = [
    (
        "bench",
        "Run the benchmarks in a release build, with copy, CRC, TCP and UDP for comparison",
    ),
    (
        "package",
        "Build a Debian package of the command, its libraries, completions and manual; or an archive, or a Python wheel",
    ),
    (
        "interop",
        "Run programs against the Soft-RoCE of a Linux kernel, in both directions, and print a table",
    ),
    (
        "conformance",
        "Run rdma-core's own test suite on our device, and write docs/conformance.md",
    ),
    (
        "ecosystem",
        "Run UCX, libfabric, MPI, fio and other users of RDMA, unmodified, and write docs/ecosystem.md",
    ),
    (
        "recipes",
        "Run the recipes of docs/ci.md unchanged, each in a fresh file system",
    ),
    (
        "programs",
        "Run other people's RDMA programs, unmodified, and write docs/programs.md",
    ),
    (
        "targets",
        "Compile for other architectures and for musl; with --full, also run on aarch64",
    ),
    (
        "storm",
        "Kill, stop and disconnect real programs at random, and check that nothing hangs or is lost",
    ),
];

/// Whether this is a command of the laboratory.
pub fn has(name: &str) -> bool {
    COMMANDS.iter().any(|(command, _)| *command == name)
}

/// A command of the laboratory, with its arguments.
pub fn command(words: &[String]) -> CommandLine {
    CommandLine::cargo("run --quiet --package lab --").arguments(words)
}

/// Why the laboratory can't perform a step on this machine; `None` if it can, or if it can't even be asked: then the
/// step fails and says why.
pub(crate) fn missing(root: &Path, step: &str) -> Option<String> {
    let question = command(&["missing".to_owned(), step.to_owned()]);
    let output = question.capture(root).ok()?;
    let answer = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !answer.is_empty()).then_some(answer)
}

/// Performs a step.
pub(crate) fn check(root: &Path, step: &str) -> Result<(), String> {
    run_cargo(root, &command(&["check".to_owned(), step.to_owned()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_reach_the_laboratory_unchanged() {
        let words = ["interop", "--only", "two words"].map(str::to_owned);
        assert_eq!(
            command(&words).to_string(),
            "cargo run --quiet --package lab -- interop --only 'two words'"
        );
    }
}

//! The device files of the kernel's device, and the output of `rdma` about it. The tests of `roci` compare
//! ours with it.

use std::env;
use std::fs;
use std::path::Path;

use super::machine::Machine;

/// The name of this check for `--only`.
pub(crate) const NAME: &str = "device files";

/// Commands for the kernel's machine, and the files with the expected output.
const COMMANDS: [(&str, &str); 3] = [
    ("device-files rxe0", "crates/cli/tests/roci/rxe-files.txt"),
    ("rdma-output rxe0", "crates/cli/tests/roci/rxe-rdma.txt"),
    // The kernel's address on the link.
    (
        "rdma-objects rxe0 10.211.0.2",
        "crates/cli/tests/roci/rxe-objects.txt",
    ),
];

/// Fails if the output of the kernel's machine differs from what the tests of `roci` expect. With `ROCI_BLESS=1`, they
/// expect it from now on.
pub(crate) fn check(root: &Path, machine: &mut Machine) -> Result<(), String> {
    for (command, file) in COMMANDS {
        let found = machine.must(command)?;
        if env::var_os("ROCI_BLESS").is_some() {
            fs::write(root.join(file), &found).map_err(|error| format!("{file}: {error}"))?;
        }
        let known = fs::read_to_string(root.join(file));
        let known = known.map_err(|error| format!("{file}: {error}"))?;
        if let Some(line) = first_difference(&known, &found) {
            return Err(format!("{file} and the kernel differ in `{line}`"));
        }
        println!(
            "{NAME}: {} lines of `{command}` as expected",
            found.lines().count()
        );
    }
    Ok(())
}

/// A line that only one of the two texts has.
fn first_difference<'t>(known: &'t str, found: &'t str) -> Option<&'t str> {
    let lacks = |text: &str, line: &str| !text.lines().any(|it| it == line);
    let missing = known.lines().find(|line| lacks(found, line));
    missing.or_else(|| found.lines().find(|line| lacks(known, line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_only_one_has_is_named() {
        assert_eq!(first_difference("a\nb\n", "b\na\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\n"), Some("b"));
        assert_eq!(first_difference("a\n", "a\nc\n"), Some("c"));
    }
}

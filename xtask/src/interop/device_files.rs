//! The files of the kernel's device, which ours are compared with by the tests of `roci`.

use std::fs;
use std::path::Path;

use super::machine::Machine;

/// What this is called in `--only`.
pub(crate) const NAME: &str = "device files";

/// What the kernel's device has, as those tests know it.
const KNOWN: &str = "crates/cli/tests/roci/rxe-files.txt";

/// Fails if the kernel's device has other files than the tests know.
pub(crate) fn check(root: &Path, machine: &mut Machine) -> Result<(), String> {
    let found = machine.must("device-files rxe0")?;
    let known = fs::read_to_string(root.join(KNOWN));
    let known = known.map_err(|error| format!("{KNOWN}: {error}"))?;
    match first_difference(&known, &found) {
        None => {
            println!("{NAME}: {} as known", found.lines().count());
            Ok(())
        }
        Some(line) => Err(format!("{KNOWN} and the kernel differ in `{line}`")),
    }
}

/// A line that only one of them has.
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

//! Rules that no lint checks: how long a file may be, how many modules may import each other, that every variable
//! is documented, and that translations follow their originals.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{import_knots, reference, translations};

/// Directories with source code.
const SOURCE_DIRECTORYS: [&str; 5] = ["crates", "xtask", "lab", "fuzz", "examples"];

/// Directories in them that tools write.
const BUILD_DIRECTORYS: [&str; 3] = ["target", "corpus", "artifacts"];

const MAX_FILE_LINES: usize = 900;

/// Checks every source file. The error has one line for each finding.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let findings = findings_below(root).map_err(|error| error.to_string())?;
    if findings.is_empty() {
        return Ok(());
    }
    Err(findings.join("\n"))
}

fn findings_below(root: &Path) -> io::Result<Vec<String>> {
    let sources = sources(root)?;
    let mut findings = reference::findings(root, &sources)?;
    findings.extend(import_knots::findings(root, &sources)?);
    findings.extend(translations::findings(root)?);
    for path in sources {
        let text = fs::read_to_string(&path)?;
        let relative = path.strip_prefix(root).unwrap_or(&path);
        findings.extend(finding_in(&relative.to_string_lossy(), &text));
    }
    Ok(findings)
}

fn finding_in(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > MAX_FILE_LINES)
        .then(|| format!("{path}: {lines} lines, more than {MAX_FILE_LINES}: split the file"))
}

/// The source files of the project, sorted.
pub(crate) fn sources(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories: Vec<_> = SOURCE_DIRECTORYS
        .iter()
        .map(|name| root.join(name))
        .collect();
    directories.retain(|directory| directory.is_dir());
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() && !is_build_directory(&path) {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_build_directory(directory: &Path) -> bool {
    directory
        .file_name()
        .is_some_and(|name| BUILD_DIRECTORYS.iter().any(|built| name == *built))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_have_nine_hundred_lines_and_no_more() {
        assert_eq!(finding_in("crates/wire/src/a.rs", &"\n".repeat(900)), None);
        assert_eq!(
            finding_in("crates/wire/src/a.rs", &"\n".repeat(901)).as_deref(),
            Some("crates/wire/src/a.rs: 901 lines, more than 900: split the file")
        );
    }
}

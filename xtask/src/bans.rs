//! Checks that the bans in `clippy.toml` have an effect.
//!
//! Clippy only warns of a ban whose path it can't resolve, so a typing error or a renamed function would
//! disable it. Here clippy checks a crate that violates each ban once, and must report each violation.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use xtask::command::CommandLine;

/// Crates without I/O and clock, each with the same bans.
const SEALED_CRATES: [&str; 4] = ["crates/engine", "crates/check", "crates/cm", "crates/host"];

const OFFENCES: &str = include_str!("bans/offences.rs");

const MANIFEST: &str = "\
[package]
name = \"offences\"
edition = \"2024\"

# A workspace of its own: it lies below the one it tests.
[workspace]
";

/// Fails if a crate without clock and I/O lacks the bans, or if a ban has no effect.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let bans = shared_bans(root)?;
    let paths = banned_paths(&bans);
    if paths.is_empty() {
        return Err("clippy.toml bans nothing".into());
    }
    let printed = clippy_output(root, &bans).map_err(|error| error.to_string())?;
    let ineffective = unmentioned(&paths, &printed);
    if ineffective.is_empty() {
        println!(
            "{} bans, each violated once, each reported by clippy",
            paths.len()
        );
        return Ok(());
    }
    Err(format!(
        "{printed}\nno effect, or no offence in xtask/src/bans/offences.rs: {}",
        ineffective.join(", ")
    ))
}

/// The text of the one `clippy.toml` that all sealed crates carry.
fn shared_bans(root: &Path) -> Result<String, String> {
    let mut shared: Option<String> = None;
    for name in SEALED_CRATES {
        if !root.join(name).join("Cargo.toml").exists() {
            continue;
        }
        let path = root.join(name).join("clippy.toml");
        let text =
            fs::read_to_string(path).map_err(|error| format!("{name}/clippy.toml: {error}"))?;
        if shared.as_ref().is_some_and(|other| *other != text) {
            return Err(format!(
                "{name}/clippy.toml must equal {}'s",
                SEALED_CRATES[0]
            ));
        }
        shared = Some(text);
    }
    shared.ok_or_else(|| "no sealed crate was found".into())
}

fn banned_paths(bans: &str) -> Vec<&str> {
    bans.lines()
        .filter_map(|line| line.trim_start().strip_prefix("{ path = \""))
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

/// The bans that clippy did not object to. The path alone is not enough to look for: clippy also quotes it in
/// the warning that it is unknown.
fn unmentioned<'a>(paths: &[&'a str], printed: &str) -> Vec<&'a str> {
    let is_reported = |path: &str| {
        ["method", "type"]
            .iter()
            .any(|kind| printed.contains(&format!("use of a disallowed {kind} `{path}`")))
    };
    paths
        .iter()
        .copied()
        .filter(|path| !is_reported(path))
        .collect()
}

/// The output of clippy for the crate of offences.
fn clippy_output(root: &Path, bans: &str) -> io::Result<String> {
    let scratch = scratch_directory()?;
    fs::create_dir_all(scratch.join("src"))?;
    fs::write(scratch.join("Cargo.toml"), MANIFEST)?;
    fs::write(scratch.join("clippy.toml"), bans)?;
    fs::write(scratch.join("src/lib.rs"), OFFENCES)?;
    let clippy = CommandLine::cargo("clippy --quiet --offline --target-dir target -- -D warnings")
        .directory(&scratch);
    let output = clippy.capture(root)?;
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        return Err(io::Error::other(format!(
            "clippy let everything pass\n{printed}"
        )));
    }
    Ok(printed)
}

/// Next to this program, hence in the target directory wherever that is.
fn scratch_directory() -> io::Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name("offences"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANS: &str = r#"
        disallowed-methods = [
            { path = "std::time::Instant::now", reason = "no" },
            { path = "std::thread::spawn", reason = "no" },
        ]"#;

    #[test]
    fn every_banned_path_is_read() {
        assert_eq!(
            banned_paths(BANS),
            ["std::time::Instant::now", "std::thread::spawn"]
        );
    }

    #[test]
    fn a_ban_that_clippy_does_not_mention_is_noticed() {
        let printed = "error: use of a disallowed method `std::time::Instant::now`\n\
                    warning: `std::thread::spawn` does not refer to a reachable function";
        assert_eq!(
            unmentioned(&banned_paths(BANS), printed),
            ["std::thread::spawn"]
        );
    }
}

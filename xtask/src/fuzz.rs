//! Running the targets of `fuzz/` with cargo-fuzz.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Output;
use std::thread;

use xtask::command::{CommandLine, run_cargo};

use crate::pool;

/// Long enough to notice a target that is broken; real campaigns are run with `cargo xtask fuzz`.
const SHORT_SECONDS: u32 = 20;

/// What takes longer than this hangs: inputs are a few kilobytes.
const HANGS_AFTER_SECONDS: u32 = 30;

/// The message if the tool is missing; `None` if it is installed.
pub(crate) fn missing(root: &Path) -> Option<String> {
    let install = "rustup toolchain install nightly && cargo install cargo-fuzz";
    let present = CommandLine::cargo("+nightly fuzz --version").works(root);
    (!present).then(|| format!("cargo-fuzz is not installed (`{install}`)"))
}

/// Whether only the tool is missing and not the compiler it needs.
pub(crate) fn can_install(root: &Path) -> bool {
    CommandLine::cargo("+nightly --version").works(root)
}

fn install() -> CommandLine {
    CommandLine::cargo("install --quiet --locked cargo-fuzz")
}

/// Runs every target for a short time, as many at once as there are processors: a target uses one.
pub(crate) fn check_shortly(root: &Path) -> Result<(), String> {
    if missing(root).is_some() {
        run_cargo(root, &install())?;
    }
    run_cargo(
        root,
        &lightly_optimised(CommandLine::cargo("+nightly fuzz build")),
    )?;
    let commands = commands(root, None, SHORT_SECONDS)?;
    let commands: Vec<_> = commands.into_iter().map(lightly_optimised).collect();
    let threads = thread::available_parallelism().map_or(1, Into::into);
    let outputs = pool::run(&commands, threads, |command| command.capture(root));
    let (mut passed, mut failed) = (String::new(), String::new());
    for (command, output) in commands.iter().zip(outputs) {
        let (is_good, said) = read(output);
        let report = if is_good { &mut passed } else { &mut failed };
        *report += &format!("$ {command}\n{said}\n");
    }
    println!("{passed}");
    if failed.is_empty() {
        return Ok(());
    }
    Err(failed)
}

/// Compiled in two thirds of the time, which is most of a short run; the targets run at 65 to 90 percent of their speed.
fn lightly_optimised(command: CommandLine) -> CommandLine {
    command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
}

/// Whether a target ended well, and what it said.
fn read(output: io::Result<Output>) -> (bool, String) {
    match output {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.success(), said)
        }
        Err(error) => (false, format!("it can't be started: {error}")),
    }
}

/// The commands that fuzz one target or, without a name, all of them.
pub(crate) fn commands(
    root: &Path,
    target: Option<&str>,
    seconds: u32,
) -> Result<Vec<CommandLine>, String> {
    chosen(targets(root)?, target)?
        .iter()
        .map(|target| command(root, target, seconds))
        .collect()
}

fn chosen(targets: Vec<String>, wanted: Option<&str>) -> Result<Vec<String>, String> {
    match wanted {
        None => Ok(targets),
        Some(name) if targets.iter().any(|target| target == name) => Ok(vec![name.to_owned()]),
        Some(name) => Err(format!(
            "there is no fuzz target `{name}`, only {}",
            targets.join(", ")
        )),
    }
}

/// A file in the directory is a target: no list to keep in step with it.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let directory = root.join("fuzz/fuzz_targets");
    let names = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                names.extend(path.file_stem().map(|name| name.to_string_lossy().into()));
            }
        }
        names.sort();
        Ok(names)
    };
    names().map_err(|error| format!("{}: {error}", directory.display()))
}

fn command(root: &Path, target: &str, seconds: u32) -> Result<CommandLine, String> {
    // libFuzzer writes what it finds into the first directory and only reads the others, so the
    // seeds under version control stay as they are.
    let corpus = format!("fuzz/corpus/{target}");
    fs::create_dir_all(root.join(&corpus)).map_err(|error| format!("{corpus}: {error}"))?;
    let mut directories = vec![corpus];
    let seeds = format!("fuzz/seeds/{target}");
    if root.join(&seeds).is_dir() {
        directories.push(seeds);
    }
    // No line for every new path and function, so that a finding is easy to see.
    let quiet = "-verbosity=0 -print_funcs=0 -print_final_stats=1";
    Ok(CommandLine::cargo(&format!(
        "+nightly fuzz run {target} {} -- -max_total_time={seconds} \
         -timeout={HANGS_AFTER_SECONDS} {quiet}",
        directories.join(" ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        xtask::workspace_root()
    }

    #[test]
    fn every_file_is_a_target_that_cargo_knows() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).expect("fuzz exists");
        let targets = targets(root()).expect("the targets can be listed");
        assert!(targets.contains(&"parse".to_owned()));
        for target in targets {
            assert!(
                manifest.contains(&format!("name = \"{target}\"")),
                "{target} has no [[bin]] in fuzz/Cargo.toml"
            );
        }
    }

    #[test]
    fn an_unknown_target_is_rejected_with_the_known_ones() {
        let known = vec!["parse".to_owned(), "roundtrip".to_owned()];
        assert_eq!(chosen(known.clone(), None), Ok(known.clone()));
        assert_eq!(
            chosen(known.clone(), Some("parse")),
            Ok(vec!["parse".into()])
        );
        let rejection = chosen(known, Some("prase")).expect_err("there is no such target");
        assert!(rejection.contains("parse, roundtrip"));
    }
}

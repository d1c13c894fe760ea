//! Running the targets of `fuzz/`: libFuzzer calls each with bytes that it makes up. What the compiler must do for that stands in
//! `fuzz/.cargo/config.toml`, so cargo is called in that directory, and cargo-fuzz is not needed.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Output;
use std::thread;

use xtask::command::{CommandLine, run_cargo};

use crate::pool;

/// Where the targets are.
const DIRECTORY: &str = "fuzz";

/// Long enough to notice a target that is broken; real campaigns are run with `cargo xtask fuzz`.
const SHORT_SECONDS: u32 = 20;

/// What takes longer than this hangs: inputs are a few kilobytes.
const HANGS_AFTER_SECONDS: u32 = 30;

/// The message if the compiler is missing; `None` if it is installed.
pub(crate) fn missing(root: &Path) -> Option<String> {
    let present = CommandLine::cargo("+nightly --version").works(root);
    (!present).then(|| {
        "a nightly compiler is not installed (`rustup toolchain install nightly`)".to_owned()
    })
}

/// Runs every target for a short time, as many at once as there are processors: a target uses one.
pub(crate) fn check_shortly(root: &Path) -> Result<(), String> {
    run_cargo(
        root,
        &in_fuzz_directory(root, "+nightly build --release --bins"),
    )?;
    let commands = commands(root, None, SHORT_SECONDS)?;
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
    let fuzz = root.join(DIRECTORY);
    let corpus = format!("corpus/{target}");
    let artifacts = format!("artifacts/{target}/");
    for made in [&corpus, &artifacts] {
        fs::create_dir_all(fuzz.join(made)).map_err(|error| format!("{made}: {error}"))?;
    }
    let mut directories = vec![corpus];
    let seeds = format!("seeds/{target}");
    if fuzz.join(&seeds).is_dir() {
        directories.push(seeds);
    }
    // No line for every new path and function, so that a finding is easy to see.
    let quiet = "-verbosity=0 -print_funcs=0 -print_final_stats=1";
    let words = format!(
        "+nightly run --release --bin {target} -- {} -artifact_prefix={artifacts} -max_total_time={seconds} \
         -timeout={HANGS_AFTER_SECONDS} {quiet}",
        directories.join(" ")
    );
    Ok(in_fuzz_directory(root, &words))
}

fn in_fuzz_directory(root: &Path, words: &str) -> CommandLine {
    CommandLine::cargo(words).directory(&root.join(DIRECTORY))
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

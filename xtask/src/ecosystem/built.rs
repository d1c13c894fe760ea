//! Programs that no package has: a small one of ours for each MPI, and examples of Rust crates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::list::{Entry, Origin};
use crate::programs;

/// What is built stays here, so that a crate is compiled once.
const FOLDER: &str = "target/ecosystem";

/// Our program, compiled by the compilers of these.
const RING: &str = "xtask/ecosystem/ring.c";
const LIBRARIES: [&str; 2] = ["openmpi", "mpich"];

/// What some rows need beside the programs.
const FILES: [&str; 3] = ["dat.conf", "iser.sh", "migrate.py"];

/// Builds what the entries need, and tells the folder where it is.
pub(super) fn build(root: &Path, entries: &[Entry]) -> Result<PathBuf, String> {
    let programs = root.join(FOLDER).join("bin");
    fs::create_dir_all(&programs)
        .map_err(|error| format!("{} can't be made: {error}", programs.display()))?;
    for library in LIBRARIES {
        compile(&root.join(RING), &programs, library)?;
    }
    for file in FILES {
        let (from, to) = (root.join("xtask/ecosystem").join(file), programs.join(file));
        fs::copy(from, to).map_err(|error| format!("{file} can't be copied: {error}"))?;
    }
    let mut crates: Vec<_> = entries
        .iter()
        .filter_map(|entry| entry.origin.package())
        .collect();
    crates.sort_unstable();
    crates.dedup();
    for (name, version) in crates {
        install_examples(root, name, version)?;
    }
    Ok(programs)
}

fn compile(source: &Path, folder: &Path, library: &str) -> Result<(), String> {
    let output = folder.join(format!("ring.{library}"));
    let compiler = format!("mpicc.{library}");
    println!("$ {compiler} -o {} {}", output.display(), source.display());
    let status = Command::new(&compiler)
        .args(["-O1", "-Wall", "-Werror", "-o"])
        .args([&output, source])
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{compiler} failed: {status}")),
        Err(error) => Err(format!("{compiler} can't be started: {error}")),
    }
}

/// Does nothing if they are there.
fn install_examples(root: &Path, name: &str, version: &str) -> Result<(), String> {
    let words = format!(
        "install {name} --version ={version} --examples --debug --root {FOLDER} --target-dir {FOLDER}/build"
    );
    programs::cargo(root, &words)
}

impl Origin {
    /// The crate and its version, if it is one.
    fn package(&self) -> Option<(&'static str, &'static str)> {
        match *self {
            Self::Crate(name, version) => Some((name, version)),
            Self::Debian(_) => None,
        }
    }
}

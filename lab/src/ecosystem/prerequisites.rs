//! Builds and installs what the runs need besides Debian's packages: small programs of ours, examples of Rust crates, wheels
//! of PyPI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::command::cargo;
use xtask::debian;

use super::entry::{Crate, Effort, Entry, Origin};
use super::{MORE_PACKAGES, PACKAGES};

/// What is built stays here, so that a crate is compiled once.
const DIRECTORY: &str = "target/ecosystem";

/// Our program for MPI, compiled by the compilers of these.
const RING: &str = "ring.c";
const LIBRARIES: [&str; 2] = ["openmpi", "mpich"];

/// Our program for Gloo, and what it is called when it is compiled.
const GLOO: &str = "gloo_allreduce.cc";
pub(super) const GLOO_PROGRAM: &str = "gloo_allreduce";

/// Our program for OpenSHMEM.
const SHMEM: &str = "shmem.c";
pub(super) const SHMEM_PROGRAM: &str = "shmem.openmpi";

/// Our program for UCX in its wake-up mode.
const WAKE_UP: &str = "ucp_wakeup.c";
pub(super) const WAKE_UP_PROGRAM: &str = "ucp_wakeup";

/// A run that can't be tried here, and why.
pub(super) struct LeftOut {
    pub(super) entry: Entry,
    pub(super) why: String,
}

/// What is available for the runs.
pub(super) struct Supply {
    /// The directory of everything that is built or copied.
    pub(super) directory: PathBuf,
    pub(super) entries: Vec<Entry>,
    pub(super) left_out: Vec<LeftOut>,
}

/// Builds and installs what the entries need. One whose package can't be had is left out.
pub(super) fn prepare(root: &Path, entries: Vec<Entry>) -> Result<Supply, String> {
    debian::install(&PACKAGES)?;
    let directory = root.join(DIRECTORY);
    fs::create_dir_all(&directory)
        .map_err(|error| format!("{} can't be made: {error}", directory.display()))?;
    copy_scripts(&root.join("lab/ecosystem"), &directory)?;
    for library in LIBRARIES {
        compile_ring(root, &directory, library)?;
    }
    let mut supply = Supply {
        directory,
        entries: Vec::new(),
        left_out: Vec::new(),
    };
    let more = if entries.iter().any(|entry| entry.effort == Effort::Large) {
        debian::install(&MORE_PACKAGES)
    } else {
        Ok(())
    };
    for entry in entries {
        let there = match entry.effort {
            Effort::Large => more.clone(),
            Effort::Small => Ok(()),
        };
        let there = there.and_then(|()| supply.provide(root, &entry));
        match there {
            Ok(()) => supply.entries.push(entry),
            Err(why) => supply.left_out.push(LeftOut { entry, why }),
        }
    }
    Ok(supply)
}

impl Supply {
    fn provide(&self, root: &Path, entry: &Entry) -> Result<(), String> {
        // One that was not there for the entry before is not asked for again.
        let same = |it: &&LeftOut| it.entry.origin.is_same(&entry.origin);
        if let Some(before) = self.left_out.iter().find(same) {
            return Err(before.why.clone());
        }
        match entry.origin {
            Origin::Debian(_) if entry.row.program == GLOO_PROGRAM => {
                compile_gloo(root, &self.directory)
            }
            Origin::Debian(_) if entry.row.program == SHMEM_PROGRAM => {
                compile_shmem(root, &self.directory)
            }
            Origin::Debian(_) if entry.row.program == WAKE_UP_PROGRAM => {
                compile_wake_up(root, &self.directory)
            }
            Origin::Debian(_) => Ok(()),
            Origin::Crate(it) => install_examples(root, it),
            Origin::Python(environment) => environment.prepare(&self.directory.join("python")),
        }
    }
}

impl Origin {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Debian(_), _) | (_, Self::Debian(_)) => false,
            (Self::Crate(one), Self::Crate(other)) => one.name == other.name,
            (Self::Python(one), Self::Python(other)) => one.name == other.name,
            _ => false,
        }
    }
}

/// The scripts and files of ours.
fn copy_scripts(from: &Path, to: &Path) -> Result<(), String> {
    let files = fs::read_dir(from).map_err(|error| format!("{}: {error}", from.display()))?;
    for file in files.flatten() {
        let (from, to) = (file.path(), to.join(file.file_name()));
        fs::copy(&from, to)
            .map_err(|error| format!("{} can't be copied: {error}", from.display()))?;
    }
    Ok(())
}

fn compile_ring(root: &Path, directory: &Path, library: &str) -> Result<(), String> {
    let output = directory.join(format!("ring.{library}"));
    compile(root, &format!("mpicc.{library}"), RING, &output, &[])
}

fn compile_gloo(root: &Path, directory: &Path) -> Result<(), String> {
    let output = directory.join(GLOO_PROGRAM);
    compile(root, "g++", GLOO, &output, &["-lgloo", "-libverbs"])
}

fn compile_shmem(root: &Path, directory: &Path) -> Result<(), String> {
    compile(root, "oshcc", SHMEM, &directory.join(SHMEM_PROGRAM), &[])
}

fn compile_wake_up(root: &Path, directory: &Path) -> Result<(), String> {
    let output = directory.join(WAKE_UP_PROGRAM);
    compile(root, "gcc", WAKE_UP, &output, &["-lucp", "-lucs"])
}

fn compile(
    root: &Path,
    compiler: &str,
    source: &str,
    output: &Path,
    libraries: &[&str],
) -> Result<(), String> {
    let source = root.join("lab/ecosystem").join(source);
    println!("$ {compiler} -o {} {}", output.display(), source.display());
    let status = Command::new(compiler)
        .args(["-O1", "-Wall", "-Werror", "-o"])
        .args([output, &source])
        .args(libraries)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{compiler} failed: {status}")),
        Err(error) => Err(format!("{compiler} can't be started: {error}")),
    }
}

/// Does nothing if they are there.
fn install_examples(root: &Path, it: &Crate) -> Result<(), String> {
    let Crate { name, version, .. } = it;
    let mut words = format!(
        "install --quiet {name} --version ={version} --debug --root {DIRECTORY}/{name} --target-dir {DIRECTORY}/build"
    );
    match it.examples {
        [] => words.push_str(" --examples"),
        some => some
            .iter()
            .for_each(|example| words.push_str(&format!(" --example {example}"))),
    }
    cargo(root, &words)
}

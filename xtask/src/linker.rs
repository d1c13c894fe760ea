//! Which linker has made a file.

use std::path::Path;
use std::process::Command;

/// A linker that the compiler driver can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linker {
    /// The usual one of distributions.
    GnuLd,
    /// The one of LLVM.
    Lld,
}

impl Linker {
    /// What `-fuse-ld=` calls it; its program has this name, too.
    pub fn name(self) -> &'static str {
        match self {
            Linker::GnuLd => "bfd",
            Linker::Lld => "lld",
        }
    }
}

/// Fails if another linker has made this file.
pub fn must_be_of(file: &Path, linker: Linker) -> Result<(), String> {
    match linker_of(file)? {
        found if found == linker => Ok(()),
        found => Err(format!(
            "{} was linked with {found:?} instead of {linker:?}",
            file.display()
        )),
    }
}

/// The linker that has made this file: lld writes its name into the section for comments, GNU ld does not.
pub fn linker_of(file: &Path) -> Result<Linker, String> {
    let output = Command::new("readelf")
        .arg("--string-dump=.comment")
        .arg(file)
        .output()
        .map_err(|error| format!("readelf can't be started: {error}"))?;
    let comments = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !comments.contains("rustc version") {
        return Err(format!("{} has no comments", file.display()));
    }
    Ok(if comments.contains("Linker: LLD") {
        Linker::Lld
    } else {
        Linker::GnuLd
    })
}

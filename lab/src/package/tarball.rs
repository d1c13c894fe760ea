//! One archive for every distribution, which works in whatever directory it is unpacked.
//!
//! The command is linked statically, with musl: it runs wherever the kernel does. The libraries are loaded
//! into programs of the distribution, so they use its C library: there are some for glibc, and some for musl.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::command::cargo;
use xtask::install::{self, Built};

use super::{
    DIRECTORY, call, needed_libraries, newest_glibc, objects, old_glibc, remove, strip, strip_files,
};
use crate::targets;
use crate::targets::musl::target;

/// The one directory in the archive.
const TOP: &str = "rocinante";

/// All files are from then: the same build makes the same bytes.
const TIME: &str = "--mtime=2026-01-01 00:00:00Z";

/// What is in the archive beside what `install` puts in place.
const DOCUMENTS: [&str; 3] = ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"];

/// Builds everything for release, and the archive of it.
pub(super) fn build_and_make(root: &Path) -> Result<PathBuf, String> {
    let built = build(root)?;
    make(root, &built, &built.libraries.with_file_name(DIRECTORY))
}

/// Builds everything for release, with libraries for programs of glibc and of musl.
pub(super) fn build(root: &Path) -> Result<Built, String> {
    let built = build_for_glibc(root)?;
    let musl = match targets::musl::missing() {
        None => Some(targets::musl::build_libraries(root, "--release")?),
        Some(missing) => {
            println!("left out: the libraries for musl, because {missing}");
            None
        }
    };
    Ok(Built { musl, ..built })
}

/// Builds a static command for release, and libraries for programs of glibc.
pub(super) fn build_for_glibc(root: &Path) -> Result<Built, String> {
    targets::provide(&target())?;
    let libraries = old_glibc::build_libraries(root)?;
    Ok(Built {
        command: build_static(root, &libraries, "--release")?,
        libraries,
        musl: None,
    })
}

/// Why no static command can be built here, if it can't.
pub(crate) fn missing() -> Option<String> {
    targets::provide(&target()).err()
}

/// Builds the static command, and tells its directory: beside `built`, the directory of the usual build.
pub(crate) fn build_static(root: &Path, built: &Path, options: &str) -> Result<PathBuf, String> {
    let target = target();
    let build = format!("build -p roci --all-features --target {target} {options}");
    cargo(root, &build)?;
    let profile = built.file_name().ok_or("a build has a directory")?;
    Ok(built.with_file_name(target).join(profile))
}

/// The archive of what was built, made below `directory`.
pub(crate) fn make(root: &Path, built: &Built, directory: &Path) -> Result<PathBuf, String> {
    let tree = directory.join(TOP);
    remove(&tree)
        .and_then(|()| copy_documents(root, &tree.join("share/doc/rocinante")))
        .map_err(|error| format!("{} can't be filled: {error}", tree.display()))?;
    let minor = copy_stripped(built, &tree)?;
    println!("roci is static, and its libraries need glibc 2.{minor}");
    let archive = directory.join(format!(
        "rocinante-{}-{}-linux.tar.gz",
        env!("CARGO_PKG_VERSION"),
        env::consts::ARCH
    ));
    call(
        Command::new("tar")
            .args(["--create", "--sort=name", TIME, "--numeric-owner"])
            .args(["--owner=0", "--group=0", "--mode=go=rX,u+rw"])
            .arg("--use-compress-program=gzip --best --no-name")
            .arg("--file")
            .arg(&archive)
            .arg("--directory")
            .args([directory, Path::new(TOP)]),
    )?;
    Ok(archive)
}

/// What is beside the files that `install` puts in place.
pub(super) fn copy_documents(root: &Path, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for name in DOCUMENTS {
        fs::copy(root.join(name), directory.join(name))?;
    }
    Ok(())
}

/// Puts everything below the prefix, without what only debuggers read. Returns the minor number of the oldest glibc that the
/// libraries load with.
pub(super) fn copy_stripped(built: &Built, prefix: &Path) -> Result<u32, String> {
    install::copy_everything(built, prefix)
        .map_err(|error| format!("{} can't be filled: {error}", prefix.display()))?;
    strip(prefix)?;
    let musl = prefix.join("lib/rocinante/musl");
    if musl.is_dir() {
        strip_files(["libibverbs.so.1", "librocinante_preload.so"].map(|it| musl.join(it)))?;
    }
    let [command, libraries @ ..] = objects(prefix);
    is_static(&command)?;
    glibc_of(&libraries).map_err(|error| error.to_string())
}

/// Fails if a program asks the loader for anything.
fn is_static(command: &Path) -> Result<(), String> {
    match &needed_libraries(command)?[..] {
        [] => Ok(()),
        libraries => Err(format!(
            "{} is not static: it needs {}",
            command.display(),
            libraries.join(" ")
        )),
    }
}

/// The minor number of the oldest glibc that these can be loaded with.
fn glibc_of(libraries: &[PathBuf]) -> io::Result<u32> {
    let minors = libraries
        .iter()
        .map(|library| Ok(newest_glibc(&fs::read(library)?)));
    let minors = minors.collect::<io::Result<Vec<_>>>()?;
    Ok(minors.into_iter().max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_libraries_is_not_static() {
        let test = env::current_exe().expect("a test knows where it is");
        let refusal = is_static(&test).expect_err("it uses glibc");
        assert!(refusal.contains("libc.so.6"), "{refusal}");
    }
}

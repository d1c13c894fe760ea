//! `cargo xtask package`: what `install` puts in place, as a Debian package, as an archive or as a Python wheel. All of them have the same
//! programs: a static command, and libraries that load with old and new C libraries.
//!
//! The libraries stay in a directory of their own, where only `roci run` looks: the distribution's
//! libibverbs is neither replaced nor shadowed.

mod old_glibc;
mod tarball;
mod wheel;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use xtask::install::{self, Built};
use xtask::project;

pub(crate) use old_glibc::check as check_old_glibc;
pub(crate) use tarball::{build_static, make as make_tarball, missing as no_tarball};
pub(crate) use wheel::{make as make_wheel, missing as no_wheel};

/// Below the directory of all builds.
const DIRECTORY: &str = "debian";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The command runs with whatever C library a system has.
const LINTIAN_OVERRIDES: &str = "rocinante: shared-library-lacks-prerequisites\n";

/// How the loader calls the versions of the C library that a program asks for.
const GLIBC: &[u8] = b"GLIBC_2.";

/// The library that a program asks for, and the package that has it.
///
/// Before glibc 2.34, threads and the loader's functions are in libraries of their own.
const LIBRARIES: [(&str, &str); 6] = [
    ("libc.so.6", "libc6"),
    ("libdl.so.2", "libc6"),
    ("libpthread.so.0", "libc6"),
    ("libm.so.6", "libc6"),
    ("ld-linux", "libc6"),
    ("libgcc_s.so.1", "libgcc-s1"),
];

/// What to make.
#[derive(Args)]
pub(crate) struct Options {
    /// Make an archive for every distribution instead
    #[arg(long)]
    tarball: bool,
    /// Make a Python wheel instead: what the archive has, a Python module and a plugin for pytest
    #[arg(long, conflicts_with = "tarball")]
    wheel: bool,
}

/// Builds everything for release, and the package of it.
pub(crate) fn package(root: &Path, options: &Options) -> Result<(), String> {
    let package = match options {
        Options { tarball: true, .. } => tarball::build_and_make(root)?,
        Options { wheel: true, .. } => wheel::build_and_make(root)?,
        Options { .. } => {
            let built = tarball::build_for_glibc(root)?;
            make(
                root,
                &built,
                &built.libraries.with_file_name(DIRECTORY),
                "xz",
            )?
        }
    };
    println!("the package is {}", package.display());
    if let Some(reminder) = project::reminder() {
        println!("{reminder}");
    }
    Ok(())
}

/// The package of what was built, made below `directory`.
pub(crate) fn make(
    root: &Path,
    built: &Built,
    directory: &Path,
    compression: &str,
) -> Result<PathBuf, String> {
    let tree = directory.join("tree");
    fill(root, built, &tree)
        .map_err(|error| format!("{} can't be filled: {error}", tree.display()))?;
    strip(&tree.join("usr"))?;
    let architecture = call(Command::new("dpkg").arg("--print-architecture"))?;
    let control = control(&tree, architecture.trim())?;
    let meta = tree.join("DEBIAN");
    fs::create_dir_all(&meta)
        .and_then(|()| fs::write(meta.join("control"), control))
        .map_err(|error| format!("{} can't be written: {error}", meta.display()))?;
    let package = directory.join(format!("rocinante_{VERSION}_{}.deb", architecture.trim()));
    call(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Z", compression, "--build"])
            .args([&tree, &package]),
    )?;
    Ok(package)
}

/// The person that Debian's variables name, as for every package that is built on this machine; else that of the project.
fn maintainer() -> String {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (variable("DEBFULLNAME"), variable("DEBEMAIL")) {
        (Some(name), Some(address)) => format!("{name} <{address}>"),
        _ => project::maintainer().to_owned(),
    }
}

fn fill(root: &Path, built: &Built, tree: &Path) -> io::Result<()> {
    remove(tree)?;
    install::copy_everything(built, &tree.join("usr"))?;
    let documents = tree.join("usr/share/doc/rocinante");
    fs::create_dir_all(&documents)?;
    fs::write(documents.join("copyright"), copyright(root)?)?;
    fs::copy(root.join("CHANGELOG.md"), documents.join("CHANGELOG.md"))?;
    compress(&documents.join("CHANGELOG.md"))?;
    fs::write(documents.join("changelog"), debian_changelog())?;
    compress(&documents.join("changelog"))?;
    let overrides = tree.join("usr/share/lintian/overrides");
    fs::create_dir_all(&overrides)?;
    fs::write(overrides.join("rocinante"), LINTIAN_OVERRIDES)?;
    let shell = tree.join("usr/share/zsh");
    // Debian's zsh leaves the other directory to the administrator.
    fs::rename(
        shell.join("site-functions"),
        shell.join("vendor-completions"),
    )?;
    for page in fs::read_dir(tree.join("usr/share/man/man1"))? {
        compress(&page?.path())?;
    }
    Ok(())
}

/// Leaves nothing of an earlier run.
fn remove(tree: &Path) -> io::Result<()> {
    match fs::remove_dir_all(tree) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Debian has the text of the Apache licence in a file of its own.
fn copyright(root: &Path) -> io::Result<String> {
    let mit = fs::read_to_string(root.join("LICENSE-MIT"))?;
    let paragraph = |line: &str| match line.trim() {
        "" => " .\n".to_owned(),
        line => format!(" {line}\n"),
    };
    let mit: String = mit.trim().lines().map(paragraph).collect();
    let source = project::value("repository");
    Ok(format!(
        "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: rocinante
Source: {source}

Files: *
Copyright: the Rocinante authors
License: Expat or Apache-2.0

License: Expat
{mit}
License: Apache-2.0
 Licensed under the Apache License, Version 2.0. Its text is on Debian systems
 in /usr/share/common-licenses/Apache-2.0.
"
    ))
}

/// The form that Debian's tools read; what changed is in the other file.
fn debian_changelog() -> String {
    let maintainer = maintainer();
    format!(
        "\
rocinante ({VERSION}) unstable; urgency=medium

  * What changed is in CHANGELOG.md.gz.

 -- {maintainer}  Thu, 01 Jan 2026 00:00:00 +0000
"
    )
}

/// As Debian wants documents: small, and the same bytes every time.
fn compress(file: &Path) -> io::Result<()> {
    call(
        Command::new("gzip")
            .args(["--best", "--no-name", "--force"])
            .arg(file),
    )
    .map(drop)
    .map_err(io::Error::other)
}

/// Takes away what only debuggers read.
fn strip(prefix: &Path) -> Result<(), String> {
    strip_files(objects(prefix))
}

fn strip_files(files: impl IntoIterator<Item = PathBuf>) -> Result<(), String> {
    let mut command = Command::new("strip");
    command.arg("--strip-unneeded").args(files);
    call(&mut command).map(drop)
}

fn objects(prefix: &Path) -> [PathBuf; 3] {
    let libraries = prefix.join("lib/rocinante");
    [
        prefix.join("bin/roci"),
        libraries.join("libibverbs.so.1"),
        libraries.join("librocinante_preload.so"),
    ]
}

fn control(tree: &Path, architecture: &str) -> Result<String, String> {
    let mut minor = 0;
    let mut size = 0;
    let mut packages = Vec::new();
    for object in objects(&tree.join("usr")) {
        let bytes = fs::read(&object).map_err(|error| error.to_string())?;
        size += bytes.len().div_ceil(1024);
        minor = minor.max(newest_glibc(&bytes));
        for library in needed_libraries(&object)? {
            packages.push(package_of(&library)?);
        }
    }
    let depends = dependencies(packages, minor);
    let maintainer = maintainer();
    let homepage = project::value("homepage");
    Ok(format!(
        "\
Package: rocinante
Version: {VERSION}
Architecture: {architecture}
Maintainer: {maintainer}
Depends: {depends}
Installed-Size: {size}
Section: net
Priority: optional
Homepage: {homepage}
Description: RDMA for any Linux machine, in user space
 A complete RoCEv2 device in user space, without RDMA hardware, kernel module,
 root or daemon. The command `roci run` lets unmodified RDMA programs use it.
 .
 The libraries are in a directory of their own: those of the distribution stay
 as they are, and are used by whatever is not run by roci.
"
    ))
}

/// The libraries that a program or library asks the loader for.
fn needed_libraries(object: &Path) -> Result<Vec<String>, String> {
    let table = call(Command::new("objdump").arg("--private-headers").arg(object))?;
    let names = table.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("NEEDED")).then(|| words.next())?
    });
    Ok(names.map(str::to_owned).collect())
}

fn package_of(library: &str) -> Result<&'static str, String> {
    let known = LIBRARIES.iter().find(|(name, _)| library.starts_with(name));
    let package = known.map(|(_, package)| *package);
    package.ok_or_else(|| format!("which package has {library}? Add it to LIBRARIES"))
}

/// Each package once, and the C library in the version that is needed.
fn dependencies(mut packages: Vec<&str>, minor: u32) -> String {
    packages.sort_unstable();
    packages.dedup();
    let words = packages.iter().map(|package| match *package {
        "libc6" => format!("libc6 (>= 2.{minor})"),
        other => other.to_owned(),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The minor number of the newest version that a program or library asks for.
fn newest_glibc(bytes: &[u8]) -> u32 {
    let minor = |window: &[u8]| {
        let digits = window.strip_prefix(GLIBC)?;
        let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
        std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
    };
    let windows = bytes.windows(GLIBC.len() + 4);
    windows.filter_map(minor).max().unwrap_or(0)
}

fn call(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{name} can't be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name} failed: {}", complaint.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of what is built beside this test, if all of it is.
    #[test]
    fn lintian_finds_no_errors() {
        let test = std::env::current_exe().expect("a test knows where it is");
        let built = test.ancestors().nth(2).expect("target/debug");
        let files = ["roci", "librocinante_c.so", "librocinante_preload.so"];
        if !files.iter().all(|file| built.join(file).exists()) {
            return println!("left out: needs `cargo build`");
        }
        if call(Command::new("lintian").arg("--version")).is_err() {
            return println!("left out: needs lintian");
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let directory = built.join("lintian");
        let built = Built::in_directory(built);
        let package = make(&root, &built, &directory, "gzip").expect("a package");
        assert_eq!(package.parent(), Some(&*directory), "not in what is packed");
        call(
            Command::new("lintian")
                .args(["--fail-on", "error"])
                .arg(package),
        )
        .expect("lintian finds no errors");
    }

    #[test]
    fn dependencies_are_what_the_loader_is_asked_for() {
        let libraries = [
            "libgcc_s.so.1",
            "libpthread.so.0",
            "libdl.so.2",
            "libc.so.6",
            "ld-linux-x86-64.so.2",
        ];
        let packages = libraries.map(|name| package_of(name).expect("known"));
        let depends = dependencies(packages.into(), 34);
        assert_eq!(depends, "libc6 (>= 2.34), libgcc-s1");
        assert!(package_of("libnl-3.so.200").is_err());
    }

    #[test]
    fn the_newest_version_is_found() {
        let bytes = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0memcpy\0";
        assert_eq!(newest_glibc(bytes), 34);
        assert_eq!(newest_glibc(b"no library"), 0);
    }
}

//! `cargo xtask package`: what `install` puts in place, as a Debian package.
//!
//! The libraries stay in a folder of their own, where only `roci run` looks: the distribution's
//! libibverbs is neither replaced nor shadowed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::install;

/// Below the folder of all builds.
const FOLDER: &str = "debian";

const MAINTAINER: &str = "The Rocinante developers <rocinante@example.invalid>";

/// How the loader calls the versions of the C library that a program asks for.
const GLIBC: &[u8] = b"GLIBC_2.";

/// Builds everything for release, and the package of it.
pub(crate) fn package(root: &Path) -> Result<(), String> {
    let built = install::build(root)?;
    let place = built.with_file_name(FOLDER);
    let package = make(root, &built, &place, "xz")?;
    println!("the package is {}", package.display());
    Ok(())
}

/// The package of what was built in that folder, made below the place.
pub(crate) fn make(
    root: &Path,
    built: &Path,
    place: &Path,
    compression: &str,
) -> Result<PathBuf, String> {
    let tree = place.join("tree");
    fill(root, built, &tree)
        .map_err(|error| format!("{} can't be filled: {error}", tree.display()))?;
    strip(&tree)?;
    let architecture = call(Command::new("dpkg").arg("--print-architecture"))?;
    let control = control(&tree, architecture.trim()).map_err(|error| error.to_string())?;
    let folder = tree.join("DEBIAN");
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join("control"), control))
        .map_err(|error| format!("{} can't be written: {error}", folder.display()))?;
    let version = env!("CARGO_PKG_VERSION");
    let package = place.join(format!("rocinante_{version}_{}.deb", architecture.trim()));
    call(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Z", compression, "--build"])
            .args([&tree, &package]),
    )?;
    Ok(package)
}

fn fill(root: &Path, built: &Path, tree: &Path) -> io::Result<()> {
    match fs::remove_dir_all(tree) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    install::copy_everything(built, &tree.join("usr"))?;
    let documents = tree.join("usr/share/doc/rocinante");
    fs::create_dir_all(&documents)?;
    fs::write(documents.join("copyright"), copyright(root)?)?;
    fs::copy(root.join("CHANGELOG.md"), documents.join("CHANGELOG.md"))?;
    compress(&documents.join("CHANGELOG.md"))?;
    fs::write(documents.join("changelog"), debian_changelog())?;
    compress(&documents.join("changelog"))?;
    let shell = tree.join("usr/share/zsh");
    // Debian's zsh leaves the other folder to the administrator.
    fs::rename(
        shell.join("site-functions"),
        shell.join("vendor-completions"),
    )?;
    for page in fs::read_dir(tree.join("usr/share/man/man1"))? {
        compress(&page?.path())?;
    }
    Ok(())
}

/// Debian has the text of the Apache licence in a file of its own.
fn copyright(root: &Path) -> io::Result<String> {
    let mit = fs::read_to_string(root.join("LICENSE-MIT"))?;
    let paragraph = |line: &str| match line.trim() {
        "" => " .\n".to_owned(),
        line => format!(" {line}\n"),
    };
    let mit: String = mit.trim().lines().map(paragraph).collect();
    Ok(format!(
        "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: rocinante

Files: *
Copyright: The Rocinante developers
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
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "\
rocinante ({version}) unstable; urgency=medium

  * What changed is in CHANGELOG.md.gz.

 -- {MAINTAINER}  Thu, 01 Jan 2026 00:00:00 +0000
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
fn strip(tree: &Path) -> Result<(), String> {
    let mut command = Command::new("strip");
    command.arg("--strip-unneeded").args(objects(tree));
    call(&mut command).map(drop)
}

fn objects(tree: &Path) -> [PathBuf; 3] {
    let libraries = tree.join("usr/lib/rocinante");
    [
        tree.join("usr/bin/roci"),
        libraries.join("libibverbs.so.1"),
        libraries.join("librocinante_preload.so"),
    ]
}

fn control(tree: &Path, architecture: &str) -> io::Result<String> {
    let mut minor = 0;
    let mut size = 0;
    for object in objects(tree) {
        let bytes = fs::read(object)?;
        size += bytes.len().div_ceil(1024);
        minor = minor.max(newest_glibc(&bytes));
    }
    Ok(format!(
        "\
Package: rocinante
Version: {}
Architecture: {architecture}
Maintainer: {MAINTAINER}
Depends: libc6 (>= 2.{minor}), libgcc-s1
Installed-Size: {size}
Section: net
Priority: optional
Description: RDMA for any Linux machine, in user space
 A complete RoCEv2 device in user space, without RDMA hardware, kernel module,
 root or daemon. The command `roci run` lets unmodified RDMA programs use it.
 .
 The libraries are in a folder of their own: those of the distribution stay
 as they are, and are used by whatever is not run by roci.
",
        env!("CARGO_PKG_VERSION")
    ))
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
        let place = built.join("lintian");
        let package = make(&root, built, &place, "gzip").expect("a package can be made");
        call(
            Command::new("lintian")
                .args(["--fail-on", "error"])
                .arg(package),
        )
        .expect("lintian finds no errors");
    }

    #[test]
    fn the_newest_version_is_found() {
        let bytes = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0memcpy\0";
        assert_eq!(newest_glibc(bytes), 34);
        assert_eq!(newest_glibc(b"no library"), 0);
    }
}

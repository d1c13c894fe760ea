//! A wheel for Python's installers: what the archive has, and a package for programs and tests in Python.
//!
//! A wheel is a zip file: what is below `NAME.data/scripts` goes to the directory of programs, what is below `NAME.data/data` to
//! the same places of the environment as to those of a prefix, and the rest to Python's packages.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::install::Built;
use xtask::project;

use super::tarball::{build, copy_documents, copy_stripped};
use super::{DIRECTORY, call, old_glibc, remove};

/// Makes the zip file, which Python can do by itself.
const PACKER: &str = include_str!("wheel.py");

/// The Python package, below the workspace.
const SOURCES: &str = "python";
const PACKAGE: &str = "rocinante";

/// The C library that the libraries for musl are linked with: symbols of musl have no versions, and any 1.2 has all of them.
const MUSL: &str = "musllinux_1_2";

const ENTRY_POINTS: &str = "[pytest11]\nrocinante = rocinante.pytest_plugin\n";

/// Builds everything for release, and the wheel of it.
pub(super) fn build_and_make(root: &Path) -> Result<PathBuf, String> {
    if let Some(missing) = missing() {
        return Err(format!("a wheel can't be made: {missing}"));
    }
    let built = build(root)?;
    make(root, &built, &built.libraries.with_file_name(DIRECTORY))
}

/// What is missing here to make a wheel, if something is.
pub(crate) fn missing() -> Option<String> {
    let asked = call(Command::new("python3").arg("--version"));
    asked.err().map(|error| format!("no Python ({error})"))
}

/// The wheel of what was built, made below `directory`.
pub(crate) fn make(root: &Path, built: &Built, directory: &Path) -> Result<PathBuf, String> {
    let tree = directory.join("wheel");
    let failed = |error: io::Error| format!("{} can't be filled: {error}", tree.display());
    remove(&tree).map_err(failed)?;
    let version = version()?;
    let name = format!("{PACKAGE}-{version}");
    let data = tree.join(format!("{name}.data"));
    let minor = copy_stripped(built, &data.join("data"))?;
    let tags = tags(minor, built.musl.is_some());
    arrange(&data)
        .and_then(|()| copy_sources(&root.join(SOURCES).join(PACKAGE), &tree.join(PACKAGE)))
        .and_then(|()| {
            let information = tree.join(format!("{name}.dist-info"));
            copy_documents(root, &information.join("licenses"))?;
            let description = fs::read_to_string(root.join(SOURCES).join("README.md"))?;
            fs::write(
                information.join("METADATA"),
                metadata(version, &description),
            )?;
            fs::write(information.join("WHEEL"), wheel_file(&tags))?;
            fs::write(information.join("entry_points.txt"), ENTRY_POINTS)
        })
        .map_err(failed)?;
    let wheel = directory.join(format!("{name}-py3-none-{}.whl", tags.join(".")));
    pack(&tree, &wheel)?;
    Ok(wheel)
}

fn pack(tree: &Path, wheel: &Path) -> Result<(), String> {
    let packer = ["-c", PACKER];
    call(Command::new("python3").args(packer).args([tree, wheel])).map(drop)
}

/// Python writes the versions of releases as we do, and others in another way.
fn version() -> Result<&'static str, String> {
    let version = project::value("version");
    let is_release = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    if version.split('.').all(is_release) {
        return Ok(version);
    }
    Err(format!("Python does not write a version as {version}"))
}

/// The systems whose programs can load the libraries. The command is static.
fn tags(minor: u32, musl: bool) -> Vec<String> {
    let architecture = env::consts::ARCH;
    let minor = minor.max(old_glibc::OLDEST);
    let mut tags = vec![format!("manylinux_2_{minor}_{architecture}")];
    tags.extend(musl.then(|| format!("{MUSL}_{architecture}")));
    tags
}

/// Puts the command where installers look for programs, and takes away links, which a wheel can't hold: `roci` makes them when
/// they are missing.
fn arrange(data: &Path) -> io::Result<()> {
    fs::rename(data.join("data/bin"), data.join("scripts"))?;
    let libraries = data.join("data/lib/rocinante");
    for directory in [libraries.join("musl"), libraries] {
        if !directory.is_dir() {
            continue;
        }
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_symlink() {
                fs::remove_file(path)?;
            }
        }
    }
    Ok(())
}

/// Leaves out what Python has compiled there.
fn copy_sources(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if let (true, Some(name)) = (path.is_file(), path.file_name()) {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

fn metadata(version: &str, description: &str) -> String {
    let summary = project::value("description");
    let license = project::value("license");
    let maintainer = project::maintainer();
    let [repository, homepage, documentation] =
        ["repository", "homepage", "documentation"].map(project::value);
    format!(
        "\
Metadata-Version: 2.4
Name: {PACKAGE}
Version: {version}
Summary: {summary}
Maintainer-email: {maintainer}
License-Expression: {license}
License-File: LICENSE-MIT
License-File: LICENSE-APACHE
Project-URL: Homepage, {homepage}
Project-URL: Documentation, {documentation}
Project-URL: Source, {repository}
Keywords: rdma,roce,infiniband,verbs,testing
Classifier: Environment :: Console
Classifier: Framework :: Pytest
Classifier: Intended Audience :: Developers
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Software Development :: Testing
Classifier: Topic :: System :: Networking
Classifier: Typing :: Typed
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{description}"
    )
}

fn wheel_file(tags: &[String]) -> String {
    let version = project::value("version");
    let mut text = format!(
        "Wheel-Version: 1.0\nGenerator: cargo xtask package ({version})\nRoot-Is-Purelib: false\n"
    );
    for tag in tags {
        text += &format!("Tag: py3-none-{tag}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use xtask::scratch::Scratch;

    use super::*;

    #[test]
    fn the_tag_promises_no_older_glibc_than_the_libraries_need() {
        let architecture = env::consts::ARCH;
        let usual = [format!("manylinux_2_28_{architecture}")];
        assert_eq!(tags(18, false), usual);
        assert_eq!(tags(28, false), usual);
        let newer = format!("manylinux_2_34_{architecture}");
        assert_eq!(tags(34, true), [newer, format!("{MUSL}_{architecture}")]);
    }

    #[test]
    fn links_are_left_out_and_the_command_is_a_script() {
        let scratch = Scratch::new("wheel-tree").expect("a directory");
        let data = &scratch.0;
        let libraries = data.join("data/lib/rocinante");
        fs::create_dir_all(&libraries).expect("a directory");
        fs::create_dir_all(data.join("data/bin")).expect("a directory");
        fs::write(data.join("data/bin/roci"), "").expect("written");
        fs::write(libraries.join("libibverbs.so.1"), "").expect("written");
        symlink("libibverbs.so.1", libraries.join("librdmacm.so.1")).expect("a link");
        arrange(data).expect("arranged");
        assert!(data.join("scripts/roci").is_file());
        let left: Vec<_> = fs::read_dir(&libraries).expect("a directory").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    /// Python's own reader of zip files checks the sums of what it unpacks.
    #[test]
    fn a_packed_directory_lists_its_files_and_is_the_same_every_time() {
        if let Some(missing) = missing() {
            return println!("left out: {missing}");
        }
        let scratch = Scratch::new("wheel-pack").expect("a directory");
        let place = |name: &str| scratch.0.join(name);
        let tree = place("tree");
        for (name, text) in [("a.dist-info/WHEEL", "w"), ("p/__init__.py", "x = 1\n")] {
            let path = tree.join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, text).expect("written");
        }
        for wheel in ["a.whl", "b.whl"] {
            pack(&tree, &place(wheel)).expect("packed");
        }
        let read = |name: &str| fs::read(place(name)).expect("a file");
        assert_eq!(read("a.whl"), read("b.whl"));
        let unpacked = place("unpacked");
        let unpack = ["-m", "zipfile", "--extract"];
        let mut python = Command::new("python3");
        call(python.args(unpack).args([place("a.whl"), unpacked.clone()])).expect("unpacked");
        let record = fs::read_to_string(unpacked.join("a.dist-info/RECORD")).expect("a file");
        let lines: Vec<_> = record.lines().collect();
        // `printf 'x = 1\n' | sha256sum | xxd -r -p | base64`, as URLs have it.
        let first = "p/__init__.py,sha256=nia_NpkRxFwkPGhBR7I_yeHc_PJX0pmhxjIBam_NM_Q,6";
        assert_eq!(lines[0], first);
        assert!(lines[1].starts_with("a.dist-info/WHEEL,sha256="));
        assert_eq!(lines[2..], ["a.dist-info/RECORD,,"]);
    }
}

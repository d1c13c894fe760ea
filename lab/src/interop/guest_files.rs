//! The files that are added to the virtual machine: scripts, C programs, and the libraries of a benchmark.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build_directory::BuildDirectory;
use super::image::{Image, failed, fresh_directory, run};
use super::release::Release;

/// Scripts, and their paths in the machine.
const SCRIPTS: [(&str, &str); 6] = [
    ("init.sh", "init"),
    ("command-loop.sh", "usr/bin/command-loop"),
    ("await-listener.sh", "usr/bin/await-listener"),
    ("device-files.sh", "usr/bin/device-files"),
    ("rdma-output.sh", "usr/bin/rdma-output"),
    ("rdma-objects.sh", "usr/bin/rdma-objects"),
];

/// The tests of our C libraries, which also run on rdma-core's.
const LIBRARY_TESTS: &str = "crates/capi/tests/programs";

/// The name of such a test on both sides. Without a prefix it could be the name of another program.
pub(crate) fn library_test(name: &str) -> String {
    format!("capi-{name}")
}

/// A file for the machine.
pub(crate) struct Extra {
    pub(crate) file: PathBuf,
    pub(crate) path: &'static str,
}

/// The directory of C programs that are compiled here, for both sides.
pub(crate) fn programs(build_directory: &BuildDirectory) -> PathBuf {
    build_directory.file("programs")
}

/// Collects these files in a directory that becomes part of the machine's file system.
pub(crate) fn lay_out(
    root: &Path,
    build_directory: &BuildDirectory,
    image: &Image,
    extras: &[Extra],
) -> Result<PathBuf, String> {
    let overlay = build_directory.file("overlay");
    fresh_directory(&overlay)?;
    for (script, target) in SCRIPTS {
        let script = root.join("lab/guest").join(script);
        put(&script, &overlay.join(target))?;
    }
    fresh_directory(&programs(build_directory))?;
    compile_all(root, build_directory, image)?;
    for program in listed(&programs(build_directory), "")? {
        let name = program.file_name().expect("a file has a name");
        put(&program, &overlay.join("usr/bin").join(name))?;
    }
    for extra in extras {
        put(&extra.file, &overlay.join(extra.path))?;
    }
    Ok(overlay)
}

fn compile_all(root: &Path, build_directory: &BuildDirectory, image: &Image) -> Result<(), String> {
    let ours = root.join("lab/guest");
    let probe = listed(&ours.join("probe"), "c")?;
    compile(build_directory, image, "probe", &probe)?;
    compile(
        build_directory,
        image,
        "loopback-bench",
        &[ours.join("loopback-bench.c")],
    )?;
    for source in listed(&root.join(LIBRARY_TESTS), "c")? {
        let name = source.file_stem().unwrap_or_default().to_string_lossy();
        let name = library_test(&name);
        compile(build_directory, image, &name, std::slice::from_ref(&source))?;
    }
    Ok(())
}

/// Definitions for what the headers of this release have and older ones do not.
fn definitions(release: Release) -> &'static [&'static str] {
    match release {
        Release::Bookworm => &[],
        Release::Trixie => &["-DHAS_FLUSH"],
    }
}

/// Compiles a program with the headers and libraries of the kernel's side.
fn compile(
    build_directory: &BuildDirectory,
    image: &Image,
    name: &str,
    sources: &[PathBuf],
) -> Result<(), String> {
    run(Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Werror", "-pthread"])
        .args(definitions(build_directory.debian))
        .arg("-o")
        .arg(programs(build_directory).join(name))
        .args(sources)
        .arg("-I")
        .arg(build_directory.file("headers/usr/include"))
        .arg("-L")
        .arg(image.libraries())
        .args(["-l:libibverbs.so.1", "-l:librdmacm.so.1"])
        // The libraries' own libraries are found at run time.
        .arg("-Wl,--allow-shlib-undefined"))
}

/// The files of a directory with this extension, or all if it is empty, sorted by name.
pub(crate) fn listed(directory: &Path, ending: &str) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(directory).map_err(failed("a directory of programs"))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<_> = paths
        .filter(|path| ending.is_empty() || path.extension().is_some_and(|it| it == ending))
        .collect();
    paths.sort();
    Ok(paths)
}

pub(crate) fn put(from: &Path, to: &Path) -> Result<(), String> {
    let directory = to.parent().expect("a file is in a directory");
    fs::create_dir_all(directory).map_err(failed("a directory"))?;
    fs::copy(from, to).map_err(|error| format!("{}: {error}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).map_err(failed("a program"))
}

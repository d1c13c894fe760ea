//! The newest rdma-core in Debian, with the libraries and the Python that it needs, in a directory.
//!
//! Its packages are unpacked and not configured, which is enough for the interpreter.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::command::{call, program_beside_us};

use crate::interop::Apt;

/// Where Debian's packages are before they are part of a release.
const SUITE: &str = "sid";

const PACKAGE: &str = "python3-pyverbs";
const PACKAGES: [&str; 4] = [PACKAGE, "python3-minimal", "iproute2", "coreutils"];

/// What is in `/usr` and also outside of it.
const ALSO_IN_ROOT: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

/// An unpacked system.
pub(super) struct NewestRdmaCore {
    pub(super) system: PathBuf,
    /// The version of rdma-core, such as `65.0`.
    pub(super) version: String,
}

impl NewestRdmaCore {
    /// The system of an earlier run, or else what Debian has now.
    pub(super) fn fetch() -> Result<Self, String> {
        let directory = program_beside_us("../conformance")?;
        let known = directory.join("version");
        let system = directory.join("system");
        if let Ok(version) = fs::read_to_string(&known) {
            return Ok(Self { system, version });
        }
        println!("fetching {PACKAGE} of Debian {SUITE}");
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&system).map_err(failed)?;
        let directory = fs::canonicalize(&directory).map_err(failed)?;
        let apt = Apt::of_suite(SUITE, &directory)?;
        let words = [
            "--yes",
            "--no-install-recommends",
            "--download-only",
            "install",
        ];
        apt.get(&[&words[..], &PACKAGES].concat(), &directory)?;
        let archives = archives(&directory.join("cache/archives"))?;
        let version = (archives.iter().find_map(|path| version(path)))
            .ok_or_else(|| format!("apt-get fetched no {PACKAGE}"))?;
        unpack(&archives, &system)?;
        // Written last: without it the system is not complete.
        fs::write(&known, &version).map_err(failed)?;
        Ok(Self { system, version })
    }
}

fn archives(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries =
        fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths
        .filter(|path| path.extension().is_some_and(|it| it == "deb"))
        .collect())
}

fn unpack(archives: &[PathBuf], system: &Path) -> Result<(), String> {
    for name in ALSO_IN_ROOT {
        let target = Path::new("usr").join(name);
        let made = fs::create_dir_all(system.join(&target))
            .and_then(|()| symlink(&target, system.join(name)));
        made.map_err(|error| format!("{}: {error}", system.display()))?;
    }
    for archive in archives {
        let mut unpacked = Command::new("sh");
        let script = "dpkg-deb --fsys-tarfile \"$1\" | tar -x --keep-directory-symlink -C \"$2\"";
        call(
            unpacked
                .args(["-c", script, "sh"])
                .args([archive.as_path(), system]),
        )?;
    }
    Ok(())
}

/// The version in the name of the package's file, without Debian's own number.
fn version(archive: &Path) -> Option<String> {
    let name = archive.file_name()?.to_str()?;
    let rest = name.strip_prefix(PACKAGE)?.strip_prefix('_')?;
    let upstream = rest.split(['-', '_']).next()?;
    Some(upstream.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_upstream() {
        let version = |name: &str| version(Path::new(name));
        let found = version("/a/python3-pyverbs_65.0-1.1_amd64.deb");
        assert_eq!(found.as_deref(), Some("65.0"));
        assert_eq!(version("/a/python3_3.14.7-3_amd64.deb"), None);
    }
}

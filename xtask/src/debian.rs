//! Packages of the distribution: which are installed, and how to install them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

/// A package's name, and a file that exists if it is installed.
pub type Package = (&'static str, &'static str);

/// Whether this process may install packages and create namespaces.
pub fn are_we_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}

/// Why these packages can't be used here; `None` if they can.
pub fn missing(packages: &[Package]) -> Option<String> {
    let absent = absent(packages);
    if absent.is_empty() || (are_we_root() && has_apt()) {
        return None;
    }
    let install = format!("apt-get install {}", absent.join(" "));
    Some(format!("programs are not installed (`{install}` as root)"))
}

/// Installs the packages that are missing.
pub fn install(packages: &[Package]) -> Result<(), String> {
    let absent = absent(packages);
    if absent.is_empty() {
        return Ok(());
    }
    if let Some(missing) = missing(packages) {
        return Err(missing);
    }
    let install = [
        &["install", "--yes", "--no-install-recommends"],
        &absent[..],
    ]
    .concat();
    if apt_get(&install).is_ok() {
        return Ok(());
    }
    // The lists of a new machine are empty.
    apt_get(&["update"])?;
    apt_get(&install)
}

/// Runs `apt-get`, after any other one that is running.
pub fn apt_get(words: &[&str]) -> Result<(), String> {
    println!("$ apt-get {}", words.join(" "));
    let status = Command::new("apt-get")
        .args(["-q", "-o", "DPkg::Lock::Timeout=300"])
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("`apt-get {}` failed", words.join(" "))),
        Err(error) => Err(format!("apt-get can't be started: {error}")),
    }
}

fn absent(packages: &[Package]) -> Vec<&'static str> {
    let absent = packages
        .iter()
        .filter(|(_, file)| fs::metadata(file).is_err());
    absent.map(|(package, _)| *package).collect()
}

fn has_apt() -> bool {
    fs::metadata("/usr/bin/apt-get").is_ok()
}

//! What this machine must have, so that a kernel can run beside us.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::namespace;

/// A program that is needed, and the Debian package that has it.
struct Tool {
    program: &'static str,
    package: &'static str,
}

const TOOLS: [Tool; 7] = [
    tool("qemu-system-x86_64", "qemu-system-x86"),
    tool("cpio", "cpio"),
    tool("depmod", "kmod"),
    tool("ip", "iproute2"),
    tool("unshare", "util-linux"),
    tool("tar", "tar"),
    tool("cc", "gcc"),
];

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package }
}

/// Where administrators' programs are, which an ordinary user's PATH leaves out.
const MORE_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Why no kernel can be started here; nothing if it can.
pub(crate) fn missing() -> Option<String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("the kernel to talk to is Debian's for x86-64".into());
    }
    if !is_installed("apt-get") || !is_installed("dpkg-deb") {
        return Some("the kernel comes from Debian, by apt-get, which is not here".into());
    }
    let packages = packages_to_install();
    if !packages.is_empty() {
        let packages = packages.join(" ");
        return Some(format!(
            "programs are missing (`apt-get install -y {packages}`)"
        ));
    }
    (!namespace::works()).then(|| {
        "this machine allows no network of our own with a tap in it: it takes root or user \
         namespaces, and /dev/net/tun"
            .into()
    })
}

/// Installs what is missing: for machines that only check changes.
pub(crate) fn install() -> Result<(), String> {
    let packages = packages_to_install();
    if packages.is_empty() {
        return Ok(());
    }
    update_lists()?;
    let words = ["install", "-y", "--no-install-recommends"];
    apt_get(&[&words, packages.as_slice()].concat())
}

/// Lets apt learn what there is.
pub(crate) fn update_lists() -> Result<(), String> {
    apt_get(&["update"])
}

/// Whether packages may be installed without asking: on a machine for checks, and as root.
pub(crate) fn may_install() -> bool {
    env::var_os("CI").is_some() && is_root() && is_installed("apt-get")
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// PATH with the administrators' folders behind it.
pub(crate) fn search_path() -> String {
    let path = env::var("PATH").unwrap_or_default();
    format!("{path}:{}", MORE_FOLDERS.join(":"))
}

fn packages_to_install() -> Vec<&'static str> {
    let missing = TOOLS.iter().filter(|tool| !is_installed(tool.program));
    let mut packages: Vec<_> = missing.map(|tool| tool.package).collect();
    packages.dedup();
    packages
}

fn is_installed(program: &str) -> bool {
    let path = search_path();
    let mut folders = path.split(':').map(Path::new);
    folders.any(|folder| folder.join(program).is_file())
}

fn apt_get(words: &[&str]) -> Result<(), String> {
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

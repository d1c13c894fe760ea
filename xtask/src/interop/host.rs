//! What this machine must have, so that a kernel can run beside us.

use std::env;
use std::path::Path;

use super::backend::Backend;
use super::namespace;
use crate::debian;

/// A program that is needed, and the Debian package that has it.
struct Tool {
    program: &'static str,
    package: &'static str,
}

const TOOLS: [Tool; 6] = [
    tool("cpio", "cpio"),
    tool("depmod", "kmod"),
    tool("ip", "iproute2"),
    tool("unshare", "util-linux"),
    tool("tar", "tar"),
    tool("cc", "gcc"),
];

const TO_EMULATE: [Tool; 1] = [tool("qemu-system-x86_64", "qemu-system-x86")];

/// To build a kernel, and to see what it sends.
const TO_BUILD: [Tool; 7] = [
    tool("bc", "bc"),
    tool("bison", "bison"),
    tool("flex", "flex"),
    tool("make", "make"),
    tool("strip", "binutils"),
    tool("tcpdump", "tcpdump"),
    tool("xz", "xz-utils"),
];

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package }
}

/// Where administrators' programs are, which an ordinary user's PATH leaves out.
const MORE_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Why no kernel can be started here; nothing if it can, or if what is missing can be installed.
pub(crate) fn missing(backend: Backend) -> Option<String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("the kernel to talk to is Debian's for x86-64".into());
    }
    if !is_installed("apt-get") || !is_installed("dpkg-deb") {
        return Some("the kernel comes from Debian, by apt-get, which is not here".into());
    }
    let packages = packages_to_install(backend);
    if !packages.is_empty() && !may_install() {
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

/// Installs what is missing.
pub(crate) fn install(backend: Backend) -> Result<(), String> {
    let packages = packages_to_install(backend);
    if packages.is_empty() {
        return Ok(());
    }
    let words = ["install", "-y", "--no-install-recommends"];
    let words = [&words, packages.as_slice()].concat();
    if debian::apt_get(&words).is_ok() {
        return Ok(());
    }
    // A new machine may not know the packages yet.
    update_lists()?;
    debian::apt_get(&words)
}

/// Lets apt learn what there is.
pub(crate) fn update_lists() -> Result<(), String> {
    debian::apt_get(&["update"])
}

/// Whether packages can be installed.
pub(crate) fn may_install() -> bool {
    debian::are_we_root() && is_installed("apt-get")
}

/// PATH with the administrators' directories behind it.
pub(crate) fn search_path() -> String {
    let path = env::var("PATH").unwrap_or_default();
    format!("{path}:{}", MORE_FOLDERS.join(":"))
}

fn packages_to_install(backend: Backend) -> Vec<&'static str> {
    let more: &[Tool] = match backend {
        Backend::Qemu => &TO_EMULATE,
        Backend::Uml => &TO_BUILD,
    };
    let tools = TOOLS.iter().chain(more);
    let missing = tools.filter(|tool| !is_installed(tool.program));
    let mut packages: Vec<_> = missing.map(|tool| tool.package).collect();
    packages.dedup();
    packages
}

fn is_installed(program: &str) -> bool {
    let path = search_path();
    let mut folders = path.split(':').map(Path::new);
    folders.any(|folder| folder.join(program).is_file())
}

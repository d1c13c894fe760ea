//! What this machine needs to run a kernel in a virtual machine.

use xtask::debian;

use super::backend::Backend;
use super::namespace;
use super::system_programs::{is_installed, may_install, update_lists};

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

/// The tools that build a kernel and capture its packets.
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

/// Why no kernel can be started here; `None` if it can, or if what is missing can be installed.
pub(crate) fn missing(backend: Backend) -> Option<String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("the kernel is Debian's for x86-64".into());
    }
    if !is_installed("apt-get") || !is_installed("dpkg-deb") {
        return Some(
            "the kernel is a package of Debian, and apt-get or dpkg-deb is not installed".into(),
        );
    }
    let packages = packages_to_install(backend);
    if !packages.is_empty() && !may_install() {
        let packages = packages.join(" ");
        return Some(format!(
            "programs are missing (`apt-get install -y {packages}`)"
        ));
    }
    (!namespace::works()).then(|| {
        "this machine allows no network namespace with a tap device: that needs root or user \
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
    // The lists of a new machine are empty.
    update_lists()?;
    debian::apt_get(&words)
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

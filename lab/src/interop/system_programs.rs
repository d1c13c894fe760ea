//! This machine: its programs, and whether packages can be installed.

use std::env;
use std::path::Path;

use xtask::debian;

/// The directories of administrators' programs, which an ordinary user's PATH does not contain.
const ADMINISTRATOR_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Updates apt's lists of packages.
pub(crate) fn update_lists() -> Result<(), String> {
    debian::apt_get(&["update"])
}

/// Whether packages can be installed.
pub(crate) fn may_install() -> bool {
    debian::are_we_root() && is_installed("apt-get")
}

/// PATH, followed by the administrators' directories.
pub(crate) fn search_path() -> String {
    let path = env::var("PATH").unwrap_or_default();
    format!("{path}:{}", ADMINISTRATOR_DIRECTORIES.join(":"))
}

/// Whether this machine has a program.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = search_path();
    let mut directories = path.split(':').map(Path::new);
    directories.any(|directory| directory.join(program).is_file())
}

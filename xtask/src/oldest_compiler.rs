//! The oldest compiler that `Cargo.toml` declares: the libraries and the command compile with it.

use std::path::Path;
use std::process::{Command, Stdio};

use xtask::command::{cargo, has_rustup};

/// What users compile: the published crates (dependencies of the two that are named first) and the C libraries.
const PACKAGES: &str = "-p rocinante -p roci -p capi -p preload --all-features";

/// Says what is left out because this machine has no rustup; nothing if it has.
pub(crate) fn missing() -> Option<String> {
    (!has_rustup()).then(|| "rustup, which selects an older compiler, is not installed".into())
}

/// Compiles with the declared version. A version that is not there and can't be installed is left out.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let version = declared_version(root)?;
    match provide(&version) {
        Some(toolchain) => cargo(root, &format!("+{toolchain} check {PACKAGES}")),
        None => {
            println!("left out: Rust {version} can't be installed (`{INSTALL} {version}`)");
            Ok(())
        }
    }
}

/// `rust-version` of the workspace.
fn declared_version(root: &Path) -> Result<String, String> {
    let manifest = root.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest)
        .map_err(|error| format!("{} can't be read: {error}", manifest.display()))?;
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "rust-version").then(|| value.trim().trim_matches('"').to_owned())
    });
    value.ok_or_else(|| format!("{} has no rust-version", manifest.display()))
}

const INSTALL: &str = "rustup toolchain install --profile minimal";

/// The installed toolchain of this version, by either of its names; installs it if it is not there.
fn provide(version: &str) -> Option<String> {
    let names = [version.to_owned(), format!("{version}.0")];
    if let Some(name) = names.iter().find(|name| is_installed(name)) {
        return Some(name.clone());
    }
    println!("$ {INSTALL} {version}");
    let mut arguments: Vec<_> = INSTALL.split(' ').skip(1).collect();
    arguments.push(version);
    // What could not be installed is seen in the next line.
    rustup(&arguments);
    is_installed(version).then(|| version.to_owned())
}

fn is_installed(toolchain: &str) -> bool {
    rustup(&["run", toolchain, "rustc", "--version"])
}

fn rustup(arguments: &[&str]) -> bool {
    let status = Command::new("rustup")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contributing_names_the_declared_version() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let version = declared_version(&root).expect("the workspace declares a version");
        let page = std::fs::read_to_string(root.join("CONTRIBUTING.md")).expect("it is there");
        assert!(page.contains(&format!("is Rust {version}")), "{version}");
    }
}

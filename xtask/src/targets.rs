//! Other architectures, as far as their standard libraries are installed: the code compiles for them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::CommandLine;

/// What must compile: the C libraries with all that they stand on, and the command.
const PACKAGES: &str = "-p capi -p preload -p roci";

/// Signed and unsigned letters, small and large mutexes, and another C library.
const TARGETS: [&str; 3] = [
    "aarch64-unknown-linux-gnu",
    "riscv64gc-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
];

/// Says what is left out because no standard library is there; nothing if one is.
pub(crate) fn missing() -> Option<String> {
    let (installed, absent) = partition();
    installed.is_empty().then(|| how_to_install(&absent))
}

/// Compiles for every target that is there.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let (installed, absent) = partition();
    for target in installed {
        let command = CommandLine::cargo(&format!("check {PACKAGES} --target {target}"));
        println!("$ {command}");
        match command.run(root) {
            Ok(true) => {}
            Ok(false) => return Err(format!("`{command}` failed")),
            Err(error) => return Err(format!("`{command}` could not be started: {error}")),
        }
    }
    if !absent.is_empty() {
        println!("left out: {}", how_to_install(&absent));
    }
    Ok(())
}

fn how_to_install(absent: &[&str]) -> String {
    let names = absent.join(" ");
    format!("no standard library for {names} (`rustup target add {names}`)")
}

fn partition() -> (Vec<&'static str>, Vec<&'static str>) {
    let libraries = libraries();
    let is_installed = |target: &&str| libraries.join(target).join("lib").is_dir();
    TARGETS.into_iter().partition(is_installed)
}

/// Where the compiler keeps the standard libraries.
fn libraries() -> PathBuf {
    let asked = Command::new("rustc").args(["--print", "sysroot"]).output();
    let said = asked.map(|output| output.stdout).unwrap_or_default();
    let root = String::from_utf8_lossy(&said).trim().to_owned();
    Path::new(&root).join("lib/rustlib")
}

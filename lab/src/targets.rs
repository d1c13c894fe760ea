//! Other architectures and other C libraries: the code compiles for them, and runs on one.

mod aarch64;
mod console;
pub(crate) mod musl;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use clap::Args;
use xtask::command::{cargo, has_rustup};

use crate::package;

/// The packages that must compile: the C libraries, their dependencies and the command.
const PACKAGES: &str = "-p capi -p preload -p roci";

/// Targets with signed and unsigned `char`, small and large mutexes, and another C library.
const TARGETS: [&str; 3] = [
    "aarch64-unknown-linux-gnu",
    "riscv64gc-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
];

/// How much to do.
#[derive(Args)]
pub(crate) struct Options {
    /// Also run C programs with musl, and programs and tests on aarch64, in an emulated machine with Debian's kernel;
    /// this takes long
    #[arg(long)]
    full: bool,
}

/// What `cargo xtask targets` does.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    check(root)?;
    if options.full {
        musl::check(root)?;
        aarch64::check(root)?;
    }
    Ok(())
}

/// Says what is left out because no standard library is there and none can be installed; nothing if one is.
pub(crate) fn missing() -> Option<String> {
    let (installed, absent) = partition();
    (installed.is_empty() && !has_rustup()).then(|| how_to_install(&absent))
}

/// Compiles for every target that is there, or can be installed, and links for older systems.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    for target in partition().1 {
        // What could not be installed is named below.
        let _ = install(target);
    }
    let (installed, absent) = partition();
    for &target in &installed {
        cargo(root, &format!("check {PACKAGES} --target {target}"))?;
    }
    if !absent.is_empty() {
        println!("left out: {}", how_to_install(&absent));
    }
    package::check_old_glibc(root)
}

/// Installs its standard library if that is not there; says how if that is impossible.
pub(crate) fn provide(target: &str) -> Result<(), String> {
    if !is_installed(target) {
        // What could not be installed is seen below.
        let _ = install(target);
    }
    if is_installed(target) {
        Ok(())
    } else {
        Err(how_to_install(&[target]))
    }
}

fn install(target: &str) -> std::io::Result<ExitStatus> {
    println!("$ rustup target add {target}");
    Command::new("rustup")
        .args(["target", "add", target])
        .stdin(Stdio::null())
        .status()
}

fn how_to_install(absent: &[&str]) -> String {
    let names = absent.join(" ");
    format!("no standard library for {names} (`rustup target add {names}`)")
}

fn partition() -> (Vec<&'static str>, Vec<&'static str>) {
    TARGETS.into_iter().partition(|target| is_installed(target))
}

fn is_installed(target: &str) -> bool {
    libraries().join(target).join("lib").is_dir()
}

/// Where the compiler keeps the standard libraries.
fn libraries() -> PathBuf {
    let asked = Command::new("rustc").args(["--print", "sysroot"]).output();
    let said = asked.map(|output| output.stdout).unwrap_or_default();
    let root = String::from_utf8_lossy(&said).trim().to_owned();
    Path::new(&root).join("lib/rustlib")
}

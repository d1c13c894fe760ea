//! Compiles the watcher, a program without any library, which the library carries as bytes.
//!
//! Where it can't be compiled, the library has no watcher: everything works, but peers get no notice when a
//! process dies.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: &str = "src/sys/watcher/program";

/// The architectures whose system calls the program knows.
const ARCHITECTURES: [&str; 3] = ["x86_64", "aarch64", "riscv64"];

fn main() {
    println!("cargo::rerun-if-changed={SOURCES}");
    println!("cargo::rerun-if-changed=build.rs");
    let program = PathBuf::from(variable("OUT_DIR")).join("watcher");
    let compiled = if is_supported() {
        compile(&program)
    } else {
        Err("this architecture is not supported".into())
    };
    if let Err(reason) = compiled {
        println!(
            "cargo::warning=without the watcher, peers won't learn when a process dies: {reason}"
        );
        fs::write(&program, []).expect("cargo's own directory can be written");
    }
}

fn is_supported() -> bool {
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    let known = ARCHITECTURES.iter().any(|known| architecture == *known);
    known && variable("CARGO_CFG_TARGET_OS") == "linux"
}

/// First with the linker that comes with the compiler, which links for every architecture, then with
/// the system's.
fn compile(program: &Path) -> Result<(), String> {
    let bundled = ["linker-flavor=ld.lld", "linker=rust-lld"].map(OsString::from);
    if run_compiler(program, &bundled).is_ok() {
        return Ok(());
    }
    let mut system = [
        "link-arg=-nostartfiles",
        "link-arg=-nostdlib",
        "link-arg=-static",
    ]
    .map(OsString::from)
    .to_vec();
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("linker=");
        option.push(linker);
        system.push(option);
    }
    run_compiler(program, &system)
}

fn run_compiler(program: &Path, linking: &[OsString]) -> Result<(), String> {
    let mut command = Command::new(variable("RUSTC"));
    command
        .args(["--edition", "2024", "--crate-name", "roci_watcher"])
        .args(["--crate-type", "bin", "--target"])
        .arg(variable("TARGET"));
    // A fixed address and no libraries: nothing is left to do before the first instruction.
    for option in [
        "panic=abort",
        "opt-level=s",
        "strip=symbols",
        "relocation-model=static",
        "target-feature=+crt-static",
        // musl would bring its own beginning of a program.
        "link-self-contained=no",
    ] {
        command.args(["-C", option]);
    }
    for option in linking {
        command.arg("-C").arg(option);
    }
    command.arg("-o").arg(program);
    command.arg(Path::new(SOURCES).join("main.rs"));
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        let messages = String::from_utf8_lossy(&output.stderr);
        let first = messages.lines().find(|line| line.starts_with("error"));
        Err(first.unwrap_or("the compiler failed").to_owned())
    }
}

/// What cargo tells build scripts.
fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"))
}

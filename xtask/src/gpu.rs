//! `cargo xtask gpu`: memory of a real GPU between two processes. Tests without a GPU use a stand-in for libcuda.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::command::{call, cargo};

/// What the program ends with where there is no GPU.
const NO_GPU: i32 = 77;

/// The names of the program's libraries.
const LIBRARIES: [&str; 2] = ["libibverbs.so", "libibverbs.so.1"];

/// Builds the program and its libraries, and runs it. It prints what it checks, and the speed.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let directory = build(root)?;
    let program = directory.join("gpu_probe");
    let ended = Command::new(&program)
        .env("LD_LIBRARY_PATH", &directory)
        .env("ROCI_DEVICES", "left=127.0.0.1,right=127.0.0.2")
        .env("ROCI_EXPLAIN", "1")
        .status()
        .map_err(|error| format!("{} can't be started: {error}", program.display()))?;
    if ended.success() || ended.code() == Some(NO_GPU) {
        return Ok(());
    }
    Err(format!(
        "memory of the GPU was not moved as it should: {ended}"
    ))
}

/// The directory with the program and its libraries. It can be copied to another machine.
fn build(root: &Path) -> Result<PathBuf, String> {
    cargo(root, "build --release -p capi")?;
    let directory = root.join("target/gpu");
    install_libraries(root, &directory)
        .map_err(|error| format!("{} can't be filled: {error}", directory.display()))?;
    let source = root.join("crates/capi/tests/programs/cuda/gpu_probe.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-o"]);
    compiler.arg(directory.join("gpu_probe")).arg(source);
    compiler
        .arg("-L")
        .arg(&directory)
        .args(["-libverbs", "-ldl"]);
    call(&mut compiler)?;
    Ok(directory)
}

fn install_libraries(root: &Path, directory: &Path) -> std::io::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory)?;
    let [link, library] = LIBRARIES.map(|name| directory.join(name));
    fs::copy(root.join("target/release/librocinante_c.so"), &library)?;
    symlink(LIBRARIES[1], link)
}

//! The C libraries for programs that use the C library musl, as on Alpine Linux.
//!
//! They are linked with `musl-gcc`, and so are the C programs that try them here.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xtask::command::{CommandLine, program_beside_us, run_cargo};
use xtask::debian::{self, Package};
use xtask::install::{self, Built};

use super::{libraries, provide};
use crate::interop::guest_files::listed;
use crate::interop::image::{fresh_directory, run};
use crate::programs::build;

/// The compiler, and the headers of the programs.
const TOOLS: [Package; 3] = [
    ("musl-tools", "/usr/bin/musl-gcc"),
    ("libibverbs-dev", "/usr/include/infiniband/verbs.h"),
    ("librdmacm-dev", "/usr/include/rdma/rdma_cma.h"),
];

const COMPILER: &str = "musl-gcc";
const LINKER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER";
const FLAGS: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS";

/// Where cargo builds, below the workspace: other flags would build everything anew in the usual directory.
const DIRECTORY: &str = "target/musl";

/// The headers that the programs need beside those of musl.
const HEADERS: [(&str, &str); 5] = [
    ("infiniband", "/usr/include/infiniband"),
    ("rdma", "/usr/include/rdma"),
    ("linux", "/usr/include/linux"),
    ("asm-generic", "/usr/include/asm-generic"),
    ("asm", "/usr/include/x86_64-linux-gnu/asm"),
];

const C_PROGRAMS: &str = "crates/capi/tests/programs";

/// How long a program may take, in seconds.
const TIMEOUT: &str = "240";

/// The compiler's name for this machine with musl.
pub(crate) fn target() -> String {
    format!("{}-unknown-linux-musl", env::consts::ARCH)
}

/// Why the libraries can't be built here, if they can't.
pub(crate) fn missing() -> Option<String> {
    if env::consts::ARCH != "x86_64" {
        return Some("the libraries for musl are built on x86-64 only".into());
    }
    debian::missing(&TOOLS).or_else(|| provide(&target()).err())
}

/// Builds the libraries, and tells their directory. `options` are more words for cargo.
pub(crate) fn build_libraries(root: &Path, options: &str) -> Result<PathBuf, String> {
    debian::install(&TOOLS)?;
    let target = target();
    provide(&target)?;
    let unwinder = link_directory(root, &target)?;
    let command = format!("build -p capi -p preload --target {target} {options} --target-dir");
    let flags = format!(
        "-C target-feature=-crt-static -L native={}",
        unwinder.display()
    );
    let command = CommandLine::cargo(&command)
        .arguments(&[DIRECTORY.to_owned()])
        .env(LINKER, COMPILER)
        .env(FLAGS, flags);
    run_cargo(root, &command)?;
    let profile = if options.contains("--release") {
        "release"
    } else {
        "debug"
    };
    Ok(root.join(DIRECTORY).join(target).join(profile))
}

/// A directory in which the linker finds the compiler's own unwinder as `libgcc_s`. The shared library of that name
/// on this machine needs glibc, and Alpine Linux has none unless a package needs it.
fn link_directory(root: &Path, target: &str) -> Result<PathBuf, String> {
    let directory = root.join(DIRECTORY).join("unwinder");
    let unwinder = libraries()
        .join(target)
        .join("lib/self-contained/libunwind.a");
    if !unwinder.is_file() {
        return Err(format!("the compiler has no {}", unwinder.display()));
    }
    let script = format!("INPUT({})\n", unwinder.display());
    fs::create_dir_all(&directory)
        .and_then(|()| fs::write(directory.join("libgcc_s.so"), script))
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(directory)
}

/// Builds and installs everything, and runs C programs with it.
pub(super) fn check(root: &Path) -> Result<(), String> {
    build(root)?;
    let musl = build_libraries(root, "")?;
    let roci = program_beside_us("roci")?;
    let usual = roci.parent().ok_or("a program is in a directory")?;
    let built = Built {
        musl: Some(musl),
        ..Built::in_directory(usual)
    };
    let prefix = root.join(DIRECTORY).join("prefix");
    fresh_directory(&prefix)?;
    install::copy_everything(&built, &prefix).map_err(|error| error.to_string())?;
    let headers = root.join(DIRECTORY).join("headers");
    fresh_directory(&headers)?;
    for (name, system) in HEADERS {
        symlink(system, headers.join(name)).map_err(|error| format!("{system}: {error}"))?;
    }
    let sources = listed(&root.join(C_PROGRAMS), "c")?;
    for (number, source) in (1..).zip(&sources) {
        try_program(&prefix, &headers, source, number)?;
    }
    println!("{} C programs run with musl", sources.len());
    Ok(())
}

/// Compiles a program and runs it under `roci run`.
fn try_program(prefix: &Path, headers: &Path, source: &Path, number: u8) -> Result<(), String> {
    let name = source.file_stem().ok_or("a source has a name")?;
    let program = prefix.join("bin").join(name);
    run(Command::new(COMPILER)
        .args(["-std=gnu11", "-O2", "-Wall", "-pthread", "-o"])
        .args([&program, source])
        .arg("-isystem")
        .arg(headers)
        .arg("-L")
        .arg(prefix.join("lib/rocinante/musl"))
        .args(["-libverbs", "-lrdmacm"]))?;
    let (left, right) = (format!("127.32.{number}.1"), format!("127.32.{number}.2"));
    let output = Command::new("timeout")
        .arg(TIMEOUT)
        .arg(prefix.join("bin/roci"))
        .args(["run", "--"])
        .arg(&program)
        .env("ROCI_DEVICES", format!("left={left},right={right}"))
        .env("LEFT_ADDRESS", left)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("timeout can't be started: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let name = name.to_string_lossy();
    if output.status.success() && printed.contains(": holds") {
        println!("{name}: {} cases hold", printed.matches(": holds").count());
        return Ok(());
    }
    let complained = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{name} with musl: {}\n{printed}{complained}",
        output.status
    ))
}

//! The C libraries link with GNU ld and with lld, and pass the same tests. Compilers since Rust 1.90 bring lld along
//! and use it for x86-64; older ones, and those for other targets, use the system's linker, which mostly is GNU ld.

use std::path::Path;
use std::process::{Command, Stdio};

use xtask::command::{CommandLine, program_beside_us, run_cargo};
use xtask::linker::{Linker, linker_of, must_be_of};

use crate::isolated_tests;

/// Links with each of them and runs the tests of the C libraries on what they make.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    link_and_test(root, Linker::GnuLd)?;
    // The step `tests` has run the same tests on this one.
    let usual = program_beside_us("deps/librocinante_c.so")?;
    if usual.is_file() && linker_of(&usual)? == Linker::Lld {
        println!("the usual build is linked with lld");
        return Ok(());
    }
    if !is_installed("ld.lld") {
        println!("left out: lld is not installed (`apt-get install lld`)");
        return Ok(());
    }
    link_and_test(root, Linker::Lld)
}

fn link_and_test(root: &Path, linker: Linker) -> Result<(), String> {
    let name = linker.name();
    let directory = format!("target/linkers/{name}");
    let build = "rustc -p capi --lib --crate-type cdylib --target-dir";
    let build = CommandLine::cargo(&format!("{build} {directory}")).unoptimised();
    run_cargo(
        root,
        &build.arguments_of(&format!("-- -Clink-arg=-fuse-ld={name}")),
    )?;
    let library = root.join(directory).join("debug/librocinante_c.so");
    must_be_of(&library, linker)?;
    let library = library.display().to_string();
    isolated_tests::check_c_libraries(root, &[("ROCI_TEST_LIBRARY", &library)])
}

fn is_installed(program: &str) -> bool {
    let asked = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

//! C programs against our library: compiling, linking, running.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The shared object that belongs to the running test, or the one that `ROCI_TEST_LIBRARY` names.
pub(crate) fn library() -> PathBuf {
    if let Some(library) = std::env::var_os("ROCI_TEST_LIBRARY") {
        return PathBuf::from(library);
    }
    let test = std::env::current_exe().expect("a test knows where it is");
    let directory = test.parent().expect("a file is in a directory");
    let library = directory.join("librocinante_c.so");
    assert!(library.exists(), "cargo makes {} first", library.display());
    library
}

/// A directory of this test's own.
pub(crate) fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

/// Whether there is a C compiler with the headers of libibverbs and librdmacm; says so if not.
pub(crate) fn can_compile() -> bool {
    // No file: tests that run at the same time would write the same one.
    let compiled = Command::new("cc")
        .args(["-include", "infiniband/verbs.h"])
        .args(["-include", "rdma/rdma_cma.h"])
        .args(["-fsyntax-only", "-x", "c", "/dev/null"])
        .output();
    let there = compiled.is_ok_and(|output| output.status.success());
    if !there {
        println!("left out: needs a C compiler, libibverbs-dev and librdmacm-dev");
    }
    there
}

/// A directory with both names of our library, to be found by the linker and by the loader.
pub(crate) fn library_directory(name: &str) -> PathBuf {
    let directory = directory(name);
    for link in [
        "libibverbs.so.1",
        "libibverbs.so",
        "librdmacm.so.1",
        "librdmacm.so",
    ] {
        let path = directory.join(link);
        let _ = std::fs::remove_file(&path);
        std::os::unix::fs::symlink(library(), path).expect("the directory can be written");
    }
    directory
}

/// Compiles a shared object, whose name for the loader is that of its file.
pub(crate) fn compile_library(source: &Path, library: &Path) {
    let name = library.file_name().expect("it is a file");
    let mut name_for_loader = std::ffi::OsString::from("-Wl,-soname,");
    name_for_loader.push(name);
    let mut command = compiler(source, library);
    command.args(["-shared", "-fPIC"]).arg(name_for_loader);
    run(command, source);
}

/// Compiles a C program, against our library if `link` says where it is.
pub(crate) fn compile(source: &Path, program: &Path, link: Option<&Path>) {
    let mut command = compiler(source, program);
    if let Some(directory) = link {
        command
            .arg("-L")
            .arg(directory)
            .args(["-libverbs", "-lrdmacm"]);
    }
    run(command, source);
}

/// Compiles a C program with ThreadSanitizer, against our library. Returns false, and says so, if there is none.
pub(crate) fn compile_with_thread_sanitizer(source: &Path, program: &Path, link: &Path) -> bool {
    let mut command = compiler(source, program);
    command
        .arg("-fsanitize=thread")
        .arg("-L")
        .arg(link)
        .args(["-libverbs", "-lrdmacm"]);
    let output = command.output().expect("there is a compiler");
    let messages = String::from_utf8_lossy(&output.stderr);
    let is_missing = messages.contains("tsan") || messages.contains("-fsanitize");
    if !output.status.success() && is_missing {
        println!("left out: needs a C compiler with ThreadSanitizer");
        return false;
    }
    assert!(output.status.success(), "{}: {messages}", source.display());
    true
}

/// The C compiler, with the options that all our programs have.
fn compiler(source: &Path, result: &Path) -> Command {
    let mut command = Command::new("cc");
    command
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g"])
        .args(["-pthread", "-o"])
        .arg(result)
        .arg(source);
    command
}

fn run(mut command: Command, source: &Path) {
    let output = command.output().expect("there is a compiler");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {messages}", source.display());
}

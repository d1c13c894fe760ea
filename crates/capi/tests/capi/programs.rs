//! C programs of ours, each for one family of calls, compiled against the distribution's headers and
//! run on our library. Each prints what it finds and ends with 0 if that is what it expects.

use std::path::Path;
use std::process::Command;

use crate::support;

fn run(name: &str) {
    if !support::can_compile() {
        return;
    }
    let libraries = support::library_folder(&format!("{name}-libraries"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let program = libraries.join(name);
    support::compile(&source, &program, Some(&libraries));
    let output = Command::new("timeout")
        .arg("60")
        .arg(&program)
        .env("LD_LIBRARY_PATH", &libraries)
        .env("ROCI_DEVICES", "left=127.0.0.31,right=127.0.0.32")
        .output()
        .expect("timeout is everywhere");
    let printed = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{name}: {:?}\n{printed}{complained}",
        output.status
    );
    // What is real must not depend on what runs beside it: the last line is written by the program
    // when all of it has run.
    assert!(
        printed.ends_with("done\n"),
        "{name} stopped early:\n{printed}"
    );
}

#[test]
fn devices() {
    run("devices");
}

#[test]
fn memory() {
    run("memory");
}

#[test]
fn events() {
    run("events");
}

#[test]
fn posting() {
    run("posting");
}

#[test]
fn arguments() {
    run("arguments");
}

#[test]
fn forking() {
    run("forking");
}

#[test]
fn connections() {
    run("connections");
}

#[test]
fn sockets() {
    run("sockets");
}

//! C programs of ours, each for one family of calls, compiled against the distribution's headers and
//! run on our library. Each prints what it finds and ends with 0 if that is what it expects.

use std::path::Path;
use std::process::Command;

use crate::support;

fn run(name: &str) {
    explained(name);
}

/// What is explained to the user meanwhile; nothing if there are no headers.
fn explained(name: &str) -> Option<String> {
    if !support::can_compile() {
        return None;
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
        .env("ROCI_EXPLAIN", "1")
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
    Some(complained.into_owned())
}

#[test]
fn devices() {
    run("devices");
}

#[test]
fn interruptions() {
    run("interruptions");
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
    let Some(said) = explained("arguments") else {
        return;
    };
    for words in [
        "did not take receive (wr_id 0): the queue pair is in RESET.",
        "(RC) can't go from RESET to RTS: there is no such way.",
        "can't be modified: 99 is no value for IBV_QP_STATE.",
        "can't be modified: the mask has the bits 0x40000000",
        "the address has no global route (is_global is 0); GID indexes here are 0 (127.0.0.31).",
        "the queue is full.",
    ] {
        assert!(said.contains(words), "{words}:\n{said}");
    }
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

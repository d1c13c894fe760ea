//! C programs with ThreadSanitizer that access memory which a device uses, and their corrected versions.

use std::path::Path;
use std::process::{Command, Output};

use crate::support;

/// Runs a program; `None` if there is no ThreadSanitizer.
fn run(name: &str, kind: &str, checked: bool) -> Option<Output> {
    let directory = format!("threads-{name}-{kind}-{checked}");
    let libraries = support::library_directory(&directory);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/checked/threads.c");
    let program = libraries.join(name);
    if !support::compile_with_thread_sanitizer(&source, &program, &libraries) {
        return None;
    }
    let number = PROGRAMS.iter().position(|known| *known == name);
    let number = 2 * number.expect("a program of this name") + usize::from(kind == "right");
    let subnet = 2 * number + usize::from(checked);
    let devices = format!("left=127.33.{subnet}.1,right=127.33.{subnet}.2");
    let mut command = Command::new("timeout");
    command
        .arg("120")
        .arg(&program)
        .args([name, kind])
        .env("LD_LIBRARY_PATH", &libraries)
        .env("ROCI_DEVICES", devices)
        .env("LEFT_ADDRESS", format!("127.33.{subnet}.1"))
        .env_remove("TSAN_OPTIONS");
    if checked {
        command.env("ROCI_CHECK", "fail");
    }
    let output = command.output().expect("timeout is everywhere");
    if said(&output).contains("unexpected memory mapping") {
        println!("left out: ThreadSanitizer does not run on this system");
        return None;
    }
    Some(output)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const RACE: &str = "WARNING: ThreadSanitizer";

fn finds(name: &str) {
    if !support::can_compile() {
        return;
    }
    let Some(wrong) = run(name, "wrong", true) else {
        return;
    };
    let report = said(&wrong);
    assert!(report.contains(RACE), "{report}");
    assert!(!report.contains("ignores enabled"), "{report}");
    assert!(
        report.contains(&format!(" {name} ")) && report.contains("'roci: "),
        "the report names the program's function and the device: {report}"
    );
    for checked in [true, false] {
        let right = run(name, "right", checked).expect("the other one has run");
        let report = said(&right);
        assert!(!report.contains(RACE), "{report}");
        assert_eq!(right.status.code(), Some(0), "{report}");
        assert!(!report.contains("error: "), "{report}");
    }
}

macro_rules! finds {
    ($($name:ident)+) => {
        const PROGRAMS: &[&str] = &[$(stringify!($name)),+];

        $(
            #[test]
            fn $name() {
                finds(stringify!($name));
            }
        )+
    };
}

finds! {
    store_after_post
    store_after_connection
    load_receive_early
    load_read_early
    load_write_target
    store_read_source
    write_through_two
    count_together
    reuse_after_other_thread
    poll_on_memory
    fill_two_buffers
    read_ring_of_receives
    wait_for_event
    free_while_sent
    load_before_immediate
    fill_under_a_lock
    play_with_one_buffer
    store_in_one_of_two_processes
    load_in_one_of_two_processes
    play_in_two_processes
}

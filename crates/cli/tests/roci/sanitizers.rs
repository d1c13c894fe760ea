//! Programs that are compiled with a sanitizer, under `roci run`.

use std::path::Path;
use std::process::Command;

use crate::run_roci::{Directory, own_address, roci};

/// Runs a test program of the C libraries that this compiler made with a sanitizer.
fn holds(compiler: &str, sanitizer: &str) {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        return println!("left out: needs libibverbs-dev");
    }
    let directory = Directory::new(&format!("{compiler}-{sanitizer}"));
    let program = directory.path().join("post_and_poll");
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../capi/tests/programs/post_and_poll.c"
    );
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-g", "-pthread", source, "-o"]);
    command.arg(&program).arg(format!("-fsanitize={sanitizer}"));
    let compiled = command.args(["-libverbs", "-lrdmacm"]).output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        return println!("left out: needs {compiler} with the runtime of {sanitizer}");
    }
    let program = program.to_str().expect("a path");
    let (left, right) = (own_address(), own_address());
    let run = |words: &[&str]| {
        let run = roci(["run", "--"].iter().chain(words));
        let run = run.env("ROCI_DEVICES", format!("left={left},right={right}"));
        run.env("LEFT_ADDRESS", &left).run()
    };
    let all = run(&[program]);
    assert_eq!(all.stderr, "");
    // It fails unless all cases hold.
    assert!(all.success().ends_with(" cases hold\n"));
    // In one process, whose end looks for leaks.
    let alone = run(&[program, "post_send_sends_inline_data"]);
    assert_eq!(alone.stderr, "");
    alone.success();
}

#[test]
fn address_sanitizer_of_gcc_reports_nothing() {
    holds("gcc", "address");
}

#[test]
fn thread_sanitizer_of_gcc_reports_nothing() {
    holds("gcc", "thread");
}

#[test]
fn address_sanitizer_of_clang_reports_nothing() {
    holds("clang", "address");
}

#[test]
fn thread_sanitizer_of_clang_reports_nothing() {
    holds("clang", "thread");
}

#[test]
fn options_of_the_user_come_after_ours() {
    let script = "echo $ASAN_OPTIONS $TSAN_OPTIONS";
    let run = roci(["run", "--", "sh", "-c", script]).env("ASAN_OPTIONS", "detect_leaks=0");
    assert_eq!(
        run.run().success(),
        "verify_asan_link_order=0:detect_leaks=0 ignore_noninstrumented_modules=1\n"
    );
}

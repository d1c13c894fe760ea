//! `roci torture` finds planted bugs, names the packet, and prints a command that repeats the failure.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::run_roci::{Directory, roci};

/// The program with the bugs, which cargo builds with the tests.
fn planted_bugs() -> String {
    let test = std::env::current_exe().expect("the path of this test");
    let mut directories = test
        .ancestors()
        .map(|directory| directory.join("examples/planted_bugs"));
    let found: PathBuf = directories
        .find(|path| path.is_file())
        .expect("`cargo test -p roci` builds the example");
    found.to_str().expect("a text").to_owned()
}

/// Runs until the bug is found, and returns the results. A run that takes longer than the timeout counts as a hang.
fn find(bug: &str, timeout: &str, directory: &Directory) -> Value {
    let program = planted_bugs();
    let arguments = [
        "--first",
        "--timeout",
        timeout,
        "--json",
        "found.json",
        "--junit",
        "found.xml",
    ];
    let command = ["--html", "found.html", "--", &program, bug];
    let torture = roci([&["torture"][..], &arguments, &command].concat());
    let said = torture.within(directory.path()).run();
    assert_eq!(said.code, Some(1), "{said:?}");
    let text = std::fs::read_to_string(directory.path().join("found.json")).expect("results");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_planted_bug_is_found_shrunk_to_one_packet_and_repeated() {
    let directory = Directory::new("torture-bug");
    // No run hangs here, so a long timeout costs nothing.
    let found = find("rnr-retry", "30", &directory);
    let failure = &found["failures"][0];
    assert_eq!(failure["repeated"], "3 of 3", "{failure:#}");
    let faults = failure["faults"].as_array().expect("a list");
    let [fault] = &faults[..] else {
        panic!("one packet is enough: {failure:#}");
    };
    let fault = fault.as_str().expect("a text");
    assert!(
        fault.starts_with("rnr:context=2,opcode=RC_SEND_ONLY,nth="),
        "{fault}"
    );
    let message = failure["message"].as_str().expect("a text");
    assert!(message.contains("RNR"), "{message}");

    let replay = failure["replay"].as_str().expect("a text");
    let words: Vec<&str> = replay.split(' ').collect();
    assert_eq!(words[0], "roci", "{replay}");
    let repeated = roci(&words[1..]).within(directory.path()).run();
    assert_eq!(repeated.code, Some(1), "{repeated:?}");

    let capture = format!(
        "{}/capture.pcapng",
        failure["directory"].as_str().expect("a text")
    );
    let explained = roci(["explain", &capture])
        .within(directory.path())
        .run()
        .success();
    assert!(
        explained.contains("answered with RNR NAK by fault injection"),
        "{explained}"
    );
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect(name);
    let page = read("found.html");
    assert!(page.contains(fault) && page.contains("answered with RNR NAK by fault injection"));
    assert!(read("found.xml").contains("failures=\"1\""));
}

#[test]
fn the_corrected_program_survives_fifty_runs() {
    let directory = Directory::new("torture-fixed");
    let program = planted_bugs();
    let arguments = [
        "torture",
        "-n",
        "50",
        "--jobs",
        "2",
        "--",
        &program,
        "rnr-retry",
        "--fixed",
    ];
    let text = roci(arguments).within(directory.path()).run().success();
    assert!(
        text.contains("50 runs in") && text.contains("none failed"),
        "{text}"
    );
    for kind in [
        "drop", "dup", "corrupt", "delay", "reorder", "rnr", "stop", "kill",
    ] {
        let has = |line: &str| line.starts_with(&format!("{kind} "));
        assert!(text.lines().any(has), "{kind} is not in {text}");
    }
}

#[test]
fn an_interrupted_campaign_prints_its_results() {
    let directory = Directory::new("torture-interrupted");
    let program = planted_bugs();
    let script = format!("echo run >> runs; exec {program} rnr-retry --fixed");
    let arguments = ["torture", "-n", "100000", "--json", "results.json"];
    let command = ["--", "sh", "-c", &script];
    let torture = roci([&arguments[..], &command].concat());
    let running = torture.within(directory.path()).start();
    let runs = || std::fs::read_to_string(directory.path().join("runs")).unwrap_or_default();
    let latest = Instant::now() + Duration::from_secs(30);
    // The first one is without faults.
    while runs().lines().count() < 4 {
        assert!(Instant::now() < latest, "it runs the command");
        std::thread::sleep(Duration::from_millis(5));
    }
    running.interrupt();
    let said = running.end();
    assert_eq!(said.code, Some(130), "{said:?}");
    let last = said.stdout.lines().last().expect("a summary");
    assert!(last.starts_with("Interrupted after "), "{last}");
    assert!(last.contains(" of 100000 runs in "), "{last}");
    assert!(last.ends_with(": none failed."), "{last}");
    let results = std::fs::read_to_string(directory.path().join("results.json"));
    let results: Value = serde_json::from_str(&results.expect("results")).expect("JSON");
    assert_eq!(results["interrupted"], true);
}

#[test]
fn an_interruption_of_the_run_without_faults_has_the_exit_status_of_one() {
    let directory = Directory::new("torture-interrupted-at-once");
    let torture = roci([
        "torture",
        "--",
        "sh",
        "-c",
        "echo run > began; exec sleep 60",
    ]);
    let running = torture.within(directory.path()).start();
    let latest = Instant::now() + Duration::from_secs(30);
    while !directory.path().join("began").exists() {
        assert!(Instant::now() < latest, "it runs the command");
        std::thread::sleep(Duration::from_millis(5));
    }
    running.interrupt();
    let said = running.end();
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.stderr.contains("interrupted before"), "{said:?}");
}

#[test]
fn a_hang_is_ended_and_reported() {
    let directory = Directory::new("torture-hang");
    let program = planted_bugs();
    let replay = "drop:context=1,opcode=UD_SEND_ONLY,nth=3";
    let arguments = [
        "torture",
        "--replay",
        replay,
        "--timeout",
        "6",
        "--",
        &program,
    ];
    let said = roci([&arguments[..], &["lost-datagram"]].concat());
    let said = said.within(directory.path()).run();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("hang of the command"), "{said:?}");
}

#[test]
fn a_command_that_fails_without_faults_is_not_tortured() {
    let directory = Directory::new("torture-false");
    let torture = roci(["torture", "--", "false"]).within(directory.path());
    let complaint = torture.run().complaint();
    assert!(
        complaint.contains("fails without any fault (exit status 1)"),
        "{complaint}"
    );
    let idle = roci(["torture", "--", "true"]).within(directory.path());
    assert!(idle.run().complaint().contains("opens no RDMA device"));
}

#[test]
#[ignore = "takes minutes: cargo test -p roci -- --ignored torture"]
fn every_planted_bug_is_found_and_every_correction_passes() {
    for bug in [
        "rnr-retry",
        "retry",
        "lost-datagram",
        "counted-twice",
        "torn-write",
        "two-queue-pairs",
        "one-event",
    ] {
        let directory = Directory::new(&format!("torture-{bug}"));
        let found = find(bug, "5", &directory);
        let failure = &found["failures"][0];
        assert_ne!(failure["repeated"], "0 of 3", "{bug}: {failure:#}");
        assert!(
            !failure["packets"].as_array().expect("a list").is_empty(),
            "{bug}"
        );
        let program = planted_bugs();
        let arguments = [
            "torture", "-n", "50", "--jobs", "2", "--", &program, bug, "--fixed",
        ];
        roci(arguments).within(directory.path()).run().success();
    }
}

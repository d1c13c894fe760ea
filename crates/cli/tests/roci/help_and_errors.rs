//! Help texts and error messages.

use crate::run_roci::{address, roci};

#[test]
fn every_command_has_help_with_examples() {
    for command in [
        "demo",
        "doctor",
        "devices",
        "devinfo",
        "gids",
        "link",
        "ping",
        "stat",
        "top",
        "perf",
        "run",
        "torture",
        "env",
        "completions",
        "manual",
    ] {
        let text = roci([command, "--help"]).run().success();
        assert!(text.contains("Examples:"), "{command}: {text}");
        // Without a GID index it fails on every RoCE device.
        let mut pingpongs = text
            .lines()
            .filter(|line| line.contains("-- ibv_rc_pingpong"));
        assert!(pingpongs.all(|line| line.contains(" -g ")), "{text}");
    }
}

#[test]
fn the_list_of_commands_names_every_command_for_users() {
    let text = roci(["--help"]).run().success();
    let is_listed = |name: &str| {
        text.lines()
            .any(|line| line.starts_with(&format!("  {name} ")))
    };
    for command in ["demo", "explain", "torture", "completions", "manual"] {
        assert!(is_listed(command), "{command}: {text}");
    }
    assert!(!is_listed("demo-peer"), "{text}");
}

#[test]
fn monitor_is_another_name_of_top() {
    let text = roci(["monitor", "--help"]).run().success();
    assert!(text.contains("roci top"), "{text}");
}

#[test]
fn completions_are_generated() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = roci(["completions", shell]).run().success();
        assert!(
            script.contains("roci") && script.contains("doctor"),
            "{shell}"
        );
    }
}

#[test]
fn impossible_measurements_are_rejected() {
    let rejected = |arguments: &[&str]| roci([&["perf"], arguments].concat()).run().complaint();
    for (arguments, hint) in [
        (&["read-bw", "--local", "-c", "UC"][..], "use -c RC"),
        (&["write-lat", "--local", "-e"], "measure send-lat"),
        (&["send-lat", "--local", "-b"], "leave out -b"),
        (&["atomic-bw", "--local", "-s", "64"], "leave out -s"),
        (&["atomic-lat", "--local", "--vs-tcp"], "TCP has no atomics"),
        (
            &["send-bw", "--local", "-c", "UD", "-s", "64K"],
            "-s 4096 or less",
        ),
        (&["send-lat", "--local", "-x", "9"], "leave out -x"),
    ] {
        let complaint = rejected(arguments);
        assert!(complaint.contains(hint), "{complaint}");
    }
}

#[test]
fn a_missing_server_is_named() {
    let complaint = roci(["perf", "send-bw", &address(30), "-p", "1"])
        .run()
        .complaint();
    assert!(complaint.contains(&address(30)), "{complaint}");
    assert!(
        complaint.contains("start the same command without an address"),
        "{complaint}"
    );
}

#[test]
fn unknown_devices_and_words_are_rejected() {
    let complaint = roci(["gids", "nosuch"]).run().complaint();
    assert!(complaint.contains("there is no device `nosuch`") && complaint.contains("a, b"));
    let unused = roci(["stat", "nosuch"]).run();
    assert!(
        unused.stderr.contains("there is no device `nosuch`"),
        "{}",
        unused.stderr
    );
    let outcome = roci(["perf", "send-bandwidth"]).run();
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("send-bw"), "{}", outcome.stderr);
    let bad = roci(["devices"])
        .env("ROCI_DEVICES", "a=")
        .run()
        .complaint();
    assert!(
        bad.contains("it names no interface and no address"),
        "{bad}"
    );
}

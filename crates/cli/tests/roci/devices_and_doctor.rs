//! Looking at devices and GIDs, and at the machine.

use crate::run_roci::{Directory, address, roci};

#[test]
fn devices_are_listed() {
    let text = roci(["devices"]).run().success();
    let mut lines = text.lines();
    assert!(
        lines
            .next()
            .is_some_and(|title| title.starts_with("DEVICE"))
    );
    for (name, host) in [("a", 1), ("b", 2)] {
        let line = lines.next().expect("a line for each device");
        assert!(
            line.starts_with(name) && line.ends_with(&address(host)),
            "{line}"
        );
    }
    assert_eq!(lines.next(), Some(""));
    let way = lines.next().expect("a sentence");
    assert!(way.starts_with("Packets between processes"), "{way}");
    assert_eq!(lines.next(), None);
}

#[test]
fn devices_list_says_why_packets_use_sockets() {
    let text = roci(["devices"]).env("ROCI_SHORTCUT", "0").run().success();
    let sentence = "go through sockets, because ROCI_SHORTCUT is 0.";
    assert!(text.ends_with(&format!("{sentence}\n")), "{text}");
}

#[test]
fn devices_are_listed_for_scripts() {
    let devices = roci(["devices", "--json"]).run().json();
    assert_eq!(devices[0]["name"], "a");
    assert_eq!(devices[0]["state"], "active");
    assert_eq!(devices[1]["addresses"][0], address(2));
    let way = devices[0]["local_packets"].as_str();
    assert!(matches!(way, Some("memory" | "sockets")), "{way:?}");
}

#[test]
fn pipes_see_no_colours() {
    // The doctor takes ports, so it gets a device that no other test uses.
    let device = format!("a={}", address(6));
    for command in ["devices", "gids", "doctor"] {
        let text = roci([command]).env("ROCI_DEVICES", &device).run().success();
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn a_device_is_described_as_ibv_devinfo_does() {
    let text = roci(["devinfo", "a"]).run().success();
    for line in [
        "hca_id:\ta",
        "\ttransport:\t\t\tInfiniBand (0)",
        "\t\tport:\t1",
        "\t\t\tstate:\t\t\tPORT_ACTIVE (4)",
        "\t\t\tmax_mtu:\t\t4096 (5)",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(!text.contains("GID["));
    let verbose = roci(["devinfo", "-v", "a"]).run().success();
    assert!(verbose.contains("GID[  0]:"), "{verbose}");
    for line in ["\tmax_sge:\t\t\t32", "\tmax_qp_wr:\t\t\t1048576"] {
        assert!(
            verbose.lines().any(|found| found == line),
            "{line}: {verbose}"
        );
    }
    // The library says the same to unmodified programs.
    let theirs = roci(["run", "--", "ibv_devinfo", "-v", "-d", "a"]).run();
    if theirs.code == Some(0) {
        let numbers = |text: &str| {
            let lines = text.lines().filter(|line| line.starts_with("\tmax_"));
            let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
            words.collect::<std::collections::BTreeSet<_>>()
        };
        let (ours, theirs) = (numbers(&verbose), numbers(&theirs.stdout));
        let only_ours: Vec<_> = ours.difference(&theirs).collect();
        assert_eq!(only_ours, ["max_msg_sz: 2147483648"], "{theirs:?}");
    }
}

#[test]
fn a_device_is_found_by_its_address() {
    let info = roci(["devinfo", "--json", &address(9)]).run().json();
    let gids = &info[0]["ports"][0]["gids"];
    assert_eq!(gids.as_array().map(Vec::len), Some(1), "{info}");
}

#[test]
fn the_gid_to_use_is_marked_and_explained() {
    let both = format!("a=::1+{}", address(3));
    let text = roci(["gids"]).env("ROCI_DEVICES", &both).run().success();
    let marked: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("*  "))
        .collect();
    assert!(
        matches!(marked[..], [line] if line.contains(&address(3))),
        "{text}"
    );
    assert!(
        text.contains("* use index 0 of a: it is the IPv4 address"),
        "{text}"
    );
    let rows = roci(["gids", "--json"])
        .env("ROCI_DEVICES", &both)
        .run()
        .json();
    assert_eq!(rows[0]["use"], true);
    assert_eq!(rows[0]["ipv4"], address(3));
    assert_eq!(rows[1]["use"], false);
    assert_eq!(rows[1]["gid"], "0000:0000:0000:0000:0000:0000:0000:0001");
}

#[test]
fn the_doctor_runs_every_check() {
    let device = format!("a={}", address(7));
    let findings = roci(["doctor", "--json"]).env("ROCI_DEVICES", device);
    let findings = findings.run().json();
    let findings = findings.as_array().expect("a list");
    for check in [
        "device",
        "port",
        "runtime directory",
        "receive buffer",
        "GSO and GRO",
        "RDMA ping",
    ] {
        let found = findings.iter().find(|finding| finding["check"] == check);
        let found = found.unwrap_or_else(|| panic!("no {check} in {findings:?}"));
        assert_ne!(found["verdict"], "fail", "{found}");
    }
}

#[test]
fn the_doctor_warns_if_the_libraries_for_other_programs_are_missing() {
    let directory = Directory::new("alone");
    let alone = directory.path().join("roci");
    std::fs::copy(env!("CARGO_BIN_EXE_roci"), &alone).expect("a copy");
    let output = std::process::Command::new(&alone)
        .args(["doctor", "--json"])
        .env("ROCI_DEVICES", format!("a={}", address(8)))
        .output()
        .expect("it starts");
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = findings.as_array().expect("a list");
    let found = findings.iter().find(|it| it["check"] == "libraries");
    assert_eq!(found.expect("a check")["verdict"], "warn", "{findings:?}");
}

#[test]
fn the_doctor_names_a_port_that_is_taken() {
    let address = address(4);
    let _holder = std::net::UdpSocket::bind((address.as_str(), 4791)).expect("the port is free");
    let outcome = roci(["doctor"])
        .env("ROCI_DEVICES", format!("a={address}"))
        .run();
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    let line = outcome
        .stdout
        .lines()
        .find(|line| line.starts_with("fail  port"));
    assert!(
        line.is_some_and(|line| line.contains(&address)),
        "{}",
        outcome.stdout
    );
}

/// What the doctor finds where a program may open this many files.
fn findings_with_open_files(limit: u32) -> Vec<serde_json::Value> {
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -n \"$0\" && exec \"$1\" doctor --json"])
        .args([&limit.to_string(), env!("CARGO_BIN_EXE_roci")])
        .env("ROCI_DEVICES", format!("a={}", address(9)))
        .output()
        .expect("it starts");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn the_doctor_names_a_low_limit_of_open_files() {
    for limit in [8, 10, 12, 16] {
        let findings = findings_with_open_files(limit);
        let found = findings.iter().find(|it| it["check"] == "open files");
        assert_ne!(found.expect("a check")["verdict"], "ok", "{findings:?}");
        let failed = findings.iter().filter(|it| it["verdict"] == "fail");
        for failure in failed.filter(|it| it["check"] == "RDMA ping") {
            let text = failure["finding"].as_str().expect("a text");
            assert!(
                text.contains(&format!("no more than {limit} files")),
                "{text}"
            );
        }
    }
}

//! The system's RDMA devices beside ours, on machines that exist as files only.

use system::fixture::Fixture;

use crate::run_roci::{Directory, Roci, address, roci};

/// A machine with Soft-RoCE, and what `ROCI_DEVICES` asks for.
fn with_rxe<const N: usize>(words: [&str; N], devices: &str) -> (Fixture, Roci) {
    let fixture = Fixture::with_rxe("rxe0");
    let command = roci(words)
        .env("ROCI_SYSTEM_ROOT", fixture.path())
        .env("ROCI_DEVICES", devices);
    (fixture, command)
}

#[test]
fn both_kinds_are_listed_with_their_kind() {
    let (_machine, command) = with_rxe(["devices"], &format!("a={},system", address(1)));
    let text = command.run().success();
    let line = |name: &str| text.lines().find(|line| line.starts_with(name));
    assert!(
        line("a ").is_some_and(|it| it.contains(" software ")),
        "{text}"
    );
    let rxe = line("rxe0").expect("a line");
    for part in ["system: rxe", "eth0", "active", "1024", "10.0.0.1"] {
        assert!(rxe.contains(part), "{part}: {rxe}");
    }
}

#[test]
fn a_list_without_them_leaves_them_out() {
    let (_machine, command) = with_rxe(["devices"], &format!("a={}", address(1)));
    assert!(!command.run().success().contains("rxe0"));
}

#[test]
fn devices_of_the_system_are_listed_for_scripts() {
    let (_machine, command) = with_rxe(["devices", "--json"], "system");
    let rows = command.run().json();
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
    assert_eq!(rows[0]["kind"], "system");
    assert_eq!(rows[0]["driver"], "rxe");
    assert_eq!(rows[0]["local_packets"], serde_json::Value::Null);
}

#[test]
fn one_of_them_can_be_chosen_by_name() {
    let (_machine, command) = with_rxe(["devices", "--json"], "system:rxe0");
    assert_eq!(command.run().json()[0]["name"], "rxe0");
    let (_machine, command) = with_rxe(["devices"], "system:mlx5_0");
    let complaint = command.run().complaint();
    assert!(
        complaint.ends_with("the system has no RDMA device `mlx5_0`; it has rxe0"),
        "{complaint}"
    );
}

#[test]
fn a_name_that_exists_twice_is_an_error_that_says_how_to_choose() {
    let ours = format!("rxe0={},system", address(1));
    let (_machine, command) = with_rxe(["devinfo", "rxe0"], &ours);
    let complaint = command.run().complaint();
    assert!(complaint.contains("two devices `rxe0`"), "{complaint}");
    assert!(complaint.contains("ROCI_DEVICES=system"), "{complaint}");
    let (_machine, command) = with_rxe(["devinfo", "rxe0"], "system");
    let text = command.run().success();
    assert!(text.contains("\tkind:\t\t\t\tsystem: rxe\n"), "{text}");
    assert!(text.contains("\t\t\tactive_mtu:\t\t1024 (3)\n"), "{text}");
}

#[test]
fn gids_of_the_system_are_listed_and_the_best_is_marked() {
    let machine = Fixture::with_nic("mlx5_0", "0000:81:00.0", "mlx5_core");
    let rows = roci(["gids", "--json", "mlx5_0"])
        .env("ROCI_SYSTEM_ROOT", machine.path())
        .env("ROCI_DEVICES", "system")
        .run()
        .json();
    let versions: Vec<_> = (0..4).map(|at| rows[at]["version"].as_str()).collect();
    assert_eq!(versions, [Some("v1"), Some("v2"), Some("v1"), Some("v2")]);
    assert_eq!(rows[3]["use"], true, "{rows}");
    assert_eq!(rows[3]["ipv4"], "10.0.0.1");
    assert_eq!(rows[2]["use"], false);
}

#[test]
fn a_device_that_the_libraries_do_not_know_is_named() {
    let (_machine, command) = with_rxe(["perf", "send-lat", "-d", "rxe0"], "system");
    let complaint = command.run().complaint();
    let expected = "the device `rxe0` of the system can't be opened";
    assert!(complaint.contains(expected), "{complaint}");
}

#[test]
fn links_show_devices_of_the_system_and_keep_their_names_free() {
    let configuration = Directory::new("links");
    let home = configuration.path();
    let (_machine, command) = with_rxe(["link"], "system");
    let text = command.env("XDG_CONFIG_HOME", home).run().success();
    assert!(text.contains("rxe0  eth0    system: rxe"), "{text}");
    let (_machine, command) = with_rxe(["link", "add", "rxe0", "netdev", "lo"], "system");
    let complaint = command.env("XDG_CONFIG_HOME", home).run().complaint();
    assert!(complaint.contains("choose another name"), "{complaint}");
}

#[test]
fn the_doctor_checks_devices_of_the_system() {
    let (machine, command) = with_rxe(["doctor", "--json"], "system");
    machine.remove("dev/infiniband/uverbs0");
    let outcome = command.run();
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    let findings: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let findings = findings.as_array().expect("a list");
    let of = |check: &str| findings.iter().find(|it| it["check"] == check);
    let file = of("device file").expect("a check");
    assert_eq!(file["verdict"], "fail", "{file}");
    assert!(of("RDMA device").is_some(), "{findings:?}");
    // The checks of software devices are left out.
    for check in ["devices", "port", "RDMA ping"] {
        assert!(of(check).is_none(), "{findings:?}");
    }
}

#[test]
fn our_own_device_files_are_not_taken_for_devices_of_the_system() {
    let command = env!("CARGO_BIN_EXE_roci");
    let devices = format!("a={},system", address(1));
    let outcome = roci([
        "run",
        "--devices",
        &devices,
        "--",
        command,
        "devices",
        "--json",
    ])
    .run();
    let rows = outcome.json();
    let names = rows
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| &row["name"]);
    assert_eq!(names.filter(|name| *name == "a").count(), 1, "{rows}");
}

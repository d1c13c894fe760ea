//! A machine with a network: loopback is there for its addresses, but not in the list.

use std::process::Command;

use crate::run_roci::Directory;

/// Runs a script in network and user namespaces of its own, with `veth` up beside loopback. Nothing
/// if this system does not allow that.
fn beside_a_network(name: &str, script: &str) -> Option<String> {
    let directory = Directory::new(name);
    let lay = "set -e
ip link set lo up
ip link add veth type veth peer name other 2>/dev/null || { echo forbidden; exit 0; }
ip address add 10.99.0.1/24 dev veth
ip link set other up
ip link set veth up
";
    let output = Command::new("unshare")
        .args([
            "--map-root-user",
            "--net",
            "sh",
            "-c",
            &format!("{lay}{script}"),
        ])
        .env("roci", env!("CARGO_BIN_EXE_roci"))
        .env("XDG_RUNTIME_DIR", directory.path())
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env_remove("ROCI_DEVICES")
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    if said == "forbidden\n" || complaints.contains("unshare failed") {
        return None;
    }
    assert!(output.status.success(), "{said}{complaints}");
    Some(said)
}

/// What the command prints to stdout and stderr where no interface is up, as a network namespace begins. Nothing if this system
/// does not allow one.
fn without_interfaces(name: &str, words: &str) -> Option<[String; 2]> {
    let directory = Directory::new(name);
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", env!("CARGO_BIN_EXE_roci")])
        .args(words.split(' '))
        .env("XDG_RUNTIME_DIR", directory.path())
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env_remove("ROCI_DEVICES")
        .output()
        .expect("unshare is everywhere");
    let [said, complained] =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    (!complained.contains("unshare failed")).then_some([said, complained])
}

#[test]
fn without_devices_the_error_says_what_to_do() {
    for words in ["run -- true", "devices", "devinfo", "gids", "demo"] {
        if let Some([said, complained]) = without_interfaces("no-device", words) {
            assert!(
                complained.contains("`ip link set lo up`"),
                "{words}: {complained}"
            );
            assert_eq!(complained.lines().count(), 1, "{words}: {complained}");
            assert_eq!(said, "", "{words}");
        }
    }
}

#[test]
fn the_doctor_blames_loopback_that_is_down_and_not_a_firewall_alone() {
    let Some([said, _]) = without_interfaces("doctor-no-device", "doctor --json") else {
        return println!("left out: this system allows no namespaces");
    };
    let rows: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let rows = rows.as_array().expect("a list").iter();
    let failed: Vec<_> = rows.filter(|row| row["verdict"] == "fail").collect();
    let names: Vec<_> = failed
        .iter()
        .filter_map(|row| row["check"].as_str())
        .collect();
    assert_eq!(names, ["devices", "GSO and GRO", "RDMA ping"], "{said}");
    for row in failed {
        let text = format!("{} {}", row["finding"], row["advice"]);
        assert!(text.contains("`ip link set lo up`"), "{text}");
    }
}

#[test]
fn loopback_is_not_listed_beside_a_network() {
    let script = "$roci run -- ls /sys/class/infiniband
$roci devinfo roci_lo > /dev/null
$roci devinfo lo > /dev/null
ROCI_DEVICES=lo $roci run -- ls /sys/class/infiniband";
    if let Some(said) = beside_a_network("listed", script) {
        assert_eq!(said, "roci_veth\nroci_lo\n");
    }
}

/// A server that is bound to all addresses, and one that is bound to a loopback address.
#[test]
fn loopback_addresses_are_reached_beside_a_network() {
    let script = "
for bound in 0.0.0.0 127.0.0.1; do
    $roci run -- rping -s -a $bound -C 1 > /dev/null &
    tries=0
    until $roci run -- rping -c -a 127.0.0.1 -C 1 2> /dev/null; do
        tries=$((tries + 1))
        test $tries -lt 100
        sleep 0.1
    done
    wait
done
echo reached";
    if Command::new("rping").arg("-h").output().is_err() {
        return;
    }
    if let Some(said) = beside_a_network("reached", script) {
        assert!(said.ends_with("reached\n"), "{said}");
    }
}

#[test]
fn a_machine_with_ipv6_alone_uses_its_loopback_address() {
    let script = "
ip address del 127.0.0.1/8 dev lo
ip address del 10.99.0.1/24 dev veth
$roci demo --capture $XDG_RUNTIME_DIR/demo.pcapng
$roci perf send-lat --local -n 10 > /dev/null
$roci doctor --json";
    let Some(said) = beside_a_network("ipv6", script) else {
        return println!("left out: this system allows no namespaces");
    };
    assert!(said.contains("device on ::1"), "{said}");
    let (_, rows) = said.split_once("\n[").expect("the list of the doctor");
    let rows: serde_json::Value = serde_json::from_str(&format!("[{rows}")).expect("JSON");
    let ping = (rows.as_array().expect("a list").iter()).find(|row| row["check"] == "RDMA ping");
    assert_eq!(ping.expect("a check")["verdict"], "ok", "{said}");
}

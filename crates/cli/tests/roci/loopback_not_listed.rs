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

/// In a namespace of its own a machine begins without any interface that is up.
#[test]
fn without_devices_the_error_says_what_to_do() {
    let directory = Directory::new("no-device");
    for words in ["run -- true", "devices", "demo"] {
        let output = Command::new("unshare")
            .args(["--map-root-user", "--net", env!("CARGO_BIN_EXE_roci")])
            .args(words.split(' '))
            .env("XDG_RUNTIME_DIR", directory.path())
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .env_remove("ROCI_DEVICES")
            .output()
            .expect("unshare is everywhere");
        let said = String::from_utf8_lossy(&output.stderr);
        if !said.contains("unshare failed") {
            assert!(said.contains("`ip link set lo up`"), "{words}: {said}");
            assert_eq!(said.lines().count(), 1, "{words}: {said}");
        }
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

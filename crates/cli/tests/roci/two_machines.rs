//! Two machines, as two network namespaces that a cable connects, and machines with unusual networks.

use std::process::Command;

use crate::run_roci::Directory;

/// The first lines of a script: the machine `here`, in which the script runs, has 10.99.1.1; the machine `there` has 10.99.1.2.
/// `there COMMAND` runs a command in it. Namespaces have no names, so nothing is left when the script has ended.
const MACHINES: &str = "set -e
ip link set lo up
ip link add veth type veth peer name other 2>/dev/null || { echo forbidden; exit 0; }
mkfifo end
unshare --net sh -c 'cat end > /dev/null' &
machine=$!
until test \"$(readlink /proc/$machine/ns/net)\" != \"$(readlink /proc/$$/ns/net)\"; do sleep 0.01; done
exec 3> end
roci=\"timeout 60 $roci\"
repeat() {
    tries=0
    until \"$@\"; do
        tries=$((tries + 1))
        test $tries -lt 100
        sleep 0.1
    done
}
there() { nsenter --net --target $machine \"$@\"; }
ip link set other netns $machine
ip address add 10.99.1.1/24 dev veth
ip link set veth up
there ip link set lo up
there ip address add 10.99.1.2/24 dev other
there ip link set other up
";

/// Runs a script beside two machines, with the environment variable `roci`. Nothing if this system does not allow that.
fn on_two_machines(name: &str, script: &str) -> Option<String> {
    let directory = Directory::new(name);
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c"])
        .arg(format!("{MACHINES}{script}"))
        .current_dir(directory.path())
        .env("roci", env!("CARGO_BIN_EXE_roci"))
        .env("XDG_RUNTIME_DIR", directory.path())
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env_remove("ROCI_DEVICES")
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    if said == "forbidden\n" || complaints.contains("unshare failed") {
        println!("left out: this system allows no namespaces");
        return None;
    }
    assert!(output.status.success(), "{said}{complaints}");
    Some(said)
}

/// Messages of several packets, in both directions, from the side with the larger MTU and from the other. Each side says
/// which path MTU was agreed, if its user asks.
#[test]
fn interfaces_with_different_mtus_connect() {
    let script = "
there ip link set other mtu 1500
ip link set veth mtu 9000
export ROCI_EXPLAIN=1
there $roci ping -s -a 10.99.1.2 -C 4 -S 60000 > /dev/null 2> server &
repeat $roci ping -c -a 10.99.1.2 -C 4 -S 60000 > /dev/null 2> client
wait $!
cat client server
nsenter --net --target $machine $roci ping -s -P -a 10.99.1.2 > /dev/null 2>&1 &
server=$!
repeat $roci ping -c -a 10.99.1.2 -C 1 > /dev/null 2>&1
$roci ping -c -a 10.99.1.2 > /dev/null &
client=$!
shows() { \"$@\" stat --json | grep -q 'path_mtu.:1024'; }
repeat shows $roci
repeat shows there $roci
kill $client $server
unset ROCI_EXPLAIN
$roci ping -s -a 10.99.1.1 -C 4 -S 60000 > /dev/null &
repeat there $roci ping -c -a 10.99.1.1 -C 4 -S 60000 > /dev/null
wait $!
echo connected";
    if let Some(said) = on_two_machines("mtus", script) {
        let client = "to 10.99.1.2:7174 uses a path MTU of 1024, not 4096";
        let server =
            "of 10.99.1.1 at 10.99.1.2:7174 asks for a path MTU of 4096, but this port allows 1024";
        for (side, text) in [("client", client), ("server", server)] {
            assert_eq!(said.matches(text).count(), 1, "{side}: {said}");
        }
        assert!(said.ends_with("connected\n"), "{said}");
    }
}

/// The kernel asks for an address for three seconds. Only a peer that exists gets a connection request.
#[test]
fn an_address_that_no_machine_has_is_not_resolved() {
    let script = "
for address in 10.99.1.9 10.99.1.2; do
    ROCI_EXPLAIN=1 $roci ping -c -a $address -C 1 2>&1 || true
    echo --
done";
    if let Some(said) = on_two_machines("no-neighbour", script) {
        let (nobody, no_server) = said.split_once("--").expect("two attempts");
        assert!(nobody.contains("no machine on the network"), "{nobody}");
        assert!(
            nobody.contains("10.99.1.9:7174 does not answer"),
            "{nobody}"
        );
        assert!(!no_server.contains("no machine"), "{no_server}");
    }
}

/// The checks of the doctor that fail in a namespace after these commands, with their texts.
fn failures_after(name: &str, commands: &str) -> Option<Vec<String>> {
    let script = format!("{commands}\n$roci doctor --json || true");
    let said = on_two_machines(name, &script)?;
    let rows: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let rows = rows.as_array().expect("a list").iter();
    let failed = rows.filter(|row| row["verdict"] == "fail");
    let text =
        |row: &serde_json::Value| format!("{} {} {}", row["check"], row["finding"], row["advice"]);
    Some(failed.map(text).collect())
}

#[test]
fn the_doctor_finds_a_firewall_at_the_port() {
    if Command::new("nft").arg("--version").output().is_err() {
        return println!("left out: nftables is not installed");
    }
    let rules = "
nft add table inet t
nft add chain inet t in '{ type filter hook input priority 0; }'
nft add rule inet t in udp dport 4791 drop";
    let Some(failures) = failures_after("firewall", rules) else {
        return;
    };
    let at_the_port = failures
        .iter()
        .filter(|it| it.contains("a firewall drops it"));
    assert!(at_the_port.count() > 0, "{failures:?}");
    if let Some(failures) = failures_after("no-firewall", "") {
        assert_eq!(failures, [""; 0]);
    }
}

#[test]
fn the_doctor_needs_no_ipv4() {
    let commands = "
ip address delete 127.0.0.1/8 dev lo
ip address delete 10.99.1.1/24 dev veth";
    if let Some(failures) = failures_after("ipv6-only", commands) {
        assert_eq!(failures, [""; 0]);
    }
}

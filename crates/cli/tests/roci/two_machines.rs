//! Two machines, as two network namespaces that a cable connects, a third one behind them, and machines with unusual networks.

use std::process::Command;

use crate::run_roci::Directory;

/// The first lines of a script: the machine `here`, in which the script runs, has 10.99.1.1; the machine `there` has 10.99.1.2.
/// `there COMMAND` runs a command in it. Namespaces have no names, so nothing is left when the script has ended.
const MACHINES: &str = "set -e
ip link set lo up
ip link add veth type veth peer name other 2>/dev/null || { echo forbidden; exit 0; }
await() { until test \"$(readlink /proc/$1/ns/net)\" != \"$(readlink /proc/$$/ns/net)\"; do sleep 0.01; done; }
mkfifo end
unshare --net sh -c 'cat end > /dev/null' &
machine=$!
await $machine
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

/// More lines: the machine `beyond` has 10.99.2.2, and `there` is the router to it. All interfaces have an MTU of 9000, and the router
/// forwards packets of at most 1500 bytes, as if there were a tunnel between them.
const A_ROUTER: &str = "
mkfifo other_end
unshare --net sh -c 'cat other_end > /dev/null' &
far=$!
await $far
exec 4> other_end
beyond() { nsenter --net --target $far \"$@\"; }
there ip link add wan type veth peer name far
there ip link set far netns $far
there ip address add 10.99.2.1/24 dev wan
there ip link set wan up mtu 9000
there ip link set other mtu 9000
ip link set veth mtu 9000
beyond ip link set lo up
beyond ip address add 10.99.2.2/24 dev far
beyond ip link set far up mtu 9000
ip route add 10.99.2.0/24 via 10.99.1.2
beyond ip route add 10.99.1.0/24 via 10.99.2.1
there sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
there ip route change 10.99.2.0/24 dev wan mtu lock 1500
there ip route change 10.99.1.0/24 dev other mtu lock 1500
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

/// A router that drops packets says how long they may be. A connected queue pair can't use that any more, so its failure is
/// explained; the next connection does.
#[test]
fn a_path_that_is_narrower_than_the_interfaces_is_explained_and_then_used() {
    let script = "
export ROCI_EXPLAIN=1
nsenter --net --target $far $roci perf write-bw > /dev/null 2>&1 &
server=$!
fails() { $roci perf write-bw -n 4 -s 8192 10.99.2.2 2>&1 | tee perf | grep -q 'too long for the path'; }
repeat fails
cat perf
kill $server || true
nsenter --net --target $far $roci ping -s -P -a 10.99.2.2 > /dev/null 2>&1 &
server=$!
pings() { $roci ping -c -a 10.99.2.2 -C 4 -S 60000 > /dev/null 2> ping; }
repeat pings
cat ping
kill $server
echo connected";
    let Some(said) = on_two_machines("narrow", &format!("{A_ROUTER}{script}")) else {
        return;
    };
    for text in [
        "It carries IP packets of 1500 bytes, and the path MTU of the queue pair is 4096; 1024 fits",
        "Connections to 10.99.2.2 use a path MTU of 1024, not 4096",
    ] {
        assert!(said.contains(text), "{text}: {said}");
    }
    assert!(said.ends_with("connected\n"), "{said}");
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

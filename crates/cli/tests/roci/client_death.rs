//! A server under `roci run` learns that its client has died, on this machine and on another one.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::run_roci::{Directory, Running, is_installed, own_address, roci};

/// How long a server may take to listen.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that has begun to talk with its server. Until the server listens, clients are rejected.
fn client(server: &str) -> Running {
    let begin = Instant::now();
    loop {
        let words = ["run", "--", "stdbuf", "-oL", "rping", "-c", "-v", "-C"];
        let words = words.into_iter().chain(["1000000000", "-a", server]);
        let mut client = roci(words).env("ROCI_DEVICES", server).start();
        if client.line().starts_with("ping data") {
            client.read_on();
            return client;
        }
        assert!(begin.elapsed() < STEP_TIMEOUT, "the server does not listen");
    }
}

#[test]
fn a_server_ends_when_its_client_is_killed() {
    if !is_installed("rping") {
        return;
    }
    for signal in ["-TERM", "-SEGV", "-KILL"] {
        let here = own_address();
        let server = roci(["run", "--", "rping", "-s", "-a", &here]);
        let server = server.env("ROCI_DEVICES", &here).start();
        let client = client(&here);
        let begin = Instant::now();
        let id = client.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("`kill` is everywhere").success());
        let outcome = server.end();
        assert_eq!(outcome.code, Some(0), "{signal}: {}", outcome.stderr);
        println!("{signal}: the server ended after {:?}", begin.elapsed());
    }
}

/// Two hosts: network namespaces that a veth pair connects. The client is killed while it is connected.
const TWO_MACHINES: &str = r#"
ip link set lo up || exit 0
unshare -n sleep 120 & other=$!
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
ip link add here type veth peer name there netns $other || exit 0
ip address add 10.97.0.1/24 dev here && ip link set here up
nsenter -t $other -n ip address add 10.97.0.2/24 dev there
nsenter -t $other -n ip link set there up
"$ROCI" run -- rping -s -a 10.97.0.1 & server=$!
client=
for try in $(seq 300); do
  if [ -z "$client" ] || ! kill -0 $client 2>/dev/null; then
    nsenter -t $other -n "$ROCI" run -- stdbuf -oL rping -c -v -a 10.97.0.1 -C 1000000000 \
      > "$XDG_RUNTIME_DIR/said" & client=$!
  fi
  grep -q "ping data" "$XDG_RUNTIME_DIR/said" && break
  sleep 0.1
done
kill -9 $client
for look in $(seq 400); do
  kill -0 $server 2>/dev/null || break
  sleep 0.05
done
kill -9 $other
if kill -9 $server 2>/dev/null; then echo "the server waits"; else wait $server; echo "ended with $?"; fi
"#;

#[test]
fn a_server_on_another_machine_ends_when_its_client_is_killed() {
    let may = Command::new("unshare").args(["-Urn", "true"]).output();
    if !is_installed("rping") || !may.is_ok_and(|it| it.status.success()) {
        return;
    }
    let directory = Directory::new("end");
    let output = Command::new("timeout")
        .args(["120", "unshare", "-Urn", "sh", "-c", TWO_MACHINES])
        .env("ROCI", env!("CARGO_BIN_EXE_roci"))
        .env("XDG_RUNTIME_DIR", directory.path())
        .env_remove("ROCI_DEVICES")
        .output()
        .expect("timeout is everywhere");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    // Nothing is said where there can be no second machine.
    if !said.is_empty() {
        assert_eq!(said, "ended with 0\n", "{complained}");
    }
}

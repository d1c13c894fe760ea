//! What happens to ids when interfaces change, in a network namespace of its own.

use std::process::Command;
use std::time::Duration;

use rocinante::rdma_cm::{EventChannel, EventKind, PortSpace};
use rocinante::{AsyncEvent, Context};

const TIMEOUT: Duration = Duration::from_secs(10);

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status();
    assert!(status.expect("iproute2").success(), "ip {words}");
}

fn next(channel: &EventChannel) -> EventKind {
    channel.wait_for(TIMEOUT).expect("an event").kind
}

/// What the test below starts in a namespace of its own.
#[test]
#[ignore = "runs in a network namespace that another test makes"]
fn child_in_a_namespace() {
    let channel = EventChannel::new().unwrap();
    let moving = channel.create_id(PortSpace::Tcp);
    moving.bind("10.6.0.1:7174".parse().unwrap()).unwrap();
    moving.listen(1).unwrap();
    ip("address del 10.6.0.1/24 dev d0");
    ip("address add 10.6.0.1/24 dev d1");
    assert_eq!(next(&channel), EventKind::AddressChange);

    ip("link del d1");
    assert_eq!(next(&channel), EventKind::DeviceRemoval);

    let context = Context::open("d2").unwrap();
    ip("link set d2 down");
    assert_eq!(context.wait_event(TIMEOUT), Some(AsyncEvent::PortError));
    ip("link set d2 up");
    assert_eq!(context.wait_event(TIMEOUT), Some(AsyncEvent::PortActive));
    println!("all were noticed");
}

#[test]
fn moved_address_removed_interface_and_link_state_are_noticed() {
    let setup = "set -e
        ip link set lo up
        ip link add d0 type veth peer name p0
        ip link add d1 type veth peer name p1
        ip link add d2 type veth peer name p2
        for it in d0 p0 d1 p1 d2 p2; do ip link set $it up; done
        ip address add 10.6.0.1/24 dev d0
        ip address add 10.7.0.1/24 dev d2";
    let namespace = |script: String| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sh", "-c", &script]);
        command.output()
    };
    if !namespace(setup.to_owned()).is_ok_and(|output| output.status.success()) {
        println!("skipped: no network namespace with interfaces here");
        return;
    }
    let test = std::env::current_exe().expect("this test");
    let child = "child_in_a_namespace --exact --ignored --nocapture";
    let output = namespace(format!("{setup}\nexec {} {child}", test.display())).expect("output");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("all were noticed"), "{output:?}");
}

//! `roci ping` says what rping says, on both sides, and gives up in a sentence.

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::run_roci::{Roci, Running, address, own_address, roci};

/// What rping sends first and second.
const FIRST: &str = r"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqr";
const SECOND: &str = r"rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqrs";

/// What an rping server says when its client has left.
const SERVER_END: &str = "server DISCONNECT EVENT...\nwait for RDMA_READ_ADV state 10\n";

/// What a client says in the end.
const CLIENT_END: &str = "client DISCONNECT EVENT...\n";

/// It pings between addresses of the loopback network that are not listed as devices.
fn ping(arguments: &[&str], more: &[&str]) -> Roci {
    roci([&["ping"], arguments, more].concat()).without_env("ROCI_DEVICES")
}

/// Starts a server that prints data, and waits until it listens, which only `-d` prints.
fn server(at: &str, more: &[&str]) -> Running {
    start_server(ping(&["-s", "-d", "-v", "-a", at], more))
}

fn start_server(server: Roci) -> Running {
    let mut server = server.start();
    assert_eq!(server.line(), "rdma_bind_addr successful");
    assert_eq!(server.line(), "rdma_listen");
    server.read_on();
    server
}

/// A client that pings from an address of its own.
fn client(from: &str, to: &str, more: &[&str]) -> Roci {
    ping(&["-c", "-a", to, "-I", from], more)
}

/// A client that pings without end exits with rping's disconnect message when its server ends the connection.
fn expect_disconnect(client: Running) {
    let outcome = client.end();
    assert!(
        outcome
            .stderr
            .starts_with("client DISCONNECT EVENT...\nwait for RDMA_")
    );
    // The client was not interrupted, so it exits with 1.
    assert_eq!(outcome.code, Some(1));
    let complaint = outcome.stderr.lines().last().expect("a complaint");
    assert!(
        complaint.contains("ended the connection after") && !complaint.contains(" of "),
        "{complaint}"
    );
}

/// The data that a server has printed, without the steps between.
fn data(output: &str) -> Vec<&str> {
    let lines = output.lines();
    lines
        .filter_map(|line| line.strip_prefix("server ping data: "))
        .collect()
}

/// The disk fills up in the middle of a session: the session continues, and one message is printed.
#[test]
fn full_disk_ends_a_capture_with_one_message_and_the_program_continues() {
    let (here, there) = (address(92), address(93));
    let server = server(&there, &[]);
    let full = client(&here, &there, &["-v", "-C", "10"]).env("ROCI_PCAP", "/dev/full");
    let outcome = full.run();
    let complaint = "the capture in /dev/full ends early: No space left on device";
    assert_eq!(
        outcome.stderr.matches(complaint).count(),
        1,
        "{}",
        outcome.stderr
    );
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    let printed = outcome.success();
    assert_eq!(printed.matches("ping data: ").count(), 10, "{printed}");
    server.end().success();
}

/// The kernel sends SIGXFSZ to a program that makes a file too large. Neither the capture nor the memory that both processes
/// share, which counts as a file, is the program's own.
#[test]
fn a_file_size_limit_ends_a_capture_and_not_the_program() {
    let (here, there) = (address(94), address(95));
    let server =
        start_server(ping(&["-s", "-d", "-v", "-a", &there], &[]).with_file_size_limit(40));
    let name = format!("roci-ping-{}-small.pcapng", std::process::id());
    let file = std::env::temp_dir().join(name);
    let client = client(&here, &there, &["-v", "-C", "100"]).env("ROCI_PCAP", &file);
    let outcome = client.with_file_size_limit(40).run();
    let complaint = "-small.pcapng ends early: File too large";
    let said = &outcome.stderr;
    assert_eq!(said.matches(complaint).count(), 1, "{said}");
    let printed = outcome.success();
    assert_eq!(printed.matches("ping data: ").count(), 100);
    server.end().success();
    let length = std::fs::metadata(&file).expect("a capture").len();
    std::fs::remove_file(file).expect("a capture");
    assert!((1..=40 * 512).contains(&length), "{length}");
}

#[test]
fn both_sides_print_the_same_as_rping() {
    let there = address(40);
    let server = server(&there, &[]);
    let outcome = client(&address(41), &there, &["-vV", "-C", "2"]).run();
    assert_eq!(outcome.stderr, CLIENT_END);
    assert_eq!(
        outcome.success(),
        format!("ping data: {FIRST}\nping data: {SECOND}\n")
    );
    let outcome = server.end();
    assert_eq!(outcome.stderr, SERVER_END);
    assert_eq!(data(&outcome.success()), [FIRST, SECOND]);
}

#[test]
fn verbose_output_equals_that_of_rping() {
    let there = address(42);
    let server = server(&there, &[]);
    let said = client(&address(43), &there, &["-d", "-C", "1", "-S", "100"]);
    let said = said.run().success();
    assert!(said.contains("\nrdma_connect successful\nRDMA addr "));
    assert!(said.contains(" len 100\n"), "{said}");
    let said = server.end().success();
    let mut rest = said.as_str();
    for step in [
        "accepting client connection request",
        "ESTABLISHED",
        "recv completion",
        "server received sink adv",
        "server posted rdma read req ",
        "rdma read completion",
        "server received read complete",
        "server posted go ahead",
        "server received sink adv",
        "rdma write from lkey ",
        "rdma write completion",
        "server rdma write complete ",
        "server posted go ahead",
    ] {
        let at = rest.find(step);
        let at = at.unwrap_or_else(|| panic!("no `{step}` in its place in {said}"));
        rest = &rest[at + step.len()..];
    }
}

#[test]
fn ping_works_with_the_smallest_and_the_largest_size() {
    let there = address(44);
    let server = server(&there, &["-P"]);
    for size in ["26", "1000", "4097", "65535", "64K"] {
        let pings = client(&address(45), &there, &["-v", "-V", "-C", "3", "-S", size]);
        let bytes = match size {
            "64K" => 65536,
            size => size.parse::<usize>().expect("a number"),
        };
        let printed = pings.run().success();
        let lengths: Vec<usize> = printed.lines().map(str::len).collect();
        // The zero at the end is not printed.
        assert_eq!(lengths, ["ping data: ".len() + bytes - 1; 3]);
    }
    server.interrupt();
    assert_eq!(server.end().code, Some(130));
}

#[test]
fn ping_works_over_ipv6() {
    // There is only one loopback address, so the port must be this run's own.
    let port = (20_000 + std::process::id() % 20_000).to_string();
    let server = server("::1", &["-p", &port]);
    let pings = ping(
        &["-c", "-a", "::1", "-p", &port, "-v", "-V", "-C", "1"],
        &[],
    );
    let printed = pings.run().success();
    assert_eq!(printed, format!("ping data: {FIRST}\n"));
    let outcome = server.end();
    assert_eq!(outcome.stderr, SERVER_END);
    assert_eq!(data(&outcome.success()), [FIRST]);
}

#[test]
fn a_server_without_an_address_listens_at_all_of_them() {
    let devices = format!("a=::1+{}", address(46));
    let port = (40_000 + std::process::id() % 20_000).to_string();
    let server = roci(["ping", "-s", "-P", "-d", "-p", &port]).env("ROCI_DEVICES", &devices);
    let mut server = server.start();
    assert_eq!(server.line(), "rdma_bind_addr successful");
    for at in [&address(46), "::1"] {
        let pings = roci(["ping", "-c", "-V", "-C", "1", "-a", at, "-p", &port]);
        pings.env("ROCI_DEVICES", &devices).run().success();
    }
    server.interrupt();
    assert_eq!(server.end().code, Some(130));
}

#[test]
fn a_persistent_server_has_three_clients_at_once_and_one_later() {
    let there = address(50);
    let server = server(&there, &["-P"]);
    let pings = ["-v", "-V", "-C", "200", "-S", "3000"];
    let clients = [51, 52, 53].map(|host| client(&address(host), &there, &pings).start());
    for client in clients {
        let outcome = client.end();
        assert_eq!(outcome.stderr, CLIENT_END);
        assert_eq!(outcome.success().lines().count(), 200);
    }
    client(&address(51), &there, &["-C", "1"]).run().success();
    server.interrupt();
    let outcome = server.end();
    assert_eq!(outcome.stderr, SERVER_END.repeat(4));
    assert_eq!(data(&outcome.stdout).len(), 601);
}

#[test]
fn output_is_the_same_over_a_lossy_network() {
    let there = address(54);
    let server = server(&there, &[]);
    let pings = client(&address(55), &there, &["-v", "-V", "-C", "20", "-S", "8K"]);
    let printed = pings.env("ROCI_FAULT", "loss=3%,seed=5").run().success();
    assert_eq!(printed.lines().count(), 20);
    assert_eq!(data(&server.end().success()).len(), 20);
}

#[test]
fn an_interrupted_client_disconnects() {
    let there = address(56);
    let server = server(&there, &[]);
    let mut client = client(&address(57), &there, &["-v"]).start();
    assert_eq!(client.line(), format!("ping data: {FIRST}"));
    client.interrupt();
    let outcome = client.end();
    assert_eq!((outcome.code, &*outcome.stderr), (Some(130), ""));
    let said = server.end();
    assert!(
        said.stderr
            .starts_with("server DISCONNECT EVENT...\nwait for RDMA_")
    );
    said.success();
}

#[test]
fn an_interrupted_server_disconnects() {
    let there = address(58);
    let server = server(&there, &[]);
    let mut endless = client(&address(59), &there, &["-v"]).start();
    assert_eq!(endless.line(), format!("ping data: {FIRST}"));
    server.interrupt();
    assert_eq!(server.end().code, Some(130));
    expect_disconnect(endless);
}

#[test]
fn a_server_that_ends_early_fails_a_client_with_a_count() {
    let there = address(60);
    let server = server(&there, &[]);
    let mut counting = client(&address(61), &there, &["-v", "-C", "1000000"]).start();
    counting.line();
    server.interrupt();
    let outcome = counting.end();
    assert_eq!(outcome.code, Some(1));
    let complaint = outcome.stderr.lines().last().expect("a complaint");
    assert!(
        complaint.contains("ended the connection after") && complaint.contains("of 1000000 pings"),
        "{complaint}"
    );
}

/// The watcher of the dead process disconnects for it.
#[test]
fn a_peer_that_dies_is_announced() {
    let there = address(62);
    let server = server(&there, &["-P"]);
    let mut client = client(&address(63), &there, &["-v"]).start();
    client.line();
    drop(server);
    expect_disconnect(client);
}

/// As when the whole machine is gone: there is no watcher that sends a DREQ.
#[test]
fn a_peer_that_stops_answering_is_reported() {
    let there = address(96);
    let arguments = ["-s", "-d", "-v", "-a", &there];
    let server = start_server(ping(&arguments, &["-P"]).env("ROCI_WATCHER", "0"));
    let mut client = client(&address(97), &there, &["-v"]).start();
    client.line();
    drop(server);
    let complaint = client.end().complaint();
    let expected = format!("roci: {there}:7174 no longer answers");
    assert!(complaint.starts_with(&expected), "{complaint}");
}

#[test]
fn a_missing_listener_is_reported_at_once() {
    let there = address(64);
    let _server = server(&there, &["-P"]);
    let begin = Instant::now();
    let complaint = client(&address(65), &there, &["-p", "7175"]).run();
    assert_eq!(
        complaint.complaint(),
        format!(
            "roci: no program listens at {there}:7175: start the server first, and check address and port"
        )
    );
    // A client gives up a server that does not answer after ten seconds.
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_busy_server_rejects_a_second_client() {
    let there = address(66);
    let _server = server(&there, &[]);
    let mut first = client(&address(67), &there, &["-v"]).start();
    first.line();
    let complaint = client(&address(68), &there, &["-C", "1"]).run().complaint();
    assert!(complaint.contains("no program listens at"), "{complaint}");
}

#[test]
fn a_silent_host_times_out() {
    let there = own_address();
    let _silent = UdpSocket::bind((&*there, 4791)).expect("an address of its own");
    let begin = Instant::now();
    let complaint = client(&own_address(), &there, &[]).run().complaint();
    assert!(
        complaint.contains("does not answer: is the machine up"),
        "{complaint}"
    );
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_host_without_any_server_is_named() {
    let client = client(&own_address(), &own_address(), &[]);
    let complaint = client.run().complaint();
    assert!(complaint.contains("start the server first"), "{complaint}");
}

#[test]
fn unresolvable_names_and_addresses_are_named() {
    let rejected = |arguments: &[&str]| roci([&["ping"], arguments].concat()).run().complaint();
    for (arguments, complaint) in [
        (
            &["-c", "-a", "no.such.host.invalid"][..],
            "roci: `no.such.host.invalid` is neither an address nor a known host name",
        ),
        (
            &["-s", "-a", "300.0.0.1"],
            "roci: `300.0.0.1` is neither an address",
        ),
        (
            &["-s", "-a", "192.0.2.1"],
            "roci: no RDMA device has the address 192.0.2.1",
        ),
        (
            &["-c", "-a", "127.0.0.1", "-I", "192.0.2.1"],
            "roci: no RDMA device has the address 192.0.2.1",
        ),
        (
            &["-c", "-a", "::1", "-I", "127.0.0.1"],
            "roci: 127.0.0.1 can't talk to ::1",
        ),
    ] {
        let said = rejected(arguments);
        assert!(said.starts_with(complaint), "{said}");
        assert!(!said.contains("os error"), "{said}");
    }
}

#[test]
fn a_port_that_is_taken_names_its_process() {
    let there = address(71);
    let first = server(&there, &["-P"]);
    let complaint = ping(&["-s", "-a", &there], &[]).run().complaint();
    let expected = format!("roci: port 7174 is taken by process {}", first.id());
    assert!(complaint.starts_with(&expected), "{complaint}");
}

#[test]
fn a_missing_route_is_reported_in_a_sentence() {
    let empty = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        let command = command.args(["--user", "--map-root-user", "--net", program]);
        command.args(arguments).env_remove("ROCI_DEVICES").output()
    };
    if !empty("true", &[]).is_ok_and(|output| output.status.success()) {
        println!("skipped: no network namespace here");
        return;
    }
    for server in ["192.0.2.1", "2001:db8::1"] {
        let pings = ["ping", "-c", "-a", server];
        let output = empty(env!("CARGO_BIN_EXE_roci"), &pings).expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).expect("text");
        let expected = format!("roci: there is no route to {server}: check the address");
        assert!(
            said.starts_with(&expected) && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn a_side_and_a_server_must_be_named() {
    for wrong in [
        &["ping"][..],
        &["ping", "-c"],
        &["ping", "-s", "-c", "-a", "::1"],
        &["ping", "-s", "-S", "25"],
    ] {
        assert_eq!(roci(wrong).run().code, Some(2), "{wrong:?}");
    }
}

#[test]
fn round_trip_times_are_printed() {
    let here = address(76);
    let server = server(&here, &["-p", "7395"]);
    let printed = client(&address(77), &here, &["-p", "7395", "-C", "3", "-t"]);
    let printed = printed.run().success();
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 4, "{printed}");
    for (number, line) in lines[..3].iter().enumerate() {
        let start = format!("64 bytes to {here}:7395 and back: ping {number}, ");
        let time = line
            .strip_prefix(&start)
            .and_then(|rest| rest.strip_suffix(" us"));
        let time: f64 = time.and_then(|time| time.parse().ok()).expect(line);
        assert!(time > 0.0, "{line}");
    }
    assert!(
        lines[3].starts_with("3 pings, round trip min/avg/max/mdev = "),
        "{printed}"
    );
    server.end().success();
}

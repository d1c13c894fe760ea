//! Runs the tutorial programs, and checks their output, exit status and captures.

mod capture;
mod run;

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};

use capture::Capture;
use run::{Directory, Pair, Running, alone, without_a_reader};
use wire::{Deth, Flow, NakCode, Opcode, PacketHead, Psn, Qpn, QueueKey, ROCE_PORT, icrc};

const HELLO: &str = "\">>> client saying hello .......... \"";
const BEFORE: &str = "buffer  \"--- nothing has arrived ---\"";

#[test]
fn lo_rc_send_is_in_the_capture_although_it_never_leaves_the_machine() {
    let directory = Directory::new("lo_rc_send");
    let said = alone(&directory, 1, "lo_rc_send", &[]);
    assert!(said.contains("17 bytes, \"hello, queue pair\""), "{said}");
    let capture = Capture::read(&directory.file("lo_rc_send.pcapng"));
    assert!(capture.has(Opcode::RcSendOnly));
    assert!(capture.has(Opcode::RcAcknowledge));
}

#[test]
fn a_reader_that_stops_early_ends_the_program_without_an_error() {
    let directory = Directory::new("stops-early");
    assert_eq!(without_a_reader(&directory, 25, "lo_rc_send"), "");
}

/// The C programs, with their sources.
fn c_programs() -> Vec<(PathBuf, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let files = fs::read_dir(directory).expect("the programs are there");
    let paths = files.map(|file| file.expect("it can be read").path());
    // A user may have compiled them there.
    let sources = paths.filter(|path| path.extension().is_some_and(|it| it == "c"));
    sources
        .map(|path| (path.clone(), fs::read_to_string(path).expect("a text")))
        .collect()
}

/// These calls return the number of the error and leave `errno` as it was.
#[test]
fn no_c_program_prints_errno_for_a_call_that_returns_its_error() {
    const CALLS: [&str; 5] = [
        "post_send",
        "post_recv",
        "req_notify_cq",
        "modify_qp",
        "query_port",
    ];
    for (path, text) in c_programs() {
        let lines: Vec<&str> = text.lines().collect();
        for (number, pair) in lines.windows(2).enumerate() {
            let calls = CALLS
                .iter()
                .any(|call| pair[0].contains(&format!("if (ibv_{call}(")));
            let reports = pair[1].contains("die(");
            assert!(!(calls && reports), "{}:{}", path.display(), number + 1);
        }
    }
}

/// What a page shows is compiled, because it is a part of a program.
#[test]
fn code_on_the_page_about_memory_is_that_of_the_programs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("a text");
    let page = read("docs/tutorial/10-memory.md");
    let programs = [
        ("```c\n", read("examples/c/watch_memory.c")),
        ("```rust\n", read("examples/rust/chat.rs")),
    ];
    for (fence, program) in programs {
        let shown: Vec<&str> = page
            .split(fence)
            .skip(1)
            .map(|block| block.split("```").next().unwrap_or_default())
            .collect();
        assert!(!shown.is_empty(), "{fence}");
        for code in shown {
            assert!(program.contains(code), "{code}");
        }
    }
}

/// `getopt` stops at the first other word if its list of options begins with a plus: the server's address is then `-g`.
#[test]
fn c_programs_take_options_before_and_after_other_words() {
    for (path, text) in c_programs() {
        let stops_early = text
            .lines()
            .any(|line| line.contains("getopt") && line.contains("\"+"));
        assert!(!stops_early, "{}", path.display());
    }
}

/// Runs `rc_test`, the client and the server with the same options; what they said.
fn rc_test(number: u8, name: &str, options: &[&str]) -> (Directory, String, String) {
    let directory = Directory::new(name);
    let pair = Pair::new(&directory, number, "rc_test");
    let mut server = pair.server(&[options, &["--port", "0"]].concat(), "");
    let (address, port) = (pair.server_address(), server.port());
    let client = ["--server-ip", &address, "--port", &port];
    let client = pair.client(&[options, &client].concat(), "").success();
    (directory, server.success(), client)
}

#[test]
fn rc_test_sends() {
    let (directory, server, client) = rc_test(2, "send", &["--mode", "send"]);
    assert!(server.contains(BEFORE), "{server}");
    assert!(server.contains(&format!("buffer  {HELLO}")), "{server}");
    assert!(client.contains("status 0 (Success)"), "{client}");
    for file in ["rc_test-server.pcapng", "rc_test-client.pcapng"] {
        let capture = Capture::read(&directory.file(file));
        // Opcode 4.
        assert!(capture.has(Opcode::RcSendOnly), "{file}");
    }
}

#[test]
fn rc_test_writes_without_the_server() {
    let (directory, server, client) = rc_test(3, "write", &["--mode", "write"]);
    assert!(server.contains(&format!("buffer  {HELLO}")), "{server}");
    assert!(!server.contains("receive"), "{server}");
    assert!(client.contains("opcode 10"), "{client}");
    let capture = Capture::read(&directory.file("rc_test-client.pcapng"));
    // Opcode 10.
    assert!(capture.has(Opcode::RcWriteOnly));
}

#[test]
fn rc_test_is_introduced_by_the_connection_manager() {
    let options = ["--cm", "--mode", "write"];
    let (directory, server, client) = rc_test(4, "cm", &options);
    assert!(server.contains("asks for a connection"), "{server}");
    assert!(server.contains(&format!("buffer  {HELLO}")), "{server}");
    assert!(client.contains("server  accepts: rkey=0x"), "{client}");
    let capture = Capture::read(&directory.file("rc_test-client.pcapng"));
    // The manager's messages are datagrams to queue pair 1.
    assert!(capture.has(Opcode::UdSendOnly));
    assert!(capture.has(Opcode::RcWriteOnly));
    // The client waits for the answer to its disconnect.
    assert!(capture.has_disconnect_reply());
}

/// What every kind of `--break` must lead to.
fn breaks(number: u8, fault: &str, status: &str, verdict: &str) -> Capture {
    let options = ["--break", fault];
    let (directory, server, client) = rc_test(number, fault, &options);
    assert!(client.contains(status), "{client}");
    assert!(client.contains(verdict), "{client}");
    assert!(!server.contains(HELLO), "{server}");
    Capture::read(&directory.file("rc_test-client.pcapng"))
}

#[test]
fn memory_without_the_right_is_the_servers_fault() {
    let capture = breaks(
        5,
        "access",
        "status 10 (RemoteAccess)",
        "At fault: the server",
    );
    assert!(capture.rejects(NakCode::RemoteAccess));
}

#[test]
fn a_wrong_key_is_the_clients_fault() {
    let capture = breaks(
        6,
        "rkey",
        "status 10 (RemoteAccess)",
        "At fault: the client",
    );
    assert!(capture.rejects(NakCode::RemoteAccess));
}

#[test]
fn a_wrong_address_is_the_clients_fault() {
    let capture = breaks(
        7,
        "addr",
        "status 10 (RemoteAccess)",
        "At fault: the client",
    );
    assert!(capture.rejects(NakCode::RemoteAccess));
}

#[test]
fn a_missing_receive_is_the_servers_fault() {
    let capture = breaks(
        8,
        "recv",
        "status 13 (ReceiverNotReady)",
        "At fault: the server",
    );
    // `rnr_retry` of the program.
    assert_eq!(capture.retries_after_rnr(), 3);
}

#[test]
fn different_options_are_reported() {
    let directory = Directory::new("differ");
    let pair = Pair::new(&directory, 9, "rc_test");
    let mut server = pair.server(&["--mode", "send", "--port", "0"], "");
    let (address, port) = (pair.server_address(), server.port());
    let client = ["--mode", "write", "--server-ip", &address, "--port", &port];
    let mut client = pair.client(&client, "");
    assert!(client.complaint().contains("closed the connection"));
    assert!(server.complaint().contains("give both the same options"));
}

#[test]
fn a_server_ends_with_its_client_if_no_text_arrives() {
    let directory = Directory::new("no-text");
    let pair = Pair::new(&directory, 30, "rc_test");
    let mut server = pair.server(&["--mode", "send", "--port", "0"], "");
    let (address, port) = (pair.server_address(), server.port());
    let client = ["--mode", "send", "--server-ip", &address, "--port", &port];
    let mut client = pair.client_with_faults("drop:opcode=RC_SEND_ONLY", &client, "");
    assert!(client.complaint().contains("the text did not arrive"));
    let complaint = server.complaint();
    assert!(
        complaint.contains("the client has ended without sending a text"),
        "{complaint}"
    );
}

#[test]
fn device_memory_shows_every_operation() {
    let directory = Directory::new("device_memory");
    let pair = Pair::new(&directory, 10, "device_memory");
    let mut server = pair.server(&["server", "--port", "0", "-g", "0"], "");
    let (address, port) = (pair.server_address(), server.port());
    let mut client = pair.client(&["client", &address, "--port", &port, "-g", "0"], "");
    let (client, server) = (client.success(), server.success());
    assert!(
        client.contains("READ     \"hello from the device's own memory\""),
        "{client}"
    );
    let afterwards = server
        .split("Afterwards:")
        .nth(1)
        .expect("the memory twice");
    for line in [
        "inbox     \"a SEND has no destination.\"",
        "board     \"a WRITE has a destination.\"",
        "flag      7",
        "tickets   2",
    ] {
        assert!(afterwards.contains(line), "{line}: {server}");
    }
    let capture = Capture::read(&directory.file("device_memory-client.pcapng"));
    for opcode in [
        Opcode::RcSendOnly,
        Opcode::RcReadRequest,
        Opcode::RcWriteOnly,
        Opcode::RcCompareSwap,
        Opcode::RcFetchAdd,
        Opcode::RcAtomicAcknowledge,
    ] {
        assert!(capture.has(opcode), "{opcode:?}");
    }
}

#[test]
fn a_lock_in_device_memory_holds_between_clients() {
    let directory = Directory::new("lock");
    let options = ["lock", "--clients", "4", "--times", "25"];
    let said = alone(&directory, 12, "device_memory", &options);
    assert!(said.contains("counter  100: 4 x 25 = 100"), "{said}");
}

#[test]
fn a_lock_in_device_memory_holds_between_processes() {
    let directory = Directory::new("lock-processes");
    let pair = Pair::new(&directory, 13, "device_memory");
    let mut server = pair.server(&["server", "--port", "0", "--clients", "2"], "");
    let (address, port) = (pair.server_address(), server.port());
    let client = ["client", &address, "--port", &port, "--increment", "25"];
    let (mut first, mut second) = (pair.client(&client, ""), pair.client(&client, ""));
    first.success();
    second.success();
    let said = server.success();
    assert!(said.contains("counter   50"), "{said}");
}

#[test]
fn cm_sum_adds() {
    let directory = Directory::new("cm_sum");
    let pair = Pair::new(&directory, 14, "cm_sum");
    let mut server = pair.server(&["server", "--port", "0"], "");
    let (address, port) = (pair.server_address(), server.port());
    let mut client = pair.client(&["client", &address, "40", "2", "--port", &port], "");
    let client = client.success();
    assert!(client.contains("client  the server says 42"), "{client}");
    let events = [
        "ADDR_RESOLVED",
        "ROUTE_RESOLVED",
        "CONNECT_RESPONSE",
        "DISCONNECTED",
    ];
    let reported: Vec<_> = client
        .lines()
        .filter_map(|line| line.strip_prefix("event   "))
        .collect();
    assert_eq!(reported, events);
    assert!(server.success().contains("server  40 + 2 = 42"));
    let capture = Capture::read(&directory.file("cm_sum-client.pcapng"));
    assert!(capture.has(Opcode::UdSendOnly) && capture.has(Opcode::RcWriteOnly));
}

#[test]
fn chat_shows_what_was_typed_and_ends_with_q() {
    let directory = Directory::new("chat");
    let pair = Pair::new(&directory, 15, "chat");
    let mut server = pair.server(&["server", "--port", "0"], "good morning\n");
    let (address, port) = (pair.server_address(), server.port());
    let mut client = pair.client(&["client", &address, "--port", &port], "one\ntwo\nq\n");
    let (client, server) = (client.success(), server.success());
    for line in ["  [seen] one", "  [seen] two"] {
        assert!(client.contains(line), "{client}");
    }
    let shown: Vec<_> = server
        .lines()
        .filter(|line| line.starts_with("> "))
        .collect();
    assert_eq!(shown, ["> one", "> two"]);
    assert!(server.contains("the peer has disconnected"), "{server}");
    let capture = Capture::read(&directory.file("chat-client.pcapng"));
    assert!(capture.has(Opcode::RcWriteOnly) && capture.has(Opcode::RcReadRequest));
    assert!(capture.has_disconnect_reply(), "the client waits for it");
}

#[test]
fn chat_ends_when_a_line_does_not_arrive() {
    let directory = Directory::new("chat-lost");
    let pair = Pair::new(&directory, 31, "chat");
    let mut server = pair.server(&["server", "--port", "0"], "");
    let (address, port) = (pair.server_address(), server.port());
    let client = ["client", &address, "--port", &port];
    let mut client = pair.client_with_faults("drop:opcode=RC_WRITE_ONLY", &client, "one\ntwo\n");
    let client = client.success();
    assert!(
        client.contains("it did not see this line: one") && !client.contains("two"),
        "{client}"
    );
    assert!(server.success().contains("the peer has disconnected"));
}

/// Runs `key_value` with two clients, one after the other; what they said.
fn key_value(directory: &Directory, number: u8, options: &[&str]) -> [String; 2] {
    let pair = Pair::new(directory, number, "key_value");
    let server = [&["server", "--clients", "2", "--port", "0"], options].concat();
    let mut server = pair.server(&server, "");
    let (address, port) = (pair.server_address(), server.port());
    let client = [&["client", &address, "--port", &port], options].concat();
    let input = "set colour dark blue\nget colour\nget size\nnonsense\n";
    let first = pair.client(&client, input).success();
    let second = pair
        .client(&client, "get colour\ndelete colour\nget colour\n")
        .success();
    server.success();
    [first, second]
}

#[test]
fn key_value_says_the_same_over_rdma_and_over_tcp() {
    let expected = [
        "ok\nvalue dark blue\nnone\nerror: set KEY VALUE, get KEY or delete KEY\n",
        "value dark blue\nok\nnone\n",
    ];
    let directory = Directory::new("key_value");
    assert_eq!(key_value(&directory, 40, &[]), expected);
    let capture = Capture::read(&directory.file("key_value-client.pcapng"));
    assert!(capture.has(Opcode::RcSendOnly) && capture.has_disconnect_reply());
    assert_eq!(key_value(&directory, 41, &["--tcp"]), expected);
}

#[test]
fn sync_async_echoes_in_three_ways() {
    let directory = Directory::new("sync_async");
    let said = alone(&directory, 16, "sync_async", &["--rounds", "50"]);
    for way in ["blocking", "epoll", "async"] {
        let line = format!("{way:<9} 50 messages came back unchanged");
        assert!(said.contains(&line), "{way}: {said}");
    }
}

/// Runs `ud_echo` with one client; what the two said.
fn ud_echo(
    number: u8,
    name: &str,
    server: &[&str],
    client: &[&str],
) -> (Directory, String, String) {
    let directory = Directory::new(name);
    let pair = Pair::new(&directory, number, "ud_echo");
    let mut serving = pair.server(&[&["server", "--port", "0"], server].concat(), "");
    let (address, port) = (pair.server_address(), serving.port());
    let client = [&["client", &address, "--port", &port], client].concat();
    let client = pair.client(&client, "").success();
    (directory, serving.success(), client)
}

#[test]
fn ud_echo_answers_datagrams() {
    let (directory, server, client) = ud_echo(18, "ud_echo", &[], &[]);
    // 40 bytes of header and 7 of text.
    assert!(server.contains("receive 47 bytes"), "{server}");
    assert!(
        client.contains("\"3 hello\" was answered by \"3 HELLO\""),
        "{client}"
    );
    let capture = Capture::read(&directory.file("ud_echo-client.pcapng"));
    assert!(capture.has(Opcode::UdSendOnly));
    assert!(!capture.has(Opcode::RcSendOnly));
}

#[test]
fn ud_echo_asks_a_multicast_group() {
    let [.., high, low] = std::process::id().to_be_bytes();
    let group = format!("239.18.{high}.{low}");
    let options = ["--group", &group];
    let (_, server, client) = ud_echo(19, "ud_echo-group", &options, &options);
    assert!(server.contains("has joined the group"), "{server}");
    assert!(client.contains("answered by \"1 HELLO\""), "{client}");
}

#[test]
fn ud_echo_drops_datagrams_with_another_key() {
    let directory = Directory::new("ud_echo-key");
    let pair = Pair::new(&directory, 20, "ud_echo");
    let mut server = pair.server(&["server", "--port", "0"], "");
    let (address, port) = (pair.server_address(), server.port());
    let client = ["client", &address, "--port", &port, "--key", "0x4321"];
    let complaint = pair.client(&client, "").complaint();
    assert!(complaint.contains("was not answered"), "{complaint}");
    assert!(!server.success().contains("receive"));
}

#[test]
fn ud_echo_repeats_a_lost_question() {
    let directory = Directory::new("ud_echo-loss");
    let pair = Pair::new(&directory, 21, "ud_echo");
    let mut server = pair.server(&["server", "--port", "0"], "");
    let (address, port) = (pair.server_address(), server.port());
    let client = ["client", &address, "--port", &port];
    let mut client = pair.client_with_faults("drop:opcode=UD_SEND_ONLY,nth=2", &client, "");
    let client = client.success();
    // On a busy machine the first question may be repeated, too. Then this repetition is the lost one.
    let is_repeated = |line: &str| line.contains("answered by") && !line.ends_with("attempt 1");
    assert!(client.lines().any(is_repeated), "{client}");
    server.success();
}

/// Sends a datagram to a queue pair of `ud_echo`, with an address and a queue pair as its source.
fn send_to_ud_echo((address, number): (&str, Qpn), (from, queue_pair): (&str, Qpn), text: &[u8]) {
    let socket = UdpSocket::bind((from, 0)).expect("an address of loopback");
    let flow = Flow {
        source: from.parse().expect("an address"),
        destination: address.parse().expect("an address"),
        source_port: socket.local_addr().expect("it is bound").port(),
        destination_port: ROCE_PORT,
    };
    let head = PacketHead::new(Opcode::UdSendOnly, number, Psn::new(0))
        .push(&Deth::new(QueueKey::new(0x1234), queue_pair));
    let mut packet = [head.bytes(), text].concat();
    // Linux sends short datagrams of an unconnected socket with identification 0.
    packet.extend(icrc::checksum(&flow, 0, &packet));
    let sent = socket.send_to(&packet, (flow.destination, ROCE_PORT));
    assert_eq!(sent.ok(), Some(packet.len()));
}

/// The queue pair of a running `ud_echo` server.
fn number_of(server: &Running) -> Qpn {
    let (_, rest) = server.output().split_once("qpn=0x").expect("it prints it");
    let digits = rest.split(' ').next().expect("a number");
    Qpn::new(u32::from_str_radix(digits, 16).expect("a number"))
}

#[test]
fn ud_echo_survives_texts_whose_reply_is_too_long() {
    let directory = Directory::new("ud_echo-long");
    let pair = Pair::new(&directory, 22, "ud_echo");
    let mut server = pair.server(&["server", "--port", "0"], "");
    let (address, port) = (pair.server_address(), server.port());
    let number = number_of(&server);
    // Replacement characters have three bytes. The capital letters of this one have six bytes instead of two.
    for text in [&[0xff; 64][..], "\u{390}".repeat(32).as_bytes()] {
        send_to_ud_echo(
            (&address, number),
            (&pair.client_address(), Qpn::new(0x77)),
            text,
        );
    }
    let client = ["client", &address, "--port", &port];
    let client = pair.client(&client, "").success();
    assert!(client.contains("answered by \"1 HELLO\""), "{client}");
    let server = server.success();
    assert_eq!(server.matches("receive 104 bytes").count(), 2, "{server}");
}

#[test]
fn ud_echo_does_not_answer_its_own_replies() {
    let directory = Directory::new("ud_echo-self");
    let pair = Pair::new(&directory, 23, "ud_echo");
    let mut server = pair.server(&["server", "--port", "0"], "");
    let (address, port) = (pair.server_address(), server.port());
    let own = (&*address, number_of(&server));
    send_to_ud_echo(own, own, b"echo");
    let client = ["client", &address, "--port", &port];
    pair.client(&client, "").success();
    let server = server.success();
    assert!(server.contains("\"echo\""), "{server}");
    assert!(server.matches("\"ECHO\"").count() <= 1, "{server}");
}

#[test]
fn two_ud_echo_servers_do_not_answer_each_other() {
    let directory = Directory::new("ud_echo-two");
    let pair = Pair::new(&directory, 24, "ud_echo");
    let arguments = ["server", "--port", "0"];
    let mut servers = [pair.server(&arguments, ""), pair.server(&arguments, "")];
    let ports = [servers[0].port(), servers[1].port()];
    let address = pair.server_address();
    let first = (&*address, number_of(&servers[0]));
    let second = (&*address, number_of(&servers[1]));
    send_to_ud_echo(first, second, b"echo");
    // The second client begins after the reply to the forged question had time for many rounds.
    for (server, port) in servers.iter_mut().zip(ports) {
        let client = ["client", &address, "--port", &port];
        pair.client(&client, "").success();
        let server = server.success();
        assert!(server.matches("\"ECHO\"").count() <= 1, "{server}");
    }
}

#[test]
fn every_program_has_help() {
    let directory = Directory::new("help");
    for name in [
        "lo_rc_send",
        "rc_test",
        "device_memory",
        "cm_sum",
        "chat",
        "sync_async",
        "ud_echo",
    ] {
        let said = alone(&directory, 17, name, &["--help"]);
        assert!(said.contains("Usage:"), "{name}: {said}");
    }
}

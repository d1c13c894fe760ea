//! Diagnostics: each test provokes an error in a separate process and checks the text on stderr.

mod connected_pair;
mod memory;
mod peers;
mod setup;
#[path = "../support/mod.rs"]
mod support;
mod waits;

use std::process::Command;

/// Runs one scenario. Each test starts this in a separate process.
#[test]
#[ignore = "a scenario that other tests start"]
fn scenario() {
    let name = std::env::var("SCENARIO").expect("the name of a scenario");
    let scenarios = [
        memory::SCENARIOS,
        peers::SCENARIOS,
        setup::SCENARIOS,
        waits::SCENARIOS,
    ]
    .concat();
    let (_, run) = scenarios
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a scenario of this name");
    run();
}

/// The lines that a scenario prints on stderr.
fn printed(scenario: &str, explain: &str) -> Vec<String> {
    printed_with(scenario, ("ROCI_EXPLAIN", explain))
}

fn printed_with(scenario: &str, (name, value): (&str, &str)) -> Vec<String> {
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["scenario", "--exact", "--ignored", "--nocapture"])
        .env("SCENARIO", scenario)
        .env(name, value)
        .output()
        .expect("a process");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{scenario} failed:\n{stderr}");
    stderr.lines().map(str::to_owned).collect()
}

/// A scenario prints exactly these paragraphs, of each these words at least.
fn prints(scenario: &str, paragraphs: &[&[&str]]) {
    let printed = printed(scenario, "1");
    for words in paragraphs {
        let said = |line: &&String| words.iter().all(|word| line.contains(word));
        let found = printed.iter().find(said);
        assert!(
            found.is_some(),
            "{scenario} does not say {words:?}: {printed:#?}"
        );
    }
    assert_eq!(printed.len(), paragraphs.len(), "{scenario}: {printed:#?}");
    for line in &printed {
        assert!(line.starts_with("roci: "), "{line}");
        assert!(line.len() < 600, "{} bytes: {line}", line.len());
    }
}

macro_rules! prints {
    ($($test:ident: $scenario:literal $([$($word:literal),+ $(,)?])*;)+) => { $(
        #[test]
        fn $test() {
            prints($scenario, &[$(&[$($word),+]),*]);
        }
    )+ };
}

// Memory.
prints! {
    a_write_without_the_right: "forbidden write"
        ["rejected an RDMA WRITE", "NAK 0x62", "without IBV_ACCESS_REMOTE_WRITE", "roci explain nak 0x62"]
        ["wr_id 7", "IBV_WC_REM_ACCESS_ERR", "the peer rejected it", "roci explain wc 10"];
    a_read_without_the_right: "forbidden read"
        ["rejected an RDMA READ", "without IBV_ACCESS_REMOTE_READ"]
        ["RDMA READ (wr_id 7", "IBV_WC_REM_ACCESS_ERR"];
    an_atomic_without_the_right: "forbidden atomic"
        ["rejected a fetch-and-add", "without IBV_ACCESS_REMOTE_ATOMIC"]
        ["fetch-and-add (wr_id 7, 8 bytes", "IBV_WC_REM_ACCESS_ERR"];
    an_atomic_at_an_unaligned_address: "unaligned atomic"
        ["rejected a fetch-and-add", "the address is not a multiple of 8"]
        ["IBV_WC_REM_INV_REQ_ERR", "the peer rejected it", "Usually the remote address is not a multiple of 8"];
    a_queue_pair_that_forbids: "queue pair forbids"
        ["NAK 0x61", "qp_access_flags of this queue pair lack IBV_ACCESS_REMOTE_WRITE"]
        ["IBV_WC_REM_INV_REQ_ERR"];
    a_write_out_of_bounds: "remote bounds"
        ["128 bytes at", "the range exceeds the registered memory. The key covers 64 bytes at"]
        ["wr_id 7, 128 bytes", "IBV_WC_REM_ACCESS_ERR"];
    a_remote_key_that_nobody_gave_out: "unknown rkey"
        ["no memory has that rkey", "rkey 0x0badc0de"]
        ["rkey 0x0badc0de", "IBV_WC_REM_ACCESS_ERR"];
    a_remote_key_of_another_domain: "rkey of another domain"
        ["the memory is in another protection domain"]
        ["IBV_WC_REM_ACCESS_ERR"];
    a_local_key_of_another_domain: "lkey of another domain"
        ["SEND (wr_id 7", "IBV_WC_LOC_PROT_ERR", "memory of another protection domain"];
    a_local_key_that_nobody_gave_out: "unknown lkey"
        ["IBV_WC_LOC_PROT_ERR", "lkey 0x0badc0de names no registered memory"];
    a_segment_out_of_bounds: "local bounds"
        ["IBV_WC_LOC_PROT_ERR", "the segment of 128 bytes", "the key covers 64 bytes"];
    a_receive_that_is_too_small: "small receive"
        ["rejected a SEND", "receive (wr_id 3) has room for 16 bytes, but the message has 64 bytes or more"]
        ["IBV_WC_REM_INV_REQ_ERR"];
    a_receive_that_cannot_be_written: "unwritable receive"
        ["NAK 0x63", "receive (wr_id 3)", "without IBV_ACCESS_LOCAL_WRITE"]
        ["IBV_WC_REM_OP_ERR"];
    a_registration_that_cannot_be: "registration"
        ["with IBV_ACCESS_REMOTE_WRITE", "Register it with IBV_ACCESS_LOCAL_WRITE, too"];
}

// Peers. The engine says after a second that a request is still retried; on a busy machine the program learns of it later.
prints! {
    no_receive_posted: "no receive"
        ["IBV_WC_RNR_RETRY_EXC_ERR", "at 127.57.2.2", "had no receive posted", "rnr_retry is 1"];
    an_address_without_a_process: "no process"
        ["IBV_WC_RETRY_EXC_ERR", "no process serves UDP port 4791 at 127.57.3.9", "retries"];
    an_unknown_number_at_the_same_device: "unknown number here"
        ["127.57.4.1 sends requests to QP 0x", "this queue pair never existed"]
        ["IBV_WC_RETRY_EXC_ERR", "there is no QP 0x", "dest_qp_num"];
    an_unknown_number_at_another_device: "unknown number there"
        ["127.57.5.1 sends requests to QP 0x", "this queue pair never existed"]
        ["IBV_WC_RETRY_EXC_ERR", "no packet from the peer ever arrived at 127.57.5.1"];
    a_first_sequence_number_ahead_of_the_peer_s: "PSN ahead"
        ["IBV_WC_RETRY_EXC_ERR", "the peer expects PSN 0x", "but this side started with 0x", "rq_psn"];
    a_first_sequence_number_behind_the_peer_s: "PSN behind"
        ["IBV_WC_RETRY_EXC_ERR", "the peer expects PSN 0x", "but this side started with 0x", "rq_psn"];
    a_peer_that_is_not_ready: "peer not ready"
        ["127.57.7.1 sends requests to QP 0x", "which is still in INIT: they are dropped"]
        ["IBV_WC_RETRY_EXC_ERR", "is not in RTR yet", "go to RTR before either sends"];
    a_peer_that_is_silent_for_long: "silent for long"
        ["SEND (wr_id 7, 64 bytes)", "is still being retried: no response for ", "no process serves UDP port 4791"]
        ["IBV_WC_RETRY_EXC_ERR", "no response after 7 retries within", "no process serves UDP port 4791"];
    a_receive_that_is_missing_for_long: "no receive for long"
        ["SEND (wr_id 7, 8 bytes)", "waits for a receive", "without a limit (rnr_retry is 7)", "With an `rnr_retry` below 7"]
        ["keeps a message from QP 0x", "it has had no receive posted for "];
    a_peer_that_has_closed_its_device: "peer closed"
        ["is still being retried: no response for ", "its process has ended, nothing serves UDP port 4791 at 127.57.16.2 any more"]
        ["IBV_WC_RETRY_EXC_ERR", "its process has ended, nothing serves UDP port 4791 at 127.57.16.2 any more"];
    a_connection_request_without_an_answer: "no answer to a request"
        ["from 127.57.17.1 (lo) to 127.57.17.9:7199 has no answer yet", "127.57.17.9 may be reachable, but does not answer"];
    a_connection_request_to_an_address_without_a_process: "no process for a request"
        ["to 127.57.18.9:7199 has no answer yet", "no process serves UDP port 4791 at 127.57.18.9"]
        ["from 127.57.18.1 (lo) to 127.57.18.9:7199 failed: no process serves UDP port 4791 at 127.57.18.9",
         "reason 8: no program listens", "roci explain reject 8"];
    a_peer_that_is_connected_elsewhere: "connected elsewhere"
        ["127.57.8.1 sends requests to QP 0x", "is connected to QP 0x", "at 127.57.8.3"]
        ["IBV_WC_RETRY_EXC_ERR"];
    a_peer_of_the_same_device_that_is_connected_to_another_number: "crossed numbers"
        ["IBV_WC_RETRY_EXC_ERR", "is connected to QP 0x", "not to this one", "dest_qp_num"];
    a_datagram_with_the_wrong_key: "wrong queue key"
        ["was dropped: its Q_Key is 0x00000002, but the queue pair's is 0x00000001"];
    a_datagram_that_is_too_long: "long datagram"
        ["IBV_WC_LOC_LEN_ERR", "a datagram carries at most 4096 bytes"];
    a_completion_queue_that_overruns: "overrun"
        ["Completion queue", "is full (1 completion)", "every queue pair of this queue is in the error state"];
    a_port_without_a_listener: "no listener"
        ["from 127.57.10.1", "to 127.57.10.2:7199", "reason 8: no program listens", "roci explain reject 8"];
    a_server_that_refuses: "server refuses"
        ["to 127.57.11.2:7199", "reason 28: refused by the application"];
    an_address_of_no_device: "no device"
        ["The address 127.57.12.1:7199 can't be resolved from 192.0.2.77: ", "no RDMA device"];
}

/// No device reports it, but the check is of the process.
#[test]
fn a_check_lists_an_address_that_no_device_resolves() {
    let printed = printed_with("no device beside another", ("ROCI_CHECK", "1"));
    let listed = "    explained: The address 127.57.12.1:7199: ";
    let is_listed = printed.iter().any(|line| line.starts_with(listed));
    assert!(is_listed, "{printed:#?}");
}

// Waiting.
prints! {
    a_completion_that_causes_no_event: "unpolled completion"
        ["CompletionChannel::wait has waited for ", "holds 1 completion that the program has not polled", "is not armed"];
    a_wait_for_a_peer: "idle channel";
}

// Setting up.
prints! {
    attributes_that_are_missing: "missing attributes"
        ["(RC) can't go from RESET to INIT", "lacks IBV_QP_ACCESS_FLAGS and IBV_QP_PKEY_INDEX",
         "roci explain errno 22"];
    attributes_that_are_too_many: "surplus attributes"
        ["from RESET to INIT", "has IBV_QP_QKEY and IBV_QP_SQ_PSN, which this transition does not take"];
    a_step_that_is_none: "illegal step"
        ["can't go from RESET to RTS", "Go RESET, INIT, RTR, RTS"];
    an_empty_row_of_the_gid_table: "empty gid"
        ["from INIT to RTR: GID index 5 is empty", "GID index 0 (127.57.21.1 on lo) can reach the peer",
         "--devices NAME=ADDRESS+ADDRESS", "roci explain errno 61"];
    a_row_of_the_other_family: "other family"
        ["GID index 0 (127.57.22.1) can't reach the peer at 2001:db8::7", "has no address that can"];
    no_gid_of_the_peer: "no peer gid"
        ["the peer's GID is zero", "RoCE has only global addresses"];
    a_post_in_the_wrong_state: "early post"
        ["rejected a SEND (wr_id 7): the queue pair is in INIT", "sends only in RTS"];
    a_queue_that_is_full: "full queue"
        ["rejected a SEND (wr_id 4)", "the queue is full.", "roci explain errno 12"]
        ["the same problem 10 times so far"];
    an_object_that_others_use: "busy domain"
        ["A protection domain can't be destroyed (ibv_dealloc_pd): 1 other", "roci explain errno 16"];
}

#[test]
fn a_successful_run_prints_nothing() {
    assert_eq!(printed("healthy", "1"), [""; 0]);
}

#[test]
fn nothing_is_printed_unless_explanations_are_enabled() {
    assert_eq!(printed("forbidden write", ""), [""; 0]);
    assert_eq!(printed("wanted by the program", "0"), [""; 0]);
}

#[test]
fn a_program_can_enable_explanations() {
    assert_eq!(printed("wanted by the program", "").len(), 1);
}

/// Lowering the MTU of an interface needs a separate network namespace.
#[test]
fn packets_that_are_too_long_for_the_interface() {
    let setup = "ip link set lo up && ip link set lo mtu 65536";
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sh", "-c", script]);
        command
            .env("SCENARIO", "lowered MTU")
            .env("ROCI_EXPLAIN", "1")
            // The MTU of an interface does not apply to packets through memory.
            .env("ROCI_SHORTCUT", "0");
        command.output()
    };
    if !namespace(setup).is_ok_and(|output| output.status.success()) {
        println!("skipped: no network namespace here");
        return;
    }
    let test = std::env::current_exe().expect("this test");
    let run = "scenario --exact --ignored --nocapture";
    let output = namespace(&format!("{setup} && exec {} {run}", test.display()));
    let output = output.expect("output");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    for words in [
        "the path from 127.57.30.1 has a smaller MTU",
        "roci explain errno 90",
        "its packets were not sent",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
}

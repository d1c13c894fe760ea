//! Errors that teach: each is provoked in a process of its own, and its words on stderr are read.

mod memory;
mod peers;
mod setup;
mod stage;
#[path = "../support/mod.rs"]
mod support;

use std::process::Command;

/// What each test starts as a process of its own.
#[test]
#[ignore = "a scene that other tests start"]
fn scene() {
    let name = std::env::var("SCENE").expect("the name of a scene");
    let scenes = [memory::SCENES, peers::SCENES, setup::SCENES].concat();
    let (_, play) = scenes
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a scene of this name");
    play();
}

/// What a scene says on stderr, a paragraph in each line.
fn told(scene: &str, explain: &str) -> Vec<String> {
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["scene", "--exact", "--ignored", "--nocapture"])
        .env("SCENE", scene)
        .env("ROCI_EXPLAIN", explain)
        .output()
        .expect("a process");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{scene} failed:\n{stderr}");
    stderr.lines().map(str::to_owned).collect()
}

/// A scene says exactly these paragraphs, of each these words at least.
fn says(scene: &str, paragraphs: &[&[&str]]) {
    let told = told(scene, "1");
    for words in paragraphs {
        let said = |line: &&String| words.iter().all(|word| line.contains(word));
        let found = told.iter().find(said);
        assert!(found.is_some(), "{scene} does not say {words:?}: {told:#?}");
    }
    assert_eq!(told.len(), paragraphs.len(), "{scene}: {told:#?}");
    for line in &told {
        assert!(line.starts_with("roci: "), "{line}");
        assert!(line.len() < 600, "{} bytes: {line}", line.len());
    }
}

macro_rules! says {
    ($($test:ident: $scene:literal $([$($word:literal),+ $(,)?])*;)+) => { $(
        #[test]
        fn $test() {
            says($scene, &[$(&[$($word),+]),*]);
        }
    )+ };
}

// Memory.
says! {
    a_write_without_the_right: "forbidden write"
        ["refused RDMA WRITE", "NAK 0x62", "without IBV_ACCESS_REMOTE_WRITE", "roci explain nak 0x62"]
        ["wr_id 7", "IBV_WC_REM_ACCESS_ERR", "the peer refused it", "roci explain wc 10"];
    a_read_without_the_right: "forbidden read"
        ["refused RDMA READ", "without IBV_ACCESS_REMOTE_READ"]
        ["RDMA READ (wr_id 7", "IBV_WC_REM_ACCESS_ERR"];
    an_atomic_without_the_right: "forbidden atomic"
        ["refused fetch-and-add", "without IBV_ACCESS_REMOTE_ATOMIC"]
        ["fetch-and-add (wr_id 7, 8 bytes", "IBV_WC_REM_ACCESS_ERR"];
    a_queue_pair_that_forbids: "queue pair forbids"
        ["NAK 0x61", "qp_access_flags of this queue pair lack IBV_ACCESS_REMOTE_WRITE"]
        ["IBV_WC_REM_INV_REQ_ERR"];
    a_write_out_of_bounds: "remote bounds"
        ["128 bytes at", "the range reaches outside. That key opens 64 bytes at"]
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
        ["IBV_WC_LOC_PROT_ERR", "the segment of 128 bytes", "that key opens 64 bytes"];
    a_receive_that_is_too_small: "small receive"
        ["refused SEND", "receive (wr_id 3) has room for 16 bytes, and 64 bytes or more came"]
        ["IBV_WC_REM_INV_REQ_ERR"];
    a_receive_that_cannot_be_written: "unwritable receive"
        ["NAK 0x63", "receive (wr_id 3)", "without IBV_ACCESS_LOCAL_WRITE"]
        ["IBV_WC_REM_OP_ERR"];
    a_registration_that_cannot_be: "registration"
        ["with IBV_ACCESS_REMOTE_WRITE", "Register it with IBV_ACCESS_LOCAL_WRITE, too"];
}

// Peers.
says! {
    no_receive_posted: "no receive"
        ["IBV_WC_RNR_RETRY_EXC_ERR", "at 127.57.2.2", "had no receive posted", "rnr_retry is 1"];
    nobody_at_that_address: "nobody there"
        ["IBV_WC_RETRY_EXC_ERR", "nobody serves UDP port 4791 at 127.57.3.9", "retries"];
    an_unknown_number_at_the_same_device: "unknown number here"
        ["127.57.4.1 sends requests to QP 0x", "there never was such a queue pair"]
        ["IBV_WC_RETRY_EXC_ERR", "there is no QP 0x", "dest_qp_num"];
    an_unknown_number_at_another_device: "unknown number there"
        ["127.57.5.1 sends requests to QP 0x", "there never was such a queue pair"]
        ["IBV_WC_RETRY_EXC_ERR", "nothing ever came back to 127.57.5.1"];
    a_first_sequence_number_ahead_of_the_peer_s: "PSN ahead"
        ["IBV_WC_RETRY_EXC_ERR", "the peer expects PSN 0x", "and we began with 0x", "rq_psn"];
    a_first_sequence_number_behind_the_peer_s: "PSN behind"
        ["IBV_WC_RETRY_EXC_ERR", "the peer expects PSN 0x", "and we began with 0x", "rq_psn"];
    a_peer_that_is_not_ready: "peer not ready"
        ["IBV_WC_RETRY_EXC_ERR", "is not in RTR yet", "go to RTR before either sends"];
    a_peer_that_is_connected_elsewhere: "connected elsewhere"
        ["127.57.8.1 sends requests to QP 0x", "is connected with QP 0x", "at 127.57.8.3"]
        ["IBV_WC_RETRY_EXC_ERR"];
    a_datagram_with_the_wrong_key: "wrong queue key"
        ["was dropped: its Q_Key is 0x00000002, and the queue pair's 0x00000001"];
    a_datagram_that_is_too_long: "long datagram"
        ["IBV_WC_LOC_LEN_ERR", "a datagram has room for 4096 bytes"];
    a_completion_queue_that_overruns: "overrun"
        ["Completion queue", "has room for 1 completion,", "every queue pair that completes there is in the error state"];
    a_port_that_nobody_listens_on: "nobody listens"
        ["from 127.57.10.1", "to 127.57.10.2:7199", "reason 8: nobody listens", "roci explain reject 8"];
    a_server_that_refuses: "server refuses"
        ["to 127.57.11.2:7199", "reason 28: refused by the application"];
    an_address_of_no_device: "no device"
        ["The address 127.57.12.1:7199 can't be resolved from 192.0.2.77 (status -19)", "no RDMA device"];
}

// Setting up.
says! {
    attributes_that_are_missing: "missing attributes"
        ["(RC) can't go from RESET to INIT", "lacks IBV_QP_ACCESS_FLAGS and IBV_QP_PKEY_INDEX",
         "roci explain errno 22"];
    attributes_that_are_too_many: "surplus attributes"
        ["from RESET to INIT", "has IBV_QP_QKEY and IBV_QP_SQ_PSN, which this step does not take"];
    a_step_that_is_none: "illegal step"
        ["can't go from RESET to RTS", "Go RESET, INIT, RTR, RTS"];
    an_empty_row_of_the_gid_table: "empty gid"
        ["from INIT to RTR: GID index 5 is empty", "Index 0 (127.57.21.1 on lo) can reach it",
         "roci explain errno 61"];
    a_row_of_the_other_family: "other family"
        ["GID index 0 (127.57.22.1) can't reach the peer at 2001:db8::7", "has no address that can"];
    no_gid_of_the_peer: "no peer gid"
        ["the peer's GID is zero", "RoCE has only global addresses"];
    a_post_in_the_wrong_state: "early post"
        ["did not take SEND (wr_id 7): the queue pair is in INIT", "sends only in RTS"];
    a_queue_that_is_full: "full queue"
        ["did not take SEND (wr_id 4)", "the queue is full.", "roci explain errno 12"]
        ["the same 10 times so far"];
}

#[test]
fn what_is_well_is_not_worth_a_word() {
    assert_eq!(told("healthy", "1"), [""; 0]);
}

#[test]
fn nobody_is_told_who_does_not_ask() {
    assert_eq!(told("forbidden write", ""), [""; 0]);
    assert_eq!(told("wanted by the program", "0"), [""; 0]);
}

#[test]
fn a_program_may_ask_for_itself() {
    assert_eq!(told("wanted by the program", "").len(), 1);
}

/// The MTU of an interface can be lowered under a device only in a namespace of one's own.
#[test]
fn packets_that_are_too_long_for_the_interface() {
    let setup = "ip link set lo up && ip link set lo mtu 65536";
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sh", "-c", script]);
        command.env("SCENE", "lowered MTU").env("ROCI_EXPLAIN", "1");
        command.output()
    };
    if !namespace(setup).is_ok_and(|output| output.status.success()) {
        println!("skipped: no network namespace here");
        return;
    }
    let test = std::env::current_exe().expect("this test");
    let play = "scene --exact --ignored --nocapture";
    let output = namespace(&format!("{setup} && exec {} {play}", test.display()));
    let output = output.expect("output");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    for words in [
        "the way from 127.57.30.1 carries less",
        "roci explain errno 90",
        "its packets were not sent",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

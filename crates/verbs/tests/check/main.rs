//! The check of programs: small programs with one mistake each, and their corrected versions.
//!
//! Each runs in a process of its own, checked as by `roci run --check=fail`. The wrong one must be found, by its rule and
//! no other; the right one must have no finding.

mod buffers;
mod objects;
mod one_address;
mod processes;
mod queues;
mod races;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::process::Command;

use rocinante::{ConnectOptions, OpenOptions, QueuePair, RemoteMemory, Request, Segment};
use support::{ConnectedPair, End};

/// A program, with a mistake or without.
type Program = fn(wrong: bool);

/// Makes a request between remote and local memory.
type Make = fn(RemoteMemory, Segment) -> Request;

fn write_to(remote: RemoteMemory, data: Segment) -> Request {
    Request::write(remote).data(data)
}

fn read_from(remote: RemoteMemory, data: Segment) -> Request {
    Request::read(remote).data(data)
}

/// Runs one program. The tests start this in separate processes.
#[test]
#[ignore = "a program that other tests start"]
fn program() {
    let name = std::env::var("PROGRAM").expect("the name of a program");
    let wrong = std::env::var("WRONG").is_ok_and(|value| value == "1");
    let programs = [
        buffers::PROGRAMS,
        objects::PROGRAMS,
        one_address::PROGRAMS,
        queues::PROGRAMS,
        races::PROGRAMS,
    ]
    .concat();
    let (_, run) = programs
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a program of this name");
    run(wrong);
}

/// Runs one process of a program with several. The tests start this.
#[test]
#[ignore = "a program that other tests start"]
fn role() {
    processes::run_role();
}

/// The rules that a program violates according to the check, and its exit status.
fn findings(program: &str, wrong: bool) -> (BTreeSet<String>, Option<i32>, String) {
    let file = std::env::temp_dir().join(format!(
        "roci-check-{}-{wrong}-{}",
        program.replace(' ', "-"),
        std::process::id()
    ));
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["program", "--exact", "--ignored", "--nocapture"])
        .env("PROGRAM", program)
        .env("WRONG", if wrong { "1" } else { "0" })
        .env("ROCI_CHECK", "fail")
        .env("ROCI_CHECK_JSON", &file)
        .env(
            "ROCI_CHECK_PROFILE",
            if program == "not portable" { "rxe" } else { "" },
        )
        .output()
        .expect("a process");
    let lines = std::fs::read_to_string(&file).expect("the check made this file");
    std::fs::remove_file(&file).expect("it is ours");
    let rule = |line: &str| {
        let finding: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        finding["rule"].as_str().expect("a name").to_owned()
    };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let rules = lines.lines().map(rule).collect();
    (rules, output.status.code(), stderr)
}

/// The wrong program violates exactly this rule, and the right one none.
fn finds(program: &str, rule: &str) {
    let (mut rules, status, stderr) = findings(program, true);
    if rule == "remote-race" {
        // Both ends are in this process. The target may notice the same race.
        rules.remove("target-race");
    }
    if rule == "region-in-use" {
        // A request that finds its memory gone fails, and its failure is explained.
        rules.remove("explained");
    }
    let expected = BTreeSet::from([rule.to_owned()]);
    assert_eq!(rules, expected, "{program}: {stderr}");
    let note = NOTES.contains(&rule);
    assert_eq!(status, Some(if note { 0 } else { 66 }), "{stderr}");
    let (rules, status, stderr) = findings(program, false);
    assert!(rules.is_empty(), "{program}, corrected: {stderr}");
    assert_eq!(status, Some(0), "{stderr}");
}

/// The rules that do not change the exit status.
const NOTES: [&str; 8] = [
    "receive-changed",
    "shared-target",
    "too-many-receives",
    "never-polled",
    "event-not-fetched",
    "longest-rnr-timer",
    "no-receive-yet",
    "leak",
];

macro_rules! finds {
    ($($test:ident: $program:literal $rule:literal;)+) => {
        const TESTED: &[&str] = &[$($rule),+];

        $(
            #[test]
            fn $test() {
                finds($program, $rule);
            }
        )+
    };
}

/// Rules without a program in one process: two of them need a second process, and `memory-unmapped` is about the memory
/// of C programs, whose tests have it.
const NOT_IN_ONE_PROCESS: [&str; 3] = ["target-race", "process-race", "memory-unmapped"];
const NOT_BETWEEN_PROCESSES: [&str; 1] = ["memory-unmapped"];

#[test]
fn every_rule_has_a_mistake_and_its_correction() {
    let page = include_str!("../../../../docs/check.md");
    let rules = page.lines().filter_map(|line| {
        let (rule, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let is_rule = rest.starts_with("error | ") || rest.starts_with("note | ");
        is_rule.then_some(rule)
    });
    let rules: Vec<_> = rules.collect();
    assert!(rules.contains(&"buffer-changed"), "the table is found");
    for rule in rules {
        let in_one = TESTED.contains(&rule) || NOT_IN_ONE_PROCESS.contains(&rule);
        assert!(in_one, "{rule} has no program in one process");
        let between = rule == "process-race" || processes::TESTED.contains(&rule);
        let between = between || NOT_BETWEEN_PROCESSES.contains(&rule);
        assert!(between, "{rule} has no program with two processes");
    }
}

finds! {
    a_send_buffer_that_is_changed: "send changed" "buffer-changed";
    a_write_buffer_that_is_changed: "write changed" "buffer-changed";
    a_buffer_that_is_changed_after_its_first_packet: "end changed" "buffer-changed";
    a_second_segment_that_is_changed: "segment changed" "buffer-changed";
    a_read_into_a_buffer_that_is_sent: "read into send" "overlapping-requests";
    an_atomic_into_a_buffer_that_is_sent: "atomic into send" "overlapping-requests";
    a_send_of_memory_that_a_read_fills: "send of read" "overlapping-requests";
    a_message_into_a_buffer_that_is_sent: "receive into send" "overlapping-requests";
    two_receives_into_one_buffer: "two receives" "shared-target";
    two_shared_receives_into_one_buffer: "two shared receives" "shared-target";
    a_receive_that_is_changed: "receive changed" "receive-changed";
    two_reads_into_one_buffer: "two reads" "shared-target";
    two_writes_by_two_queue_pairs: "two writes" "remote-race";
    a_write_and_a_read_by_two_queue_pairs: "write and read" "remote-race";
    a_read_and_a_write_by_two_queue_pairs: "read and write" "remote-race";
    a_write_and_an_atomic_by_two_queue_pairs: "write and atomic" "remote-race";
    writes_that_share_one_byte: "one byte" "remote-race";
    a_write_after_a_read_without_a_fence: "write after read" "missing-fence";
    an_atomic_after_a_read_without_a_fence: "atomic after read" "missing-fence";
    a_peer_that_writes_a_buffer_that_is_sent: "peer writes send" "remote-access-to-buffer";
    a_peer_that_reads_the_target_of_a_read: "peer reads result" "remote-access-to-buffer";
    a_buffer_that_is_changed_before_the_completion_is_polled: "changed at once" "buffer-changed";
    a_buffer_that_is_changed_before_the_reply_is_polled: "changed before reply" "buffer-changed";
    a_buffer_of_an_unsignaled_write_that_is_changed: "unsignaled changed" "buffer-changed";
    a_buffer_of_one_of_several_writes_that_are_polled_at_once: "polled at once" "buffer-changed";
    a_receive_that_is_posted_again_before_it_is_polled: "receive posted again" "shared-target";
    a_write_of_the_target_of_a_read_that_is_not_polled: "send of unpolled read" "overlapping-requests";
    a_read_into_the_memory_of_a_write_that_is_not_polled: "read into unpolled write" "overlapping-requests";
    a_send_queue_without_a_signaled_request: "never signaled" "never-signaled";
    a_completion_queue_with_too_little_room_for_sends: "sends" "completion-queue-too-small";
    a_completion_queue_with_too_little_room_for_receives: "receives" "too-many-receives";
    a_send_queue_that_is_not_polled: "send queue" "send-queue-not-polled";
    a_message_that_waits_for_the_longest_time: "longest timer" "longest-rnr-timer";
    memory_that_is_deregistered_before_its_request_is_polled: "deregistered" "region-in-use";
    the_target_of_a_read_that_is_deregistered: "target deregistered" "region-in-use";
    a_last_request_that_is_not_polled: "last request" "never-polled";
    an_error_that_nobody_fetches: "event" "event-not-fetched";
    a_queue_pair_that_is_destroyed_with_outstanding_sends: "destroyed" "destroyed-with-sends";
    a_queue_pair_that_is_reset_with_outstanding_sends: "reset" "destroyed-with-sends";
    a_failure_that_is_not_polled: "failure" "failure-not-polled";
    a_write_with_the_key_of_deregistered_memory: "write late" "key-after-deregistration";
    a_read_with_the_key_of_deregistered_memory: "read late" "key-after-deregistration";
    a_message_before_the_first_receive: "early" "no-receive-yet";
    a_buffer_of_an_unreliable_write_that_is_changed: "unreliable write changed" "buffer-changed";
    a_buffer_that_is_changed_after_another_unreliable_write: "unreliable first write changed" "buffer-changed";
    a_buffer_of_an_unreliable_send_that_is_changed: "unreliable send changed" "buffer-changed";
    two_writes_of_which_one_is_unreliable: "unreliable writes" "remote-race";
    an_unreliable_write_and_a_read: "unreliable write and read" "remote-race";
    a_read_into_the_memory_of_an_unreliable_write: "read into unreliable write" "overlapping-requests";
    memory_of_an_unreliable_write_that_is_deregistered: "unreliable write deregistered" "region-in-use";
    a_buffer_that_is_changed_with_both_ends_at_one_address: "reliable write changed at one address" "buffer-changed";
    a_buffer_that_is_changed_before_its_message_is_polled: "send changed at one address" "buffer-changed";
    buffers_that_are_changed_with_one_completion_queue: "sends changed with one queue" "buffer-changed";
    a_buffer_that_is_changed_between_two_contexts: "send changed with two contexts" "buffer-changed";
    a_message_into_memory_that_a_peer_wrote: "message over write" "shared-target";
    a_message_into_a_receive_with_the_memory_of_a_send: "immediate for receive of send" "overlapping-requests";
    objects_that_are_forgotten: "leak" "leak";
    a_queue_that_the_chosen_device_cannot_have: "not portable" "not-portable";
}

/// Two connected ends whose program is checked, as the environment says.
fn pair() -> ConnectedPair {
    let number = std::process::id() % 50_000;
    let [high, low] = [number / 250 + 1, number % 250 + 1];
    let (left, right) = (
        format!("127.61.{high}.{low}"),
        format!("127.62.{high}.{low}"),
    );
    let options = OpenOptions::from_env();
    let ends = (End::at(&left, &options), End::at(&right, &options));
    let (from_left, from_right) = connect(&ends.0, &ends.1);
    let pair = ConnectedPair {
        left: ends.0,
        right: ends.1,
        from_left,
        from_right,
    };
    exchange(&pair.from_left, &pair.left, &pair.from_right, &pair.right);
    pair
}

/// Two connected queue pairs of these ends.
fn connect(left: &End, right: &End) -> (QueuePair, QueuePair) {
    let (here, there) = (
        left.prepare(ConnectOptions::default()),
        right.prepare(ConnectOptions::default()),
    );
    let (our_end, their_end) = (here.endpoint(), there.endpoint());
    let here = here.connect(their_end).expect("a peer");
    (here, there.connect(our_end).expect("a peer"))
}

/// Sends one message, so that a receive was posted before the program begins.
fn exchange(sender: &QueuePair, from: &End, receiver: &QueuePair, to: &End) {
    receiver
        .post_receive(0, [to.memory.slice(0..8)])
        .expect("room");
    let data = from.memory.slice(0..8);
    sender.post_send(Request::send().data(data)).expect("room");
    from.success();
    to.success();
}

/// Lets a SEND of the left end, with these bytes of its memory, be outstanding until its receive is posted.
fn send_outstanding(pair: &ConnectedPair, bytes: std::ops::Range<usize>) {
    let data = pair.left.memory.slice(bytes);
    pair.from_left
        .post_send(Request::send().data(data))
        .expect("room");
}

/// Posts the receive for which a SEND waits, and takes both completions.
fn finish_send(pair: &ConnectedPair) {
    let room = pair.right.memory.slice(1 << 19..1 << 20);
    pair.from_right.post_receive(1, [room]).expect("room");
    pair.right.success();
    pair.left.success();
}

//! Mistakes between processes: one for each rule (`every_rule`), and here races that `ROCI_CHECK_PROCESSES` finds.
//!
//! Three processes are connected with each other by RDMA. The accesses of the first and the second to the target's memory
//! never overlap in time, because the test orders them by pipes. The devices do not see pipes: only the right programs
//! order the accesses by RDMA, too.

mod every_rule;
mod stage;

use rocinante::{Connector, Listener, Request};

use crate::support::TIMEOUT;
use crate::{Make, read_from, write_to};
pub(crate) use stage::run_role;
use stage::{FIRST, Programs, Role, SECOND, Stage, TARGET, finds};

const PROGRAMS: Programs = &[
    ("two writers", two_writers),
    ("writer and reader", writer_and_reader),
    ("reader and writer", reader_and_writer),
    ("shared byte", shared_byte),
    ("write and add", write_and_add),
    ("told too early", told_too_early),
    ("immediate", immediate),
    ("third process", third_process),
    ("lock", lock),
    ("connection", connection),
    ("disconnection", disconnection),
    ("written while sent", written_while_sent),
    ("sent while written", sent_while_written),
    ("result of a read", result_of_a_read),
];

macro_rules! finds {
    ($($test:ident: $program:literal;)+) => { $(
        #[test]
        fn $test() {
            finds($program, "process-race");
        }
    )+ };
}

macro_rules! finds_rules {
    ($($test:ident: $rule:literal;)+) => {
        /// The rules that have a program with two processes here. The races below are about `process-race`.
        pub(crate) const TESTED: &[&str] = &[$($rule),+];

        $(
            #[test]
            fn $test() {
                finds($rule, $rule);
            }
        )+
    };
}

finds_rules! {
    between_processes_buffer_changed: "buffer-changed";
    between_processes_overlapping_requests: "overlapping-requests";
    between_processes_shared_target: "shared-target";
    between_processes_receive_changed: "receive-changed";
    between_processes_remote_race: "remote-race";
    between_processes_missing_fence: "missing-fence";
    between_processes_target_race: "target-race";
    between_processes_remote_access_to_buffer: "remote-access-to-buffer";
    between_processes_never_signaled: "never-signaled";
    between_processes_send_queue_not_polled: "send-queue-not-polled";
    between_processes_completion_queue_too_small: "completion-queue-too-small";
    between_processes_too_many_receives: "too-many-receives";
    between_processes_destroyed_with_sends: "destroyed-with-sends";
    between_processes_failure_not_polled: "failure-not-polled";
    between_processes_never_polled: "never-polled";
    between_processes_event_not_fetched: "event-not-fetched";
    between_processes_region_in_use: "region-in-use";
    between_processes_key_after_deregistration: "key-after-deregistration";
    between_processes_not_portable: "not-portable";
    between_processes_no_receive_yet: "no-receive-yet";
    between_processes_longest_rnr_timer: "longest-rnr-timer";
    between_processes_leak: "leak";
}

finds! {
    two_processes_that_write: "two writers";
    a_process_that_reads_what_another_writes: "writer and reader";
    a_process_that_writes_what_another_reads: "reader and writer";
    writes_of_two_processes_that_share_a_byte: "shared byte";
    an_atomic_and_a_write_of_two_processes: "write and add";
    a_message_before_the_completion_of_a_write: "told too early";
    immediate_data_that_is_not_awaited: "immediate";
    an_order_through_a_third_process: "third process";
    a_write_without_the_lock: "lock";
    a_write_after_the_connection_that_tells_of_it: "connection";
    a_write_after_a_disconnection: "disconnection";
    a_write_into_memory_that_the_target_sends: "written while sent";
    a_send_of_memory_that_a_process_writes: "sent while written";
    a_read_of_the_result_of_a_read: "result of a read";
}

/// The first process makes a request and waits for it, then the second. The right ones exchange a message between.
fn one_after_the_other(stage: &mut Stage, make: [Make; 2]) {
    let [first, second] = make;
    match stage.role {
        Role::First => {
            stage.access(first, 0..8);
            if stage.right() {
                stage.send(SECOND);
            }
            stage.tell("written");
        }
        Role::Second => {
            stage.hear("written");
            if stage.right() {
                stage.receive();
            }
            stage.access(second, 0..8);
        }
        Role::Target => {}
    }
}

fn two_writers(stage: &mut Stage) {
    one_after_the_other(stage, [write_to, write_to]);
}

fn writer_and_reader(stage: &mut Stage) {
    one_after_the_other(stage, [write_to, read_from]);
}

fn reader_and_writer(stage: &mut Stage) {
    one_after_the_other(stage, [read_from, write_to]);
}

/// The right program has two parts of memory.
fn shared_byte(stage: &mut Stage) {
    match stage.role {
        Role::First => {
            stage.access(write_to, 0..100);
            stage.tell("written");
        }
        Role::Second => {
            stage.hear("written");
            let start = if stage.right() { 100 } else { 99 };
            stage.access(write_to, start..start + 50);
        }
        Role::Target => {}
    }
}

/// Two atomics need no order.
fn write_and_add(stage: &mut Stage) {
    let add = |remote, data| Request::fetch_add(remote, 1).data(data);
    match stage.role {
        Role::First if stage.right() => {
            stage.access(add, 0..8);
            stage.tell("written");
        }
        Role::First => {
            stage.access(write_to, 0..8);
            stage.tell("written");
        }
        Role::Second => {
            stage.hear("written");
            stage.access(add, 0..8);
        }
        Role::Target => {}
    }
}

/// The first process sends the message before it has polled the completion of its WRITE.
fn told_too_early(stage: &mut Stage) {
    match stage.role {
        Role::First => {
            stage.post(write_to, 0..8);
            if stage.right() {
                stage.sent();
            }
            stage.send(SECOND);
            if !stage.right() {
                stage.sent();
            }
            stage.tell("written");
        }
        Role::Second => {
            stage.hear("written");
            stage.receive();
            stage.access(write_to, 0..8);
        }
        Role::Target => {}
    }
}

/// The target tells the second process before it has polled the immediate data.
fn immediate(stage: &mut Stage) {
    match stage.role {
        Role::First => {
            let write =
                |remote, data| Request::write_with_immediate(remote, [1, 2, 3, 4]).data(data);
            stage.access(write, 0..8);
            stage.tell("written");
        }
        Role::Target => {
            stage.hear("written");
            if stage.right() {
                stage.receive();
                stage.send(SECOND);
            } else {
                stage.send(SECOND);
                stage.receive();
            }
        }
        Role::Second => {
            stage.receive();
            stage.access(write_to, 0..8);
        }
    }
}

/// A message goes from the first process through the target to the second one.
fn third_process(stage: &mut Stage) {
    match stage.role {
        Role::First => {
            if !stage.right() {
                stage.send(TARGET);
            }
            stage.access(write_to, 0..8);
            if stage.right() {
                stage.send(TARGET);
            }
            stage.tell("written");
        }
        Role::Target => {
            stage.receive();
            stage.send(SECOND);
        }
        Role::Second => {
            stage.receive();
            stage.hear("written");
            stage.access(write_to, 0..8);
        }
    }
}

/// A word of the target is a lock for other words.
fn lock(stage: &mut Stage) {
    let take = |remote, data| Request::compare_swap(remote, 0, 1).data(data);
    let release = |remote, data| Request::compare_swap(remote, 1, 0).data(data);
    match stage.role {
        Role::First => {
            stage.access(take, 64..72);
            stage.access(write_to, 0..8);
            stage.access(release, 64..72);
            stage.tell("written");
        }
        Role::Second => {
            stage.hear("written");
            if stage.right() {
                stage.access(take, 64..72);
            }
            stage.access(write_to, 0..8);
        }
        Role::Target => {}
    }
}

/// The first process connects to the second one, after its WRITE or before it.
fn connection(stage: &mut Stage) {
    match stage.role {
        Role::First => {
            if stage.right() {
                stage.access(write_to, 0..8);
            }
            let connection = connect(stage);
            if !stage.right() {
                stage.hear("accepted");
                stage.access(write_to, 0..8);
            }
            stage.tell("written");
            stage.hear("written too");
            drop(connection);
        }
        Role::Second => {
            let connection = accept(stage);
            stage.tell("accepted");
            stage.hear("written");
            stage.access(write_to, 0..8);
            stage.tell("written too");
            drop(connection);
        }
        Role::Target => {}
    }
}

/// The first process writes before it disconnects, or after that.
fn disconnection(stage: &mut Stage) {
    match stage.role {
        Role::First => {
            let connection = connect(stage);
            stage.hear("accepted");
            if stage.right() {
                stage.access(write_to, 0..8);
            }
            connection.disconnect().expect("a connection");
            stage.hear("disconnected");
            if !stage.right() {
                stage.access(write_to, 0..8);
            }
            stage.tell("written");
        }
        Role::Second => {
            let connection = accept(stage);
            stage.tell("accepted");
            assert!(connection.wait_disconnected(TIMEOUT));
            stage.tell("disconnected");
            stage.hear("written");
            stage.access(write_to, 0..8);
        }
        Role::Target => {}
    }
}

fn connect(stage: &mut Stage) -> rocinante::Connection {
    stage.hear("listening");
    let address = stage.service();
    let own = stage.end.context.clone();
    let connector = Connector::resolve_on(&own, address).expect("an address");
    let prepared = connector.prepare(stage.builder()).expect("room");
    prepared.connect(b"").expect("a listener")
}

fn accept(stage: &mut Stage) -> rocinante::Connection {
    let listener = Listener::bind_on(&stage.end.context, stage.service()).expect("a port");
    stage.tell("listening");
    let request = listener.wait_for(TIMEOUT).expect("a client");
    let prepared = request.prepare(stage.builder()).expect("room");
    prepared.accept(b"").expect("a client")
}

/// The target sends memory that the first process writes afterwards. The right one waits for the message that was sent.
fn written_while_sent(stage: &mut Stage) {
    match stage.role {
        Role::Target => {
            let receiver = if stage.right() { FIRST } else { SECOND };
            stage.send_from(receiver, 0..8);
            stage.tell("sent");
        }
        Role::First => {
            stage.hear("sent");
            if stage.right() {
                stage.receive();
            }
            stage.access(write_to, 0..8);
        }
        Role::Second if !stage.right() => stage.receive(),
        Role::Second => {}
    }
}

/// The target sends memory that the first process has written. The right one waits for its message.
fn sent_while_written(stage: &mut Stage) {
    match stage.role {
        Role::First => {
            stage.access(write_to, 0..8);
            stage.send(TARGET);
            stage.tell("written");
        }
        Role::Target => {
            stage.hear("written");
            if stage.right() {
                stage.receive();
            }
            stage.send_from(SECOND, 0..8);
            if !stage.right() {
                stage.receive();
            }
        }
        Role::Second => stage.receive(),
    }
}

/// The target reads into memory that the second process reads.
fn result_of_a_read(stage: &mut Stage) {
    match stage.role {
        Role::Target => {
            stage.read_from_first(0..8);
            if stage.right() {
                stage.send(SECOND);
            }
            stage.tell("read");
        }
        Role::Second => {
            stage.hear("read");
            if stage.right() {
                stage.receive();
            }
            stage.access(read_from, 0..8);
        }
        Role::First => {}
    }
}

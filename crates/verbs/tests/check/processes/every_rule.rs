//! A mistake and its corrected version for each rule, between two processes: the first makes requests of the target.

use rocinante::{
    Access, AckTimeout, Attributes, CompletionQueue, ConnectOptions, PostError, QueuePair,
    QueuePairBuilder, RemoteMemory, Request, RnrTimer, State, Status,
};

use super::stage::{FIRST, Programs, Role, Stage, TARGET};
use crate::support::TIMEOUT;
use crate::{read_from, write_to};

pub(super) const PROGRAMS: Programs = &[
    ("buffer-changed", buffer_changed),
    ("overlapping-requests", overlapping_requests),
    ("shared-target", shared_target),
    ("receive-changed", receive_changed),
    ("remote-race", remote_race),
    ("missing-fence", missing_fence),
    ("target-race", target_race),
    ("remote-access-to-buffer", remote_access_to_buffer),
    ("never-signaled", never_signaled),
    ("send-queue-not-polled", send_queue_not_polled),
    ("completion-queue-too-small", completion_queue_too_small),
    ("too-many-receives", too_many_receives),
    ("destroyed-with-sends", destroyed_with_sends),
    ("failure-not-polled", failure_not_polled),
    ("never-polled", never_polled),
    ("event-not-fetched", event_not_fetched),
    ("region-in-use", region_in_use),
    ("key-after-deregistration", key_after_deregistration),
    ("not-portable", not_portable),
    ("no-receive-yet", no_receive_yet),
    ("longest-rnr-timer", longest_rnr_timer),
    ("leak", leak),
];

fn buffer_changed(stage: &mut Stage) {
    match stage.role {
        Role::First => {
            let request = Request::send().data(stage.end.memory.slice(0..8));
            stage.to(TARGET).post_send(request).expect("room");
            if !stage.right() {
                stage.end.memory.write(0, &[1]);
            }
            stage.sent();
            stage.end.memory.write(0, &[1]);
        }
        Role::Target => stage.receive(),
        Role::Second => {}
    }
}

/// A WRITE sends what a READ before it stores.
fn overlapping_requests(stage: &mut Stage) {
    if stage.role == FIRST {
        stage.post(read_from, 0..8);
        let write = Request::write(stage.memory_of(TARGET, 200));
        let write = write.data(stage.end.memory.slice(0..8));
        let write = if stage.right() { write.fenced() } else { write };
        stage.to(TARGET).post_send(write).expect("room");
        stage.sent();
        stage.sent();
    }
}

fn shared_target(stage: &mut Stage) {
    if stage.role == FIRST {
        for start in [0, if stage.right() { 8 } else { 0 }] {
            let read = Request::read(stage.memory_of(TARGET, 0));
            let read = read.data(stage.end.memory.slice(start..start + 8));
            stage.to(TARGET).post_send(read).expect("room");
        }
        stage.sent();
        stage.sent();
    }
}

fn receive_changed(stage: &mut Stage) {
    let Some(again) = connect_again(stage, Stage::builder) else {
        return;
    };
    if stage.role == FIRST {
        stage.hear("posted");
        let send = Request::send().data(stage.end.memory.slice(0..8));
        again.post_send(send).expect("room");
        stage.sent();
    } else {
        post_receive(stage, &again);
        if !stage.right() {
            stage.end.memory.write((1 << 18) + 50, &[1]);
        }
        stage.tell("posted");
        stage.receive();
    }
}

fn remote_race(stage: &mut Stage) {
    let Some(second) = connect_again(stage, Stage::builder) else {
        return;
    };
    if stage.role == FIRST {
        stage.post(write_to, 0..8);
        if stage.right() {
            stage.sent();
        }
        let write = Request::write(stage.memory_of(TARGET, 0));
        let write = write.data(stage.end.memory.slice(8..16));
        second.post_send(write).expect("room");
        if !stage.right() {
            stage.sent();
        }
        stage.sent();
    } else {
        await_first(stage);
    }
}

fn missing_fence(stage: &mut Stage) {
    if stage.role == FIRST {
        stage.post(read_from, 0..8);
        let write = Request::write(stage.memory_of(TARGET, 0));
        let write = write.data(stage.end.memory.slice(8..16));
        let write = if stage.right() { write.fenced() } else { write };
        stage.to(TARGET).post_send(write).expect("room");
        stage.sent();
        stage.sent();
    }
}

/// The last packet of the first WRITE is lost, so this WRITE lasts until it is sent again. The right second process waits
/// for that.
fn target_race(stage: &mut Stage) {
    let patient = |stage: &Stage| {
        stage.builder().connect_options(ConnectOptions {
            ack_timeout: AckTimeout::new(19).expect("a five-bit code"),
            ..ConnectOptions::default()
        })
    };
    let lossy = connect_again(stage, patient);
    match stage.role {
        Role::First => {
            let write = Request::write(stage.memory_of(TARGET, 0));
            let write = write.data(stage.end.memory.slice(0..5000));
            let lossy = lossy.expect("a connection");
            lossy.post_send(write).expect("room");
            if stage.right() {
                stage.sent();
            }
            stage.tell("written");
            if !stage.right() {
                stage.sent();
            }
        }
        Role::Second => {
            stage.hear("written");
            stage.access(write_to, 0..8);
        }
        Role::Target => await_first(stage),
    }
}

/// The target sends memory that the first process writes.
fn remote_access_to_buffer(stage: &mut Stage) {
    let completions = stage.end.completions.clone();
    let Some(drained) = connect_without_receives(stage, Stage::builder, &completions) else {
        return;
    };
    match stage.role {
        Role::Target => {
            let send = Request::send().data(stage.end.memory.slice(0..100));
            drained.post_send(send).expect("room");
            stage.tell("sent");
            stage.sent();
        }
        _ => {
            stage.hear("sent");
            let start = if stage.right() { 100 } else { 99 };
            stage.access(write_to, start..start + 10);
            post_receive(stage, &drained);
            stage.receive();
        }
    }
}

/// The queue has room for 16.
fn never_signaled(stage: &mut Stage) {
    if stage.role != FIRST {
        return;
    }
    for number in 1..=32 {
        let is_signaled = number % if stage.right() { 8 } else { 32 } == 0;
        let request = || {
            let request = Request::write(stage.memory_of(TARGET, 0));
            let request = request.data(stage.end.memory.slice(0..8));
            if is_signaled {
                request
            } else {
                request.unsignaled()
            }
        };
        while let Err(error) = stage.to(TARGET).post_send(request()) {
            assert_eq!(error, PostError::QueueFull);
            assert_eq!(stage.end.completions.poll(), None);
        }
        if is_signaled {
            stage.sent();
        }
    }
}

/// The queue has room for four.
fn send_queue_not_polled(stage: &mut Stage) {
    let Some(small) = connect_again(stage, |stage| stage.builder().depth(4, 1)) else {
        return;
    };
    if stage.role == TARGET {
        return await_first(stage);
    }
    for number in 0..5 {
        let start = number * 8;
        let request = || {
            let request = Request::write(stage.memory_of(TARGET, start));
            request.data(stage.end.memory.slice(start..start + 8))
        };
        while let Err(error) = small.post_send(request()) {
            assert_eq!(error, PostError::QueueFull);
        }
        if stage.right() {
            stage.sent();
        }
    }
    for _ in 0..if stage.right() { 0 } else { 5 } {
        stage.sent();
    }
}

/// The completion queue has room for four. The target posts one receive after the other, so no completion is lost.
fn completion_queue_too_small(stage: &mut Stage) {
    let small = stage.end.context.create_completion_queue(4).expect("room");
    let completions = small.clone();
    let builder = |stage: &Stage| {
        let builder = stage.end.domain.queue_pair_builder(&completions);
        builder
            .receive_completions(&stage.received)
            .depth(8, 8)
            .may_overrun()
    };
    let Some(drained) = connect_without_receives(stage, builder, &small) else {
        return;
    };
    if stage.role == TARGET {
        for number in 0..5 {
            post_receive(stage, &drained);
            stage.receive();
            stage.hear(&format!("polled {number}"));
        }
        return;
    }
    let post = || {
        let send = Request::send().data(stage.end.memory.slice(0..8));
        drained.post_send(send).expect("room");
    };
    (0..if stage.right() { 4 } else { 5 }).for_each(|_| post());
    for number in 0..5 {
        small.wait_for(TIMEOUT).expect("it completes");
        if stage.right() && number == 0 {
            post();
        }
        stage.tell(&format!("polled {number}"));
    }
}

fn too_many_receives(stage: &mut Stage) {
    let small = stage.end.context.create_completion_queue(4).expect("room");
    let builder = |stage: &Stage| {
        stage
            .builder()
            .receive_completions(&small)
            .depth(1, 8)
            .may_overrun()
    };
    let Some(again) = connect_again(stage, builder) else {
        return;
    };
    if stage.role == FIRST {
        (0..if stage.right() { 4 } else { 5 }).for_each(|number| {
            let room = stage.end.memory.slice(number * 8..number * 8 + 8);
            again.post_receive(0, [room]).expect("room");
        });
    }
}

fn destroyed_with_sends(stage: &mut Stage) {
    let completions = stage.end.completions.clone();
    let Some(drained) = connect_without_receives(stage, Stage::builder, &completions) else {
        return;
    };
    if stage.role == FIRST {
        let send = Request::send().data(stage.end.memory.slice(0..8));
        drained.post_send(send).expect("room");
        stage.tell("sent");
        if stage.right() {
            stage.sent();
        }
    } else {
        stage.hear("sent");
        if stage.right() {
            post_receive(stage, &drained);
            stage.receive();
        }
    }
}

/// The first process writes memory of the target that nobody may write.
fn refused_write(stage: &mut Stage) {
    if stage.role == TARGET {
        let memory = stage.end.domain.allocate_memory(8, Access::empty());
        let memory = memory.expect("room");
        stage.tell(&format!("refused is {}", memory.remote(0)));
        stage.hear("refused");
        return;
    }
    let memory: RemoteMemory = stage.hear_rest("refused is ").parse().expect("memory");
    let write = Request::write(memory).data(stage.end.memory.slice(0..8));
    stage.to(TARGET).post_send(write).expect("room");
}

fn expect_refusal(stage: &Stage) {
    let completion = stage.end.completions.wait_for(TIMEOUT);
    let status = completion.expect("it completes").status;
    assert_eq!(status, Status::RemoteAccess);
}

fn fetch_event(stage: &Stage) {
    let event = stage.end.context.wait_event(TIMEOUT);
    event.expect("the target learns of the violation");
}

fn failure_not_polled(stage: &mut Stage) {
    match stage.role {
        Role::First => {
            refused_write(stage);
            if stage.right() {
                expect_refusal(stage);
            } else {
                while stage.to(TARGET).state() != State::Error {
                    std::thread::yield_now();
                }
            }
            stage.tell("refused");
        }
        Role::Target => {
            refused_write(stage);
            fetch_event(stage);
        }
        Role::Second => {}
    }
}

fn event_not_fetched(stage: &mut Stage) {
    match stage.role {
        Role::First => {
            refused_write(stage);
            expect_refusal(stage);
            stage.tell("refused");
        }
        Role::Target => {
            refused_write(stage);
            if stage.right() {
                fetch_event(stage);
            }
        }
        Role::Second => {}
    }
}

fn never_polled(stage: &mut Stage) {
    let Some(again) = connect_again(stage, Stage::builder) else {
        return;
    };
    if stage.role == TARGET {
        return await_first(stage);
    }
    let write = Request::write(stage.memory_of(TARGET, 0));
    let write = write.data(stage.end.memory.slice(0..8));
    again.post_send(write).expect("room");
    // It has ended when the queue is drained.
    let drain = Attributes {
        state: Some(State::SendQueueDrain),
        drain_event: Some(true),
        ..Attributes::default()
    };
    again.modify(&drain).expect("a connected state");
    let event = stage.end.context.wait_event(TIMEOUT);
    event.expect("the queue is drained");
    if stage.right() {
        stage.sent();
    }
}

fn region_in_use(stage: &mut Stage) {
    if stage.role != FIRST {
        return;
    }
    let memory = stage.end.domain.allocate_memory(64, crate::support::ALL);
    let memory = memory.expect("room");
    let write = Request::write(stage.memory_of(TARGET, 0)).data(memory.slice(0..64));
    stage.to(TARGET).post_send(write).expect("room");
    let memory = Some(memory).filter(|_| stage.right());
    stage.sent();
    drop(memory);
}

fn key_after_deregistration(stage: &mut Stage) {
    match stage.role {
        Role::Target => {
            let memory = stage.end.domain.allocate_memory(64, crate::support::ALL);
            let memory = memory.expect("room");
            let name = memory.remote(0);
            let memory = Some(memory).filter(|_| stage.right());
            stage.tell(&format!("memory is {name}"));
            stage.hear("written");
            if !stage.right() {
                fetch_event(stage);
            }
            drop(memory);
        }
        Role::First => {
            let memory: RemoteMemory = stage.hear_rest("memory is ").parse().expect("memory");
            let write = Request::write(memory).data(stage.end.memory.slice(0..8));
            stage.to(TARGET).post_send(write).expect("room");
            if stage.right() {
                stage.sent();
            } else {
                expect_refusal(stage);
            }
            stage.tell("written");
        }
        Role::Second => {}
    }
}

/// The chosen device has room for 32,767 completions.
fn not_portable(stage: &mut Stage) {
    if stage.role == FIRST {
        let capacity = if stage.right() { 32_767 } else { 32_768 };
        let queue = stage.end.context.create_completion_queue(capacity);
        queue.expect("room");
    }
}

fn no_receive_yet(stage: &mut Stage) {
    let Some(again) = connect_again(stage, Stage::builder) else {
        return;
    };
    if stage.role == FIRST {
        if stage.right() {
            stage.hear("posted");
        }
        let send = Request::send().data(stage.end.memory.slice(0..8));
        again.post_send(send).expect("room");
        stage.sent();
    } else {
        if !stage.right() {
            await_rejected_message(stage);
        }
        post_receive(stage, &again);
        stage.tell("posted");
        stage.receive();
    }
}

fn longest_rnr_timer(stage: &mut Stage) {
    let timer = RnrTimer::new(if stage.right() { 1 } else { 0 });
    let options = ConnectOptions {
        rnr_timer: timer.expect("a five-bit code"),
        ..ConnectOptions::default()
    };
    let completions = stage.end.completions.clone();
    let builder = |stage: &Stage| stage.builder().connect_options(options);
    let Some(drained) = connect_without_receives(stage, builder, &completions) else {
        return;
    };
    if stage.role == FIRST {
        let send = Request::send().data(stage.end.memory.slice(0..8));
        drained.post_send(send).expect("room");
        stage.sent();
    } else {
        await_rejected_message(stage);
        post_receive(stage, &drained);
        stage.receive();
    }
}

fn leak(stage: &mut Stage) {
    let queue = stage.end.context.create_completion_queue(1).expect("room");
    if stage.role == FIRST && !stage.right() {
        std::mem::forget(queue);
    }
}

/// Another connection between the first process and the target; `None` in the second process.
fn connect_again(
    stage: &mut Stage,
    builder: impl Fn(&Stage) -> QueuePairBuilder,
) -> Option<QueuePair> {
    let prepared = builder(stage).create_reliable().expect("room");
    stage.connect_again(prepared)
}

/// As [`connect_again`]. The only receives of this connection have got a message.
fn connect_without_receives(
    stage: &mut Stage,
    builder: impl Fn(&Stage) -> QueuePairBuilder,
    completions: &CompletionQueue,
) -> Option<QueuePair> {
    let prepared = builder(stage).create_reliable().expect("room");
    let room = stage.end.memory.slice(1 << 16..(1 << 16) + 8);
    prepared.post_receive(0, [room]).expect("room");
    let queue_pair = stage.connect_again(prepared)?;
    let send = Request::send().data(stage.end.memory.slice(1 << 17..(1 << 17) + 8));
    queue_pair.post_send(send).expect("room");
    completions.wait_for(TIMEOUT).expect("it completes");
    stage.receive();
    Some(queue_pair)
}

/// Keeps what the caller has until the first process has finished.
fn await_first(stage: &mut Stage) {
    stage.hear("finished First");
}

fn post_receive(stage: &Stage, queue_pair: &QueuePair) {
    let room = stage.end.memory.slice(1 << 18..(1 << 18) + 100);
    queue_pair.post_receive(0, [room]).expect("room");
}

/// Waits until a message has found no receive.
fn await_rejected_message(stage: &Stage) {
    let rejected = || stage.end.context.counters().expect("ours").rnr_naks_sent;
    while rejected() == 0 {
        std::thread::yield_now();
    }
}

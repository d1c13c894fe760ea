//! Faults and captures: breaking packets on purpose, and seeing all of them.

mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rocinante::{AckTimeout, AsyncEvent, ConnectOptions, Notify, OpenOptions, Request};
use support::{Couple, End, TIMEOUT};

fn patient() -> ConnectOptions {
    ConnectOptions {
        ack_timeout: AckTimeout::new(12).expect("a code"),
        ..ConnectOptions::default()
    }
}

#[test]
fn all_data_arrives_despite_loss_duplication_corruption_and_delay() {
    let options = OpenOptions {
        faults: Some(
            "loss=3%,dup=2%,reorder=2%,corrupt=1%,seed=7; rx:loss=3%,dup=2%,reorder=2%".into(),
        ),
        ..OpenOptions::default()
    };
    let couple = Couple::with("127.52.1.1", "127.52.1.2", &options, patient());
    for length in [10, 5000, 65_536, 300_000] {
        couple.write_and_compare(length);
    }
    let counters = couple.left.context.counters();
    assert!(counters.retransmitted > 0, "nothing was lost: {counters:?}");
}

#[test]
fn a_message_is_acknowledged_although_its_receiver_ends_at_once() {
    let quiet = OpenOptions::default();
    let couple = Couple::with("127.52.5.1", "127.52.5.2", &quiet, patient());
    let room = couple.right.memory.slice(0..64);
    couple.from_right.post_receive(1, [room]).expect("room");
    let message = Request::send().data(couple.left.memory.slice(0..64));
    couple.from_left.post(message).expect("room");
    couple.right.success();
    drop(couple.from_right);
    couple.left.success();
}

#[test]
fn delayed_packets_are_sent_in_order_when_the_device_closes() {
    let slow = OpenOptions {
        faults: Some("delay:opcode=RC_SEND,by=1000s".into()),
        ..OpenOptions::default()
    };
    let without_retries = ConnectOptions {
        ack_timeout: AckTimeout::new(0).expect("a code"),
        ..ConnectOptions::default()
    };
    let couple = Couple::with("127.52.6.1", "127.52.6.2", &slow, without_retries);
    for (id, room) in [(1, 0..8), (2, 8..16)] {
        let room = couple.right.memory.slice(room);
        couple.from_right.post_receive(id, [room]).expect("room");
    }
    for message in [b"first", b"other"] {
        let request = Request::send().inline(message);
        couple.from_left.post(request).expect("room");
    }
    let right = &couple.right;
    let early = right.completions.wait_for(Duration::from_millis(50));
    assert!(early.is_none(), "the messages are held back: {early:?}");
    drop((couple.from_left, couple.left));
    assert_eq!([right.success().id, right.success().id], [1, 2]);
    assert_eq!(right.memory.to_vec(0..5), b"first");
    assert_eq!(right.memory.to_vec(8..13), b"other");
}

#[test]
fn an_injected_rnr_delays_a_message_and_is_in_capture_and_log() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (capture, log) = (directory.join("rnr.pcapng"), directory.join("rnr.log"));
    let _ = std::fs::remove_file(&log);
    let options = OpenOptions {
        faults: Some("rnr:context=1,nth=1".into()),
        capture: Some(capture.clone()),
        fault_log: Some(log.clone()),
        ..OpenOptions::default()
    };
    let couple = Couple::with("127.52.7.1", "127.52.7.2", &options, patient());
    let room = couple.left.memory.slice(0..8);
    couple.from_left.post_receive(1, [room]).expect("room");
    let request = Request::send().inline(b"message");
    couple.from_right.post(request).expect("room");
    couple.right.success();
    assert_eq!(couple.left.success().id, 1);
    let counters = couple.right.context.counters();
    assert_eq!(counters.rnr_naks_received, 1, "{counters:?}");
    drop(couple);

    let text = std::fs::read_to_string(&log).expect("a log");
    let rule = "fault 1 rnr:context=1,opcode=RC_SEND_ONLY,nth=1 # RC SEND_ONLY to QP 0x";
    let faults = text.lines().filter(|line| line.starts_with("fault"));
    let faults: Vec<_> = faults.collect();
    assert!(faults.len() == 1 && faults[0].starts_with(rule), "{text}");
    let bytes = std::fs::read(&capture).expect("a capture");
    let comment = b"answered with RNR NAK by fault injection";
    let mut parts = bytes.windows(comment.len());
    assert!(parts.any(|part| part == comment), "no mark in the capture");
}

#[test]
fn an_injected_late_event_comes_after_its_completion() {
    let late = OpenOptions {
        faults: Some("late:opcode=RC_SEND_ONLY,nth=1,by=300ms".into()),
        ..OpenOptions::default()
    };
    let receiver = End::at("127.52.11.1", &late);
    let sender = End::at("127.52.11.2", &OpenOptions::default());
    let channel = receiver.context.completion_channel().expect("room");
    let queue = channel.completion_queue(8).expect("room");
    let here = receiver.domain.queue_pair(&queue).reliable().expect("room");
    let there = sender.prepare(patient());
    let (receiver_end, sender_end) = (here.endpoint(), there.endpoint());
    let here = here.connect(sender_end).expect("a peer");
    let there = there.connect(receiver_end).expect("a peer");
    for id in 0..2 {
        let room = receiver.memory.slice(0..8);
        here.post_receive(id, [room]).expect("room");
    }

    queue.notify(Notify::Any);
    let begin = Instant::now();
    there.post(Request::send().inline(b"late")).expect("room");
    sender.success();
    assert!(queue.poll().is_some(), "the completion itself is on time");
    assert!(channel.poll().is_none(), "the event is not");
    channel.wait_for(TIMEOUT).expect("an event");
    assert!(begin.elapsed() >= Duration::from_millis(300));

    queue.notify(Notify::Any);
    there.post(Request::send().inline(b"next")).expect("room");
    channel
        .wait_for(TIMEOUT)
        .expect("the rule is for one packet");
}

#[test]
fn an_injected_port_failure_loses_packets_and_is_reported_by_events() {
    let unplugged = OpenOptions {
        faults: Some("down:opcode=RC_SEND_ONLY,nth=2,by=200ms".into()),
        ..OpenOptions::default()
    };
    let couple = Couple::with("127.52.12.1", "127.52.12.2", &unplugged, patient());
    for id in 0..3 {
        let room = couple.right.memory.slice(0..8);
        couple.from_right.post_receive(id, [room]).expect("room");
    }
    let send = || {
        let request = Request::send().inline(b"message");
        couple.from_left.post(request).expect("room");
    };
    send();
    couple.left.success();
    let begin = Instant::now();
    send();
    let context = &couple.left.context;
    assert_eq!(context.wait_event(TIMEOUT), Some(AsyncEvent::PortError));
    couple.left.success();
    assert!(begin.elapsed() >= Duration::from_millis(200));
    assert_eq!(context.wait_event(TIMEOUT), Some(AsyncEvent::PortActive));
    send();
    couple.left.success();
    assert_eq!(context.wait_event(Duration::ZERO), None);
}

#[test]
fn a_delayed_packet_that_is_due_while_the_port_is_down_is_lost() {
    let faults = "delay:opcode=RC_SEND_ONLY,nth=1,by=50ms; down:opcode=RC_SEND_ONLY,nth=2,by=300ms";
    let options = OpenOptions {
        faults: Some(faults.into()),
        ..OpenOptions::default()
    };
    let couple = Couple::with("127.52.13.1", "127.52.13.2", &options, patient());
    let begin = Instant::now();
    for id in 0..2 {
        let room = couple.right.memory.slice(0..8);
        couple.from_right.post_receive(id, [room]).expect("room");
    }
    for _ in 0..2 {
        let request = Request::send().inline(b"message");
        couple.from_left.post(request).expect("room");
    }
    couple.right.success();
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

#[test]
fn all_data_arrives_without_segmentation() {
    let options = OpenOptions {
        segmentation: false,
        ..OpenOptions::default()
    };
    let couple = Couple::with(
        "127.52.2.1",
        "127.52.2.2",
        &options,
        ConnectOptions::default(),
    );
    couple.write_and_compare(1 << 20);
}

#[test]
fn invalid_fault_is_rejected_when_a_device_opens() {
    let options = OpenOptions {
        faults: Some("loss=lots".into()),
        ..OpenOptions::default()
    };
    let error = rocinante::Context::open_with("127.52.3.1", &options).err();
    let text = error.expect("lots is no rate").to_string();
    assert!(text.contains("lots"), "{text}");
}

#[test]
fn a_capture_has_every_packet_with_its_work_request() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("write.pcapng");
    let options = OpenOptions {
        capture: Some(path.clone()),
        ..OpenOptions::default()
    };
    let couple = Couple::with(
        "127.52.4.1",
        "127.52.4.2",
        &options,
        ConnectOptions::default(),
    );
    let request = Request::write(couple.right.memory.remote(0)).id(4711);
    let data = couple.left.memory.slice(0..10_000);
    couple.from_left.post(request.data(data)).expect("room");
    let count = || {
        let bytes = std::fs::read(&path).expect("the capture is there");
        let comment = b"Write wr_id 4711";
        let found = bytes.windows(comment.len()).filter(|part| part == comment);
        found.count()
    };
    // A program that crashes later leaves the packets that it sent.
    assert!(count() >= 3, "{} packets are in the file", count());
    couple.left.success();
    drop(couple);
    // First, middle and last packet, and the acknowledgement, each with its comment.
    assert_eq!(count(), 4);
}

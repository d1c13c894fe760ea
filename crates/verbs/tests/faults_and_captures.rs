//! Faults and captures: breaking packets on purpose, and seeing all of them.

mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rocinante::{AckTimeout, AsyncEvent, ConnectOptions, Notify, OpenOptions, Request};
use support::{ConnectedPair, End, TIMEOUT};

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
    let pair = ConnectedPair::with("127.52.1.1", "127.52.1.2", &options, patient());
    for length in [10, 5000, 65_536, 300_000] {
        pair.write_and_compare(length);
    }
    let counters = pair.left.context.counters().expect("ours");
    assert!(counters.retransmitted > 0, "nothing was lost: {counters:?}");
}

#[test]
fn a_message_is_acknowledged_although_its_receiver_ends_at_once() {
    let quiet = OpenOptions::default();
    let pair = ConnectedPair::with("127.52.5.1", "127.52.5.2", &quiet, patient());
    let room = pair.right.memory.slice(0..64);
    pair.from_right.post_receive(1, [room]).expect("room");
    let message = Request::send().data(pair.left.memory.slice(0..64));
    pair.from_left.post_send(message).expect("room");
    pair.right.success();
    drop(pair.from_right);
    pair.left.success();
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
    let pair = ConnectedPair::with("127.52.6.1", "127.52.6.2", &slow, without_retries);
    for (id, room) in [(1, 0..8), (2, 8..16)] {
        let room = pair.right.memory.slice(room);
        pair.from_right.post_receive(id, [room]).expect("room");
    }
    for message in [b"first", b"other"] {
        let request = Request::send().inline(message);
        pair.from_left.post_send(request).expect("room");
    }
    let right = &pair.right;
    let early = right.completions.wait_for(Duration::from_millis(50));
    assert!(early.is_none(), "the messages are held back: {early:?}");
    drop((pair.from_left, pair.left));
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
    let pair = ConnectedPair::with("127.52.7.1", "127.52.7.2", &options, patient());
    let room = pair.left.memory.slice(0..8);
    pair.from_left.post_receive(1, [room]).expect("room");
    let request = Request::send().inline(b"message");
    pair.from_right.post_send(request).expect("room");
    pair.right.success();
    assert_eq!(pair.left.success().id, 1);
    let counters = pair.right.context.counters().expect("ours");
    assert_eq!(counters.rnr_naks_received, 1, "{counters:?}");
    drop(pair);

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
    let channel = receiver.context.create_completion_channel().expect("room");
    let queue = channel.create_completion_queue(8).expect("room");
    let here = receiver
        .domain
        .queue_pair_builder(&queue)
        .create_reliable()
        .expect("room");
    let there = sender.prepare(patient());
    let (receiver_end, sender_end) = (here.endpoint(), there.endpoint());
    let here = here.connect(sender_end).expect("a peer");
    let there = there.connect(receiver_end).expect("a peer");
    for id in 0..2 {
        let room = receiver.memory.slice(0..8);
        here.post_receive(id, [room]).expect("room");
    }

    queue.arm(Notify::Any);
    let begin = Instant::now();
    there
        .post_send(Request::send().inline(b"late"))
        .expect("room");
    sender.success();
    assert!(queue.poll().is_some(), "the completion itself is on time");
    // Taken as soon as it is there. A thread that stalls may find it at once, but not before its time.
    channel.wait_for(TIMEOUT).expect("an event");
    let after = begin.elapsed();
    assert!(after >= Duration::from_millis(300), "after {after:?}");

    queue.arm(Notify::Any);
    there
        .post_send(Request::send().inline(b"next"))
        .expect("room");
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
    let pair = ConnectedPair::with("127.52.12.1", "127.52.12.2", &unplugged, patient());
    for id in 0..3 {
        let room = pair.right.memory.slice(0..8);
        pair.from_right.post_receive(id, [room]).expect("room");
    }
    let send = || {
        let request = Request::send().inline(b"message");
        pair.from_left.post_send(request).expect("room");
    };
    send();
    pair.left.success();
    let begin = Instant::now();
    send();
    let context = &pair.left.context;
    assert_eq!(context.wait_event(TIMEOUT), Some(AsyncEvent::PortError));
    pair.left.success();
    assert!(begin.elapsed() >= Duration::from_millis(200));
    assert_eq!(context.wait_event(TIMEOUT), Some(AsyncEvent::PortActive));
    send();
    pair.left.success();
    assert_eq!(context.wait_event(Duration::ZERO), None);
}

#[test]
fn a_delayed_packet_that_is_due_while_the_port_is_down_is_lost() {
    let faults = "delay:opcode=RC_SEND_ONLY,nth=1,by=50ms; down:opcode=RC_SEND_ONLY,nth=2,by=300ms";
    let options = OpenOptions {
        faults: Some(faults.into()),
        ..OpenOptions::default()
    };
    let pair = ConnectedPair::with("127.52.13.1", "127.52.13.2", &options, patient());
    let begin = Instant::now();
    for id in 0..2 {
        let room = pair.right.memory.slice(0..8);
        pair.from_right.post_receive(id, [room]).expect("room");
    }
    // Both in one call: a thread that stalls between two calls would let the first packet leave before the port is down.
    let requests = (0..2).map(|_| Request::send().inline(b"message"));
    pair.from_left.post_send_many(requests).expect("room");
    pair.right.success();
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

#[test]
fn all_data_arrives_without_segmentation() {
    let options = OpenOptions {
        segmentation: false,
        ..OpenOptions::default()
    };
    let pair = ConnectedPair::with(
        "127.52.2.1",
        "127.52.2.2",
        &options,
        ConnectOptions::default(),
    );
    pair.write_and_compare(1 << 20);
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
    // The ACK timeout is longer than the test, so that no packet is sent twice on a busy machine.
    let once = ConnectOptions {
        ack_timeout: AckTimeout::new(24).expect("a code"),
        ..ConnectOptions::default()
    };
    let pair = ConnectedPair::with("127.52.4.1", "127.52.4.2", &options, once);
    let request = Request::write(pair.right.memory.remote(0));
    let data = pair.left.memory.slice(0..10_000);
    let request = request.data(data).id(4711);
    pair.from_left.post_send(request).expect("room");
    let count_of = |text: &str| {
        let bytes = std::fs::read(&path).expect("the capture is there");
        let parts = bytes.windows(text.len());
        parts.filter(|part| *part == text.as_bytes()).count()
    };
    let count = || count_of("RDMA WRITE wr_id 4711");
    // A program that crashes later leaves the packets that it sent.
    assert!(count() >= 3, "{} packets are in the file", count());
    pair.left.success();
    drop(pair);
    // First, middle and last packet, and the acknowledgement, each with its comment.
    assert_eq!(count(), 4);
    for event in ["post-send", "completion", "poll"] {
        let noted = count_of(&format!("ROCI_EVENT={event}\nROCI_WR_ID=4711\n"));
        assert_eq!(noted, 1, "{event}");
    }
}

#[test]
fn a_capture_names_an_asynchronous_event_as_the_verbs_do() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("access-error.pcapng");
    let options = OpenOptions {
        capture: Some(path.clone()),
        ..OpenOptions::default()
    };
    let pair = ConnectedPair::with(
        "127.52.9.1",
        "127.52.9.2",
        &options,
        ConnectOptions::default(),
    );
    let mut remote = pair.left.memory.remote(0);
    remote.key = rocinante::Key::new(remote.key.value() ^ 1);
    let request = Request::write(remote).inline(b"no");
    pair.from_right.post_send(request).expect("room");
    pair.left.context.wait_event(TIMEOUT).expect("an event");
    let number = format!("{:#x}", pair.from_left.number().value());
    drop(pair);
    let bytes = std::fs::read(&path).expect("the capture is there");
    let text = String::from_utf8_lossy(&bytes);
    let message = format!("asynchronous event: IBV_EVENT_QP_ACCESS_ERR of QP {number}\n");
    assert!(text.contains(&message), "{message}");
    let fields = format!("ROCI_WORK=IBV_EVENT_QP_ACCESS_ERR\nROCI_QP={number}\n");
    assert!(text.contains(&fields), "{fields}");
}

//! The exact text for captures of the kernel's device.

use explain::terminal::{View, render};
use explain::{Analysis, AnomalyKind, Outcome, Role, Severity};

use crate::kernel_captures::{analysis, bytes};

fn text(analysis: &Analysis, view: &View) -> String {
    anstream::adapter::strip_str(&render(analysis, view)).to_string()
}

macro_rules! snapshots {
    ($($test:ident: $name:literal;)+) => { $(
        #[test]
        fn $test() {
            insta::assert_snapshot!(text(&analysis($name), &View::default()));
        }
    )+ };
}

snapshots! {
    a_send: "gold-send";
    a_long_read: "gold-readbig";
    an_atomic_operation: "gold-cas";
    writes_and_reads_mixed: "gold-batch";
    a_wrong_key: "gold-badrkey";
    a_message_that_is_too_long: "gold-toolong";
    a_receiver_that_is_never_ready: "gold-rnr";
    a_receiver_that_is_ready_late: "gold-rnrok";
    a_rejected_connection: "gold-reject";
    no_listener: "nolistener";
    an_unanswered_request: "vm-to-host-req-noanswer";
    an_unanswered_message: "misc/noack-timeout14-retry2";
    a_bad_icrc: "host-bad-icrc";
    a_datagram_service: "udaddy";
    an_unreliable_connection: "uc-pingpong";
    a_ping_pong_without_handshake: "rc-pingpong";
    rping: "rping";
    a_conversation_over_ipv6: "ipv6/rc-pingpong-gid0";
}

#[test]
fn lost_requests() {
    let view = View {
        ladder: 60,
        messages: 12,
        ..View::default()
    };
    insta::assert_snapshot!(text(&analysis("loss5-requests-send"), &view));
}

#[test]
fn lost_responses() {
    let view = View {
        ladder: 60,
        messages: 12,
        ..View::default()
    };
    insta::assert_snapshot!(text(&analysis("loss5-responses-read"), &view));
}

#[test]
fn a_narrow_table_of_messages_wraps_the_outcome_and_cuts_nothing() {
    let view = View {
        width: 80,
        ladder: 0,
        ..View::default()
    };
    let text = text(&analysis("gold-toolong"), &view);
    let message = text.find("→ SEND").expect("the message");
    let mut lines = text[message..].lines();
    let (first, second) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    assert!(first.ends_with(" 13478354"), "{text}");
    assert_eq!(
        second.trim(),
        "rejected: remote operational error",
        "{text}"
    );
    assert_eq!(second.len(), 80, "{text}");
}

#[test]
fn narrow_and_filtered() {
    let view = View {
        width: 64,
        ladder: 6,
        messages: 2,
        queue_pair: Some(wire::Qpn::new(0x18)),
        from: 3_000_000,
        to: 20_000_000,
    };
    let text = text(&analysis("loss5-requests-send"), &view);
    assert!(
        text.lines().skip(3).all(|line| line.chars().count() <= 64),
        "{text}"
    );
    insta::assert_snapshot!(text);
}

/// Two long addresses.
#[test]
fn both_ends_of_a_ladder_share_a_line_if_two_spaces_fit_between_them() {
    let analysis = analysis("ipv6/rc-pingpong-gid0");
    let gap = |width| {
        let view = View {
            width,
            ladder: 1,
            ..View::default()
        };
        let text = text(&analysis, &view);
        let (_, ladder) = text.split_once("Ladder of connection 1\n").expect("one");
        let heading = ladder.lines().next().expect("a heading");
        let ends = heading.trim_start().strip_prefix("time ").expect("a time");
        let (left, right) = ends.split_once("  ")?;
        Some(ends.len() - left.len() - right.trim_start().len())
    };
    let gaps: Vec<_> = (60..=140).map(gap).collect();
    let shared = gaps.iter().position(Option::is_some).expect("a wide one");
    assert!(shared > 0, "no width is too narrow for both ends");
    for (more, gap) in gaps[shared..].iter().enumerate() {
        assert_eq!(*gap, Some(2 + more));
    }
}

/// The fields that programs rely on. A change of one needs a new version.
#[test]
fn json() {
    let mut json = Vec::new();
    analysis("gold-rnrok")
        .write_json(&mut json)
        .expect("writing to memory succeeds");
    insta::assert_snapshot!(String::from_utf8(json).expect("JSON is text"));
}

#[test]
fn each_lost_request_is_recovered() {
    let analysis = analysis("loss5-requests-send");
    assert_eq!(analysis.messages.len(), 8);
    assert!(
        analysis
            .messages
            .iter()
            .all(|message| message.outcome == Outcome::Done)
    );
    let kinds = |kind| {
        analysis
            .anomalies
            .iter()
            .filter(|found| found.kind == kind)
            .count()
    };
    let naks = analysis
        .packets
        .iter()
        .filter(|packet| packet.role == Role::Reject)
        .count();
    assert_eq!(kinds(AnomalyKind::SequenceError), naks);
    assert_eq!(
        kinds(AnomalyKind::NeverSeen) + kinds(AnomalyKind::RetriesExhausted),
        0
    );
}

#[test]
fn each_lost_response_is_requested_again() {
    let analysis = analysis("loss5-responses-read");
    assert_eq!(analysis.messages.len(), 5);
    assert!(
        analysis
            .messages
            .iter()
            .all(|message| message.outcome == Outcome::Done)
    );
    assert!(
        analysis
            .messages
            .iter()
            .all(|message| message.length == 16384)
    );
}

/// The packet counts by opcode equal those of tshark 4.0.
#[test]
fn opcode_counts_equal_those_of_tshark() {
    const COUNTS: [(&str, &[(u8, u64)]); 4] = [
        (
            "rping",
            &[(4, 12), (10, 3), (12, 3), (16, 3), (17, 15), (100, 5)],
        ),
        ("rc-pingpong", &[(0, 10), (1, 20), (2, 10), (17, 10)]),
        ("udaddy", &[(100, 2), (101, 6)]),
        (
            "loss5-responses-read",
            &[(12, 34), (13, 26), (14, 401), (15, 33)],
        ),
    ];
    for (name, expected) in COUNTS {
        let opcodes = analysis(name).statistics.opcodes;
        let mut counted: Vec<_> = opcodes.iter().map(|it| (it.opcode, it.packets)).collect();
        counted.sort();
        assert_eq!(counted, expected, "{name}");
    }
}

/// Some of these packets have a pad.
#[test]
fn bytes_of_packets_are_those_of_their_datagrams() {
    for name in ["gold-readbig", "gold-sendimm", "gold-writebig", "gold-send"] {
        let frames = crate::kernel_captures::frames(name);
        let lengths = frames.iter().map(|frame| {
            let datagram = wire::Datagram::parse_ip(frame.ip()).expect("UDP");
            datagram.payload.len() as u64
        });
        let all: u64 = lengths.sum();
        assert_eq!(analysis(name).statistics.bytes, all, "{name}");
    }
}

/// A truncated file is analysed up to its last complete record.
#[test]
fn truncated_file_is_read_up_to_the_last_complete_record() {
    let frames = crate::kernel_captures::frames("rping");
    let pcapng = crate::file_formats::pcapng(&frames, 9, &[(0, 0)]);
    for whole in [bytes("rping"), pcapng] {
        let all = Analysis::read(whole.as_slice()).expect("a capture");
        let mut cut_off = 0;
        for cut in 1..=400 {
            let analysis = Analysis::read(&whole[..whole.len() - cut]).expect("the rest");
            let frames = analysis.capture.frames;
            assert_eq!(analysis.packets.len() as u64, frames);
            assert!(frames < all.capture.frames, "{cut} bytes less");
            let wrong = analysis.anomalies.iter();
            let wrong = wrong.filter(|anomaly| anomaly.kind.severity() != Severity::Note);
            assert_eq!(wrong.count(), 0, "{:?}", analysis.anomalies);
            let remark = format!(
                "The last record of the file is cut off, as when a program ends while it writes: all before it, up to frame {frames}, is read."
            );
            match analysis.capture.remarks.as_slice() {
                [] => {}
                remarks => {
                    assert_eq!(remarks, [remark]);
                    cut_off += 1;
                }
            }
        }
        assert!(
            cut_off > 390,
            "only between records there is nothing to say"
        );
    }
}

#[test]
fn truncated_response_is_not_reported_as_missing() {
    const FILE_HEADER: usize = 24;
    const RECORD_HEADER: usize = 16;
    let frames = crate::kernel_captures::frames("gold-send");
    let all = analysis("gold-send");
    let response = all.packets.iter();
    let response = response
        .take_while(|it| it.role != Role::Acknowledge)
        .count();
    let records = frames[..=response].iter();
    let length: usize = records.map(|it| RECORD_HEADER + it.ethernet.len()).sum();
    let cut = FILE_HEADER + length - 10;
    let analysis = Analysis::read(&bytes("gold-send")[..cut]).expect("the rest");
    assert_eq!(analysis.packets.len(), response);
    assert_eq!(analysis.messages.len(), 1);
    assert_eq!(analysis.anomalies.len(), 0, "{:?}", analysis.anomalies);
}

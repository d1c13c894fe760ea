//! What is told of the kernel's captures, word for word.

use explain::terminal::{View, render};
use explain::{Kind, Outcome, Role, Story};

use crate::files::{bytes, story};

fn text(story: &Story, view: &View) -> String {
    anstream::adapter::strip_str(&render(story, view)).to_string()
}

macro_rules! told {
    ($($test:ident: $name:literal;)+) => { $(
        #[test]
        fn $test() {
            insta::assert_snapshot!(text(&story($name), &View::default()));
        }
    )+ };
}

told! {
    a_send: "gold-send";
    a_long_read: "gold-readbig";
    an_atomic_operation: "gold-cas";
    writes_and_reads_mixed: "gold-batch";
    a_wrong_key: "gold-badrkey";
    a_message_that_is_too_long: "gold-toolong";
    a_receiver_that_is_never_ready: "gold-rnr";
    a_receiver_that_is_ready_late: "gold-rnrok";
    a_refused_connection: "gold-reject";
    nobody_listens: "nolistener";
    nobody_answers_a_request: "vm-to-host-req-noanswer";
    nobody_answers: "misc/noack-timeout14-retry2";
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
    insta::assert_snapshot!(text(&story("loss5-requests-send"), &view));
}

#[test]
fn lost_answers() {
    let view = View {
        ladder: 60,
        messages: 12,
        ..View::default()
    };
    insta::assert_snapshot!(text(&story("loss5-responses-read"), &view));
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
    let text = text(&story("loss5-requests-send"), &view);
    assert!(
        text.lines().skip(3).all(|line| line.chars().count() <= 64),
        "{text}"
    );
    insta::assert_snapshot!(text);
}

/// The fields that programs rely on. Whoever changes one of them raises the version.
#[test]
fn json() {
    let mut json = Vec::new();
    story("gold-rnrok")
        .write_json(&mut json)
        .expect("memory takes all");
    insta::assert_snapshot!(String::from_utf8(json).expect("JSON is text"));
}

#[test]
fn each_lost_request_is_overcome() {
    let story = story("loss5-requests-send");
    assert_eq!(story.messages.len(), 30);
    assert!(
        story
            .messages
            .iter()
            .all(|message| message.outcome == Outcome::Done)
    );
    let kinds = |kind| {
        story
            .anomalies
            .iter()
            .filter(|found| found.kind == kind)
            .count()
    };
    let naks = story
        .packets
        .iter()
        .filter(|packet| packet.role == Role::Refuse)
        .count();
    assert_eq!(kinds(Kind::SequenceError), naks);
    assert_eq!(kinds(Kind::NeverSeen) + kinds(Kind::RetriesExhausted), 0);
}

#[test]
fn each_lost_answer_is_asked_for_again() {
    let story = story("loss5-responses-read");
    assert_eq!(story.messages.len(), 30);
    assert!(
        story
            .messages
            .iter()
            .all(|message| message.outcome == Outcome::Done)
    );
    assert!(story.messages.iter().all(|message| message.length == 16384));
}

/// As many packets of each opcode as tshark 4.0 counts in these files.
#[test]
fn tshark_counts_the_same() {
    const COUNTS: [(&str, &[(u8, u64)]); 4] = [
        (
            "rping",
            &[(4, 12), (10, 3), (12, 3), (16, 3), (17, 15), (100, 5)],
        ),
        ("rc-pingpong", &[(0, 10), (1, 20), (2, 10), (17, 10)]),
        ("udaddy", &[(100, 2), (101, 6)]),
        (
            "loss5-responses-read",
            &[(12, 264), (13, 225), (14, 3294), (15, 247)],
        ),
    ];
    for (name, expected) in COUNTS {
        let opcodes = story(name).statistics.opcodes;
        let mut counted: Vec<_> = opcodes.iter().map(|it| (it.opcode, it.packets)).collect();
        counted.sort();
        assert_eq!(counted, expected, "{name}");
    }
}

#[test]
fn what_is_cut_off_is_said() {
    let whole = bytes("rping");
    let story = Story::read(&whole[..whole.len() - 100]).expect("the rest");
    let all = crate::files::story("rping");
    assert_eq!(story.packets.len(), all.packets.len() - 1);
    let frames = story.packets.len();
    let remark = format!("The capture can be read up to frame {frames}; behind it it is cut off.");
    assert_eq!(story.capture.remarks, [remark]);
}

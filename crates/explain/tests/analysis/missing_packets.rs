//! Captures in which packets are missing, or have other sequence numbers than they should.

use explain::{Analysis, AnomalyKind, Role};
use pcap_file::pcap::PcapHeader;
use wire::{Datagram, ICRC_LENGTH, Psn, icrc};

use crate::file_formats::pcap;
use crate::kernel_captures::{Frame, analysed, analysis, frames};

fn analysed_frames(frames: &[Frame]) -> Analysis {
    let file = pcap(frames, PcapHeader::default(), |frame| {
        frame.ethernet.clone()
    });
    analysed(&file)
}

/// The capture with this name, of which only some packets were captured.
fn with_only(name: &str, keeps: impl Fn(&explain::Packet) -> bool) -> Analysis {
    let whole = analysis(name);
    let all = frames(name);
    assert_eq!(all.len(), whole.packets.len());
    let kept = all.into_iter().zip(&whole.packets);
    let kept = kept.filter(|(_, packet)| keeps(packet));
    analysed_frames(&kept.map(|(frame, _)| frame).collect::<Vec<_>>())
}

/// What the only anomaly says.
fn only_sentence(analysis: &Analysis, kind: AnomalyKind) -> &str {
    let [anomaly] = &analysis.anomalies[..] else {
        panic!("{:?}", analysis.anomalies);
    };
    assert_eq!(anomaly.kind, kind);
    &anomaly.sentence
}

#[test]
fn packets_that_an_unreliable_connection_lost_are_named() {
    const FIRST: Psn = Psn::new(11_920_871);
    for (lost, words) in [(1, "PSN 11920871 of "), (2, "PSN 11920871–11920872 of ")] {
        let analysis = with_only("uc-pingpong", |packet| {
            !(0..lost).contains(&packet.psn.since(FIRST))
        });
        let sentence = only_sentence(&analysis, AnomalyKind::UnreliableLoss);
        assert!(sentence.starts_with(words), "{sentence}");
    }
}

/// The last two messages of this capture: a WRITE that starts here, and a READ.
const LAST_WRITE: Psn = Psn::new(3_417_592);
const LAST_READ: Psn = Psn::new(3_417_595);

#[test]
fn responses_to_what_was_not_sent_are_counted() {
    let analysis = with_only("gold-batch", |packet| {
        matches!(packet.role, Role::Manage | Role::Acknowledge) || packet.psn.since(LAST_WRITE) < 0
    });
    let sentence = only_sentence(&analysis, AnomalyKind::UnexpectedAcknowledge);
    assert!(sentence.starts_with("1 response to "), "{sentence}");
    assert!(
        sentence.contains("that were not sent; the first is PSN 3417594 in frame"),
        "{sentence}"
    );
}

#[test]
fn a_message_without_a_response_is_told_from_a_capture_of_one_direction() {
    let one_message = with_only("gold-batch", |packet| {
        packet.role != Role::Response || packet.psn.since(LAST_READ) < 0
    });
    let sentence = only_sentence(&one_message, AnomalyKind::Unanswered);
    assert!(
        sentence.starts_with("1 message of ")
            && sentence.ends_with(": the capture contains no response to it."),
        "{sentence}"
    );
    let all_messages = with_only("gold-batch", |packet| {
        matches!(packet.role, Role::Manage | Role::Request)
    });
    let sentence = only_sentence(&all_messages, AnomalyKind::Unanswered);
    assert!(
        sentence.starts_with("8 messages of ")
            && sentence.ends_with(": the capture contains no response."),
        "{sentence}"
    );
}

/// Gives a packet another sequence number.
fn renumber(frame: &mut Frame, psn: Psn) {
    const ETHERNET: usize = 14;
    let ip = &mut frame.ethernet[ETHERNET..];
    let datagram = Datagram::parse_ip(ip).expect("UDP");
    let (flow, identification) = (datagram.flow, datagram.fragmentation.identification);
    let begin = datagram.payload.as_ptr().addr() - ip.as_ptr().addr();
    let end = begin + datagram.payload.len() - ICRC_LENGTH;
    ip[begin + 9..begin + 12].copy_from_slice(&psn.value().to_be_bytes()[1..]);
    let checksum = icrc::checksum(&flow, identification, &ip[begin..end]);
    ip[end..end + ICRC_LENGTH].copy_from_slice(&checksum);
}

#[test]
fn a_first_packet_without_the_agreed_psn_is_an_error() {
    let whole = analysis("gold-send");
    let mut frames = frames("gold-send");
    let is_data = |role| matches!(role, Role::Request | Role::Acknowledge);
    let mut agreed = None;
    for (frame, packet) in frames.iter_mut().zip(&whole.packets) {
        if is_data(packet.role) {
            agreed.get_or_insert(packet.psn);
            renumber(frame, packet.psn + 10_000);
        }
    }
    let agreed = agreed.expect("a request");
    let analysis = analysed_frames(&frames);
    assert_eq!(analysis.statistics.damaged, 0, "the checksums are right");
    let sentence = only_sentence(&analysis, AnomalyKind::WrongFirstPsn);
    let words = format!(
        "was to start with PSN {agreed} and starts with {}.",
        agreed + 10_000
    );
    assert!(sentence.ends_with(&words), "{sentence}");
}

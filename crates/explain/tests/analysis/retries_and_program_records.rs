//! Long, unfinished and merged captures, and what programs did.

use std::borrow::Cow;
use std::time::Duration;

use explain::terminal::{View, render};
use explain::{Analysis, Anomaly, AnomalyKind, Marks, Outcome, Role};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::blocks::systemd_journal_export::SystemdJournalExportBlock;

use crate::kernel_captures::{Frame, analysis, frames};

pub(crate) const OUTBOUND: u32 = 2;
const INBOUND: u32 = 1;

/// A capture of our own, as a process writes it.
pub(crate) struct OwnCapture(PcapNgWriter<Vec<u8>>);

impl OwnCapture {
    pub(crate) fn of(process: &str) -> Self {
        let application = format!("Rocinante 0.1.0 in {process}");
        let section = SectionHeaderBlock {
            options: vec![SectionHeaderOption::UserApplication(application.into())],
            ..SectionHeaderBlock::default()
        };
        let mut writer = PcapNgWriter::with_section_header(Vec::new(), section).expect("memory");
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options: vec![InterfaceDescriptionOption::IfTsResol(9)],
        };
        writer.write_pcapng_block(interface).expect("memory");
        OwnCapture(writer)
    }

    pub(crate) fn packet(
        &mut self,
        frame: &Frame,
        flags: Option<u32>,
        comment: Option<&str>,
    ) -> &mut Self {
        self.packet_of(frame, frame.ethernet.len(), flags, comment)
    }

    /// A packet of which this many bytes were on the wire.
    fn packet_of(
        &mut self,
        frame: &Frame,
        length: usize,
        flags: Option<u32>,
        comment: Option<&str>,
    ) -> &mut Self {
        let comment = comment.map(|comment| EnhancedPacketOption::Comment(comment.into()));
        let flags = flags.map(EnhancedPacketOption::Flags);
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: frame.time,
            original_len: length as u32,
            data: Cow::Borrowed(&frame.ethernet),
            options: comment.into_iter().chain(flags).collect(),
        };
        self.0.write_pcapng_block(block).expect("memory");
        self
    }

    fn note(&mut self, time: Duration, fields: &str) -> &mut Self {
        let entry = format!(
            "__REALTIME_TIMESTAMP={}\nROCI_TIME_NS={}\n{fields}\n\n",
            time.as_micros(),
            time.as_nanos()
        );
        let journal_entry = entry.into_bytes().into();
        let block = SystemdJournalExportBlock { journal_entry };
        self.0.write_pcapng_block(block).expect("memory");
        self
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.into_inner()
    }
}

/// The frames of the kernel's device that was never ready, up to the given RNR NAK.
fn never_ready(naks: usize) -> Vec<Frame> {
    let all = analysis("gold-rnr");
    let mut found = 0;
    let last = all.packets.iter().position(|packet| {
        found += usize::from(packet.role == Role::NotReady);
        found == naks
    });
    let mut frames = frames("gold-rnr");
    frames.truncate(last.expect("so many NAKs") + 1);
    frames
}

fn plain(frames: &[Frame]) -> Analysis {
    let mut capture = OwnCapture::of("a test (process 1)");
    for frame in frames {
        capture.packet(frame, None, None);
    }
    Analysis::read(capture.bytes().as_slice()).expect("a capture")
}

pub(crate) fn text(analysis: &Analysis, view: &View) -> String {
    anstream::adapter::strip_str(&render(analysis, view)).to_string()
}

#[test]
fn rnr_naks_are_counted_beyond_sixteen_bits() {
    const ROUNDS: u32 = 66_000;
    let frames = never_ready(1);
    let (before, round) = frames.split_at(frames.len() - 2);
    let mut capture = OwnCapture::of("a test (process 1)");
    for frame in before {
        capture.packet(frame, None, None);
    }
    for count in 0..ROUNDS {
        for frame in round {
            let later = Frame {
                time: frame.time + count * Duration::from_millis(1),
                ethernet: frame.ethernet.clone(),
            };
            capture.packet(&later, None, None);
        }
    }
    let analysis = Analysis::read(capture.bytes().as_slice()).expect("a capture");
    assert_eq!(analysis.messages[0].not_ready, ROUNDS);
}

#[test]
fn capture_that_ends_while_the_sender_tries_is_not_called_exhausted() {
    let tries = plain(&never_ready(2));
    let kinds: Vec<AnomalyKind> = tries.anomalies.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [AnomalyKind::StillTrying], "{:?}", tries.anomalies);
    assert_eq!(tries.messages[0].outcome, Outcome::NotReady);
    let gives_up = analysis("gold-rnr");
    let kinds: Vec<AnomalyKind> = gives_up.anomalies.iter().map(|it| it.kind).collect();
    assert!(kinds.contains(&AnomalyKind::NotReadyForEver), "{kinds:?}");
}

/// The anomalies of a sender whose receiver is not ready, and whose request completes with this status.
fn never_ready_until_completed(naks: usize, status: &str) -> Vec<Anomaly> {
    let mut frames = never_ready(naks);
    let number = analysis("gold-rnr");
    let number = number.number_at(number.packets[0].connection, explain::Side::Left);
    let number = number.expect("the connection manager named it").value();
    let comment = format!("SEND wr_id 7 of QP {number:#x}");
    let mut capture = OwnCapture::of("sender (process 1)");
    for frame in &frames {
        capture.packet(frame, Some(OUTBOUND), Some(&comment));
    }
    let last = frames.pop().expect("a frame").time;
    capture.note(
        last + Duration::from_millis(1),
        &format!("ROCI_EVENT=completion\nROCI_QP={number:#x}\nROCI_WR_ID=7\nROCI_WORK=SEND\nROCI_STATUS={status}"),
    );
    let analysis = Analysis::read(capture.bytes().as_slice()).expect("a capture");
    analysis.anomalies
}

#[test]
fn failed_completion_shows_that_the_sender_gave_up() {
    let anomalies = never_ready_until_completed(2, "IBV_WC_RNR_RETRY_EXC_ERR");
    let [anomaly] = anomalies.as_slice() else {
        panic!("{anomalies:?}");
    };
    assert_eq!(anomaly.kind, AnomalyKind::NotReadyForEver);
    let sentence = &anomaly.sentence;
    assert!(
        sentence.ends_with("each time; that was the last attempt."),
        "{sentence}"
    );
}

#[test]
fn a_request_that_was_flushed_has_not_exhausted_its_retries() {
    let anomalies = never_ready_until_completed(2, "IBV_WC_WR_FLUSH_ERR");
    let [anomaly] = anomalies.as_slice() else {
        panic!("{anomalies:?}");
    };
    assert_eq!(anomaly.kind, AnomalyKind::StillTrying);
    let sentence = &anomaly.sentence;
    assert!(
        sentence.ends_with("; the capture ends with that."),
        "{sentence}"
    );
}

/// The largest number of retries is 6, and 7 means forever.
#[test]
fn a_sender_that_retries_more_than_six_times_never_gives_up() {
    let first = never_ready(1);
    let round = &first[first.len() - 2..];
    for (attempts, kind) in [
        (7, AnomalyKind::NotReadyForEver),
        (8, AnomalyKind::StillTrying),
    ] {
        let mut all = never_ready(1);
        for number in 1..attempts {
            let again = round.iter().map(|frame| Frame {
                time: frame.time + number * Duration::from_millis(1),
                ethernet: frame.ethernet.clone(),
            });
            all.extend(again);
        }
        // The connection manager closes the connection.
        let end = frames("gold-rnr");
        all.extend(end.into_iter().rev().take(2).rev());
        let analysis = plain(&all);
        let kinds: Vec<AnomalyKind> = analysis.anomalies.iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [kind], "{:?}", analysis.anomalies);
    }
}

#[test]
fn ladder_begins_before_the_first_problem() {
    let analysis = analysis("loss5-requests-send");
    let lost = analysis
        .packets
        .iter()
        .find(|packet| packet.marks.contains(Marks::LOST))
        .expect("a packet is lost");
    let view = View {
        ladder: 12,
        ..View::default()
    };
    let text = text(&analysis, &view);
    let ladder = &text[text.find("Ladder of").expect("a ladder")..];
    assert!(ladder.contains("before the first problem"), "{ladder}");
    assert!(ladder.contains(&format!("PSN {} ", lost.psn)), "{ladder}");
    assert!(ladder.contains("· lost"), "{ladder}");
}

#[test]
fn comment_names_the_sender_without_a_direction() {
    let frames = frames("misc/noack-timeout14-retry2");
    let mut capture = OwnCapture::of("sender (process 1)");
    // Without the management datagrams, which name the queue pairs.
    let is_request = |frame: &&Frame| frame.ip().len() == 20 + 8 + 12 + 16 + 4;
    for frame in frames.iter().filter(is_request) {
        capture.packet(frame, None, Some("SEND wr_id 7 of QP 0xabc, edited"));
    }
    let analysis = Analysis::read(capture.bytes().as_slice()).expect("a capture");
    let connection = analysis
        .packets
        .iter()
        .find(|packet| packet.role == Role::Request)
        .expect("a request")
        .connection;
    let number = analysis.number_at(connection, explain::Side::Left);
    assert_eq!(number, Some(wire::Qpn::new(0xabc)));
}

/// A capture of the kernel's device as its two ends would have captured it. That of the server lacks some frames.
fn at_both_ends(name: &str, server_lacks: impl Fn(usize) -> bool) -> [Vec<u8>; 2] {
    let one = analysis(name);
    let client = one[one[one.packets[0].connection].ends[0].endpoint].address;
    let std::net::IpAddr::V4(client) = client else {
        panic!("the capture is of IPv4");
    };
    let [mut left, mut right] = ["client (process 1)", "server (process 2)"].map(OwnCapture::of);
    for (place, frame) in frames(name).iter().enumerate() {
        let from_client = frame.ip()[12..16] == client.octets();
        let later = Frame {
            time: frame.time + Duration::from_micros(3),
            ethernet: frame.ethernet.clone(),
        };
        let (here, there) = if from_client {
            ((frame, OUTBOUND), (&later, INBOUND))
        } else {
            ((&later, INBOUND), (frame, OUTBOUND))
        };
        left.packet(here.0, Some(here.1), None);
        if !server_lacks(place) {
            right.packet(there.0, Some(there.1), None);
        }
    }
    [left.bytes(), right.bytes()]
}

#[test]
fn packets_before_the_capture_of_the_other_end_begins_are_not_lost() {
    let whole = analysis("rping");
    assert_eq!(whole.anomalies.len(), 0, "{:?}", whole.anomalies);
    let begin = whole.packets.len() / 3;
    let sources = at_both_ends("rping", |place| place < begin);
    let sources = sources.iter().map(Vec::as_slice).collect();
    let merged = Analysis::read_all(sources).expect("two captures");
    assert_eq!(merged.packets.len(), whole.packets.len());
    let lost = |packet: &&explain::Packet| packet.marks.contains(Marks::LOST);
    assert_eq!(merged.packets.iter().filter(lost).count(), 0);
    assert_eq!(merged.anomalies.len(), 0, "{:?}", merged.anomalies);
}

/// Nothing tells that the capture of the server begins later.
#[test]
fn first_packet_that_did_not_arrive_is_lost() {
    let sources = at_both_ends("gold-send", |place| place == 0);
    let sources = sources.iter().map(Vec::as_slice).collect();
    let merged = Analysis::read_all(sources).expect("two captures");
    let lost = |packet: &explain::Packet| packet.marks.contains(Marks::LOST);
    assert!(lost(&merged.packets[0]));
    assert!(!merged.packets[1..].iter().any(lost));
}

#[test]
fn captures_of_both_ends_are_merged() {
    let one = analysis("gold-send");
    let sources = at_both_ends("gold-send", |_| false);
    // The order of the files does not matter.
    for order in [[0, 1], [1, 0]] {
        let sources = order.map(|place| sources[place].as_slice()).to_vec();
        let merged = Analysis::read_all(sources).expect("two captures");
        assert_eq!(merged.packets.len(), one.packets.len());
        let flights = merged.packets.iter().map(|packet| packet.flight);
        assert!(flights.flatten().all(|flight| flight.get() == 3000));
        assert!(
            merged
                .packets
                .iter()
                .all(|packet| packet.marks.contains(Marks::SEEN_TWICE))
        );
        assert_eq!(merged.anomalies.len(), 0, "{:?}", merged.anomalies);
        let text = text(&merged, &View::default());
        let ends = merged[merged.packets[0].connection].ends;
        for (process, end) in ["client (process 1)", "server (process 2)"]
            .into_iter()
            .zip(ends)
        {
            let has = format!("  {process}: {} QP ", merged[end.endpoint].address);
            assert!(text.contains(&has), "{has}: {text}");
        }
    }
    let broken: Vec<&[u8]> = vec![&sources[0], b"no capture"];
    let (place, _) = Analysis::read_all(broken).expect_err("the second is none");
    assert_eq!(place, 1);
}

#[test]
fn work_request_is_told_from_its_post_to_its_poll() {
    let frames = frames("gold-send");
    let one = analysis("gold-send");
    let sends = one.packets.iter();
    let place = sends
        .take_while(|packet| packet.role != Role::Request)
        .count();
    let number = one.number_at(one.packets[place].connection, one.packets[place].from);
    let number = number.expect("the connection manager named it").value();
    let start = frames[place].time;
    let at = |micros| start + Duration::from_micros(micros);
    let event = |kind: &str, status: &str| {
        format!(
            "ROCI_EVENT={kind}\nROCI_QP={number:#x}\nROCI_WR_ID=77\nROCI_WORK=SEND\nROCI_LENGTH=64{status}"
        )
    };
    let success = "\nROCI_STATUS=IBV_WC_SUCCESS";
    let comment = format!("request of QP {number:#x}");
    let mut capture = OwnCapture::of("client (process 1)");
    for frame in &frames[..place] {
        capture.packet(frame, Some(OUTBOUND), None);
    }
    capture.note(start - Duration::from_micros(5), &event("post-send", ""));
    capture.packet(&frames[place], Some(OUTBOUND), Some(&comment));
    for frame in &frames[place + 1..] {
        capture.packet(frame, Some(INBOUND), None);
    }
    capture.note(at(900), &event("completion", success));
    capture.note(at(950), &event("poll", success));
    let analysis = Analysis::read(capture.bytes().as_slice()).expect("a capture");
    let [request] = analysis.work_requests.as_slice() else {
        panic!("{:?}", analysis.work_requests);
    };
    let message = request.message.expect("it has a message");
    let begun = i64::try_from(analysis[message].begun).expect("a time");
    assert_eq!(begun - request.posted, 5000);
    assert_eq!(request.completed, Some(begun + 900_000));
    assert_eq!(request.polled, Some(begun + 950_000));
    assert_eq!((request.id, request.length), (77, 64));
    let text = text(&analysis, &View::default());
    let line = text.lines().find(|line| line.contains(" 77 "));
    let line = line.expect("a line of the table");
    for word in ["5.00 µs", "905 µs", "50.0 µs", "success"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    assert!(text.contains("3 of posts and completions"), "{text}");
}

#[test]
fn asynchronous_event_names_its_queue_pair() {
    let frames = frames("gold-send");
    let mut capture = OwnCapture::of("server (process 1)");
    for frame in &frames {
        capture.packet(frame, Some(INBOUND), None);
    }
    let event = "ROCI_EVENT=async\nROCI_WORK=IBV_EVENT_QP_ACCESS_ERR\nROCI_QP=0x6ba8c7";
    capture.note(frames[0].time, event);
    let event = "ROCI_EVENT=async\nROCI_WORK=IBV_EVENT_PORT_ERR";
    capture.note(frames[0].time, event);
    let analysis = Analysis::read(capture.bytes().as_slice()).expect("a capture");
    let text = text(&analysis, &View::default());
    for event in [
        "IBV_EVENT_QP_ACCESS_ERR of QP 0x6ba8c7\n",
        "IBV_EVENT_PORT_ERR\n",
    ] {
        assert!(text.contains(event), "{event}: {text}");
    }
}

#[test]
fn cut_off_capture_counts_records_of_programs_as_frames() {
    let frames = frames("gold-send");
    let mut capture = OwnCapture::of("client (process 1)");
    capture.note(
        frames[0].time,
        "ROCI_EVENT=async\nROCI_WORK=IBV_EVENT_PORT_ERR",
    );
    for frame in &frames {
        capture.packet(frame, Some(OUTBOUND), None);
    }
    let bytes = capture.bytes();
    let analysis = Analysis::read(&bytes[..bytes.len() - 3]).expect("a capture");
    let [remark] = &analysis.capture.remarks[..] else {
        panic!("{:?}", analysis.capture.remarks);
    };
    let last = format!("up to frame {}, is read", frames.len());
    assert!(remark.contains(&last), "{last}: {remark}");
}

#[test]
fn packet_that_arrives_twice_is_reported_as_a_copy() {
    let frames = frames("gold-send");
    let mut capture = OwnCapture::of("both ends (process 1)");
    for frame in &frames {
        for flags in [OUTBOUND, INBOUND, INBOUND] {
            capture.packet(frame, Some(flags), None);
        }
    }
    let analysis = Analysis::read(capture.bytes().as_slice()).expect("a capture");
    assert_eq!(analysis.packets.len(), frames.len(), "copies are left out");
    let text = text(&analysis, &View::default());
    let sentence = format!("{} packets arrived again although sent once", frames.len());
    assert!(text.contains(&sentence), "{sentence}: {text}");
}

#[test]
fn packets_without_all_of_their_headers_are_counted() {
    let mut capture = OwnCapture::of("client (process 1)");
    let mut cut = frames("gold-send");
    for frame in &mut cut[2..] {
        // Ethernet, IP, UDP and a part of the BTH.
        frame.ethernet.truncate(14 + 20 + 8 + 6);
    }
    for (frame, whole) in cut.iter().zip(frames("gold-send")) {
        capture.packet_of(frame, whole.ethernet.len(), None, None);
    }
    let analysis = Analysis::read(capture.bytes().as_slice()).expect("a capture");
    let remark = format!(
        "{} packets were captured without all of their headers",
        cut.len() - 2
    );
    let remarks = analysis.capture.remarks.join(" ");
    assert!(remarks.contains(&remark), "{remark}: {remarks}");
}

#[test]
fn acknowledgement_that_comes_twice_is_needless() {
    let one = analysis("gold-send");
    let place = one
        .packets
        .iter()
        .position(|packet| packet.role == Role::Acknowledge);
    let place = place.expect("an acknowledgement");
    let mut capture = OwnCapture::of("client (process 1)");
    for (index, frame) in frames("gold-send").iter().enumerate() {
        for _ in 0..1 + usize::from(index == place) {
            capture.packet(frame, None, None);
        }
    }
    let twice = Analysis::read(capture.bytes().as_slice()).expect("a capture");
    let is_needless = |index: usize| twice.packets[index].marks.contains(Marks::NEEDLESS);
    assert_eq!((is_needless(place), is_needless(place + 1)), (false, true));
}

/// What is settled is not contradicted by the packets that follow, so that a capture can be told while it is being written.
#[test]
fn what_is_settled_stays_when_the_capture_goes_on() {
    for name in [
        "gold-rnr",
        "gold-rnrok",
        "gold-badrkey",
        "gold-batch",
        "uc-pingpong",
        "loss5-requests-send",
        "loss5-responses-read",
    ] {
        let frames = frames(name);
        let whole = plain(&frames);
        let told = |analysis: &Analysis| {
            let messages = analysis
                .messages
                .iter()
                .filter(|it| analysis.is_settled(it));
            let messages = messages.map(|it| {
                let frame = analysis[it.first].frame;
                format!("{frame} {:?} {}", it.outcome, it.name())
            });
            let problems = analysis.anomalies.iter().filter(|it| !it.is_open);
            let problems = problems.map(|it| {
                let frame = it.packet.map_or(0, |packet| analysis[packet].frame);
                format!("{frame} {:?}", it.kind)
            });
            messages.chain(problems).collect::<Vec<_>>()
        };
        let of_whole = told(&whole);
        let step = frames.len().div_ceil(40);
        for end in (1..frames.len()).step_by(step) {
            for line in told(&plain(&frames[..end])) {
                assert!(of_whole.contains(&line), "{name} up to {end}: {line}");
            }
        }
    }
}

/// A DREQ that nobody answers.
#[test]
fn a_retransmitted_message_is_not_said_to_be_answered_if_it_is_not() {
    let all = frames("gold-rnrok");
    let (before, end) = all.split_at(all.len() - 2);
    let mut capture = OwnCapture::of("a test (process 1)");
    for frame in before {
        capture.packet(frame, None, None);
    }
    for seconds in 0..3 {
        let again = Frame {
            time: end[0].time + seconds * Duration::from_secs(1),
            ethernet: end[0].ethernet.clone(),
        };
        capture.packet(&again, None, None);
    }
    let analysis = Analysis::read(capture.bytes().as_slice()).expect("a capture");
    let mut anomalies = analysis.anomalies.iter();
    let retransmitted = anomalies.find(|it| it.kind == AnomalyKind::HandshakeRetransmitted);
    let retransmitted = retransmitted.expect("the DREQ was sent three times");
    let sentence = &retransmitted.sentence;
    assert!(
        sentence.contains("retransmitted its DREQ twice"),
        "{sentence}"
    );
    assert!(sentence.ends_with("has no response to it."), "{sentence}");
    assert!(retransmitted.is_open);
}

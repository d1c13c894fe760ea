//! The same packets in every file format.

use std::borrow::Cow;
use std::time::Duration;

use explain::terminal::{View, render};
use explain::{Analysis, AnomalyKind, Marks, Outcome};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness, TsResolution};

use crate::kernel_captures::{Frame, analysed, analysis, frames};

const CAPTURES: [&str; 3] = ["gold-rnrok", "gold-batch", "ipv6/rc-pingpong-gid0"];

/// A classic file with each frame rewritten.
pub(crate) fn pcap(
    frames: &[Frame],
    header: PcapHeader,
    rewrite: impl Fn(&Frame) -> Vec<u8>,
) -> Vec<u8> {
    let mut writer = PcapWriter::with_header(Vec::new(), header).expect("memory");
    for frame in frames {
        let data = rewrite(frame);
        let packet = PcapPacket::new(frame.time, data.len() as u32, &data);
        writer.write_packet(&packet).expect("memory");
    }
    writer.into_writer()
}

fn link(datalink: DataLink) -> PcapHeader {
    PcapHeader {
        datalink,
        ..PcapHeader::default()
    }
}

/// The text, without the line about the file.
pub(crate) fn text_without_file(analysis: &Analysis) -> String {
    let text = render(analysis, &View::default());
    let lines = text.lines().filter(|line| !line.starts_with("The pcap"));
    lines.collect::<Vec<_>>().join("\n")
}

fn ethertype(frame: &Frame) -> [u8; 2] {
    [frame.ethernet[12], frame.ethernet[13]]
}

#[test]
fn every_link_type_gives_the_same_text() {
    for name in CAPTURES {
        let frames = frames(name);
        let expected = text_without_file(&analysis(name));
        let with = |datalink, before: &dyn Fn(&Frame) -> Vec<u8>| {
            let file = pcap(&frames, link(datalink), |frame| {
                [&before(frame), frame.ip()].concat()
            });
            assert_eq!(
                text_without_file(&analysed(&file)),
                expected,
                "{name} {datalink:?}"
            );
        };
        with(DataLink::RAW, &|_| Vec::new());
        with(DataLink::NULL, &|_| vec![2, 0, 0, 0]);
        with(DataLink::LOOP, &|_| vec![0, 0, 0, 2]);
        with(DataLink::ETHERNET, &|frame| {
            let tag = [0x81, 0, 0, 7];
            [&frame.ethernet[..12], &tag, &ethertype(frame)].concat()
        });
        // The direction is known, but each packet is captured once.
        with(DataLink::LINUX_SLL, &|frame| {
            [&[0, 0, 0, 1, 0, 6][..], &[0; 8], &ethertype(frame)].concat()
        });
        with(DataLink::LINUX_SLL2, &|frame| {
            let behind = [0, 0, 0, 0, 0, 3, 0, 1, 0, 6];
            [&ethertype(frame)[..], &behind, &[0; 8]].concat()
        });
    }
}

#[test]
fn byte_order_and_time_resolution_give_the_same_text() {
    for name in CAPTURES {
        let expected = text_without_file(&analysis(name));
        for endianness in [Endianness::Big, Endianness::Little] {
            for ts_resolution in [TsResolution::MicroSecond, TsResolution::NanoSecond] {
                let header = PcapHeader {
                    endianness,
                    ts_resolution,
                    ..link(DataLink::ETHERNET)
                };
                let file = pcap(&frames(name), header, |frame| frame.ethernet.clone());
                assert_eq!(
                    text_without_file(&analysed(&file)),
                    expected,
                    "{name} {header:?}"
                );
            }
        }
    }
}

/// A pcapng file. `points` are the interfaces and directions at which each frame is captured.
pub(crate) fn pcapng(frames: &[Frame], resolution: u8, points: &[(u32, u32)]) -> Vec<u8> {
    let mut writer = PcapNgWriter::new(Vec::new()).expect("memory");
    for _ in 0..2 {
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfTzone(0),
                InterfaceDescriptionOption::IfTsResol(resolution),
            ],
        };
        writer.write_pcapng_block(interface).expect("memory");
    }
    for (frame, &(interface_id, flags)) in frames
        .iter()
        .flat_map(|frame| points.iter().map(move |point| (frame, point)))
    {
        let units = match resolution {
            9 => frame.time.as_nanos(),
            _ => frame.time.as_micros(),
        };
        let block = EnhancedPacketBlock {
            interface_id,
            // The library writes the value as raw units.
            timestamp: Duration::from_nanos(units as u64),
            original_len: frame.ethernet.len() as u32,
            data: Cow::Borrowed(&frame.ethernet),
            options: vec![
                EnhancedPacketOption::Flags(flags),
                EnhancedPacketOption::Comment("seen".into()),
            ],
        };
        writer.write_pcapng_block(block).expect("memory");
    }
    writer.into_inner()
}

const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

#[test]
fn pcapng_gives_the_same_text_and_keeps_comments() {
    for name in CAPTURES {
        for resolution in [6, 9] {
            let file = pcapng(&frames(name), resolution, &[(0, 0)]);
            let analysis = analysed(&file);
            assert_eq!(
                text_without_file(&analysis),
                text_without_file(&crate::kernel_captures::analysis(name)),
                "{name}"
            );
            let ids: Vec<_> = analysis.packet_ids().collect();
            assert!(ids.iter().all(|&id| analysis.comment(id) == Some("seen")));
        }
    }
}

#[test]
fn packet_captured_at_both_ends_is_one_packet() {
    for points in [
        &[(0, OUTBOUND), (0, INBOUND)][..],
        &[(0, 0), (1, 0)],
        &[(0, OUTBOUND), (1, OUTBOUND), (0, INBOUND), (1, INBOUND)],
    ] {
        for name in CAPTURES {
            let analysis = analysed(&pcapng(&frames(name), 9, points));
            let expected = crate::kernel_captures::analysis(name);
            assert_eq!(
                text_without_file(&analysis),
                text_without_file(&expected),
                "{name} {points:?}"
            );
            let again = (points.len() - 1) * expected.packets.len();
            assert_eq!(analysis.capture.seen_twice, again as u64);
            let how = match points[0].1 {
                OUTBOUND => "captured when sent and again when received",
                _ => "captured on another interface, too",
            };
            let text = render(&analysis, &View::default());
            assert!(text.contains(&format!("{again} of packets that were {how}")));
        }
    }
}

#[test]
fn packet_captured_only_at_its_sender_is_lost() {
    let mut frames = frames("gold-batch");
    let both = pcapng(&frames, 9, &[(0, OUTBOUND), (0, INBOUND)]);
    assert_eq!(analysed(&both).statistics.lost, 0);
    // The last frame is captured only at its sender.
    let last = frames.pop().expect("frames");
    let mut file = pcapng(&frames, 9, &[(0, OUTBOUND), (0, INBOUND)]);
    let alone = pcapng(&[last], 9, &[(0, OUTBOUND)]);
    // A second section has its own interfaces.
    file.extend(alone);
    let analysis = analysed(&file);
    let packet = analysis.packets.last().expect("packets");
    assert!(
        packet.marks.contains(Marks::LOST | Marks::LEFT_HERE),
        "{packet:?}"
    );
    assert_eq!(analysis.statistics.lost, 1);
}

/// A capture of the server of rping, and further frames with their directions.
fn at_the_server(more: &[(usize, u32)]) -> Analysis {
    const SERVER: [u8; 4] = [10, 200, 0, 2];
    const SOURCE: std::ops::Range<usize> = 12..16;
    let frames = frames("rping");
    let point = |frame: &Frame| {
        if frame.ip()[SOURCE] == SERVER {
            OUTBOUND
        } else {
            INBOUND
        }
    };
    let captured = frames.iter().map(|frame| (frame, point(frame)));
    let more = more.iter().map(|&(at, flags)| (&frames[at], flags));
    let captured: Vec<_> = captured.chain(more).collect();
    let sections = captured.into_iter().map(|(frame, flags)| {
        let (time, ethernet) = (frame.time, frame.ethernet.clone());
        pcapng(&[Frame { time, ethernet }], 9, &[(0, flags)])
    });
    analysed(&sections.flatten().collect::<Vec<u8>>())
}

#[test]
fn packet_that_comes_back_to_its_sender_does_not_make_others_lost() {
    let last = frames("rping").len() - 1;
    let analysis = at_the_server(&[(last, INBOUND)]);
    assert_eq!(analysis.capture.seen_twice, 1);
    assert_eq!(analysis.statistics.lost, 0);
    let mut outcomes = analysis.messages.iter().map(|message| message.outcome);
    assert!(outcomes.all(|outcome| outcome == Outcome::Done));
    assert_eq!(analysis.anomalies.len(), 0, "{:?}", analysis.anomalies);
}

#[test]
fn answered_disconnect_requests_are_not_retransmissions() {
    let last = frames("rping").len() - 1;
    let (dreq, drep) = ((last - 1, INBOUND), (last, OUTBOUND));
    let analysis = at_the_server(&[dreq, drep, dreq, drep]);
    let handshake = analysis.connections[0].handshake.as_ref();
    let steps = &handshake.expect("a handshake").steps;
    assert_eq!(steps.len(), 9);
    assert!(steps.iter().all(|step| !step.retransmitted), "{steps:?}");
    let [anomaly] = analysis.anomalies.as_slice() else {
        panic!("{:?}", analysis.anomalies);
    };
    assert_eq!(anomaly.kind, AnomalyKind::DisconnectedAgain);
    assert!(anomaly.sentence.contains("3 DREQs"), "{anomaly:?}");
    let causes = anomaly.kind.explanation().causes;
    assert!(causes[0].contains("died"), "{causes:?}");
}

/// A program that exits without waiting for the response: its watcher tells the peer, which may be gone, too.
#[test]
fn disconnect_requests_after_the_response_are_a_remark_even_without_another_response() {
    let last = frames("rping").len() - 1;
    let analysis = at_the_server(&[(last - 1, INBOUND), (last - 1, INBOUND)]);
    let kinds: Vec<_> = analysis.anomalies.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [AnomalyKind::DisconnectedAgain]);
    let text = anstream::adapter::strip_str(&render(&analysis, &View::default())).to_string();
    assert!(
        text.contains("\nRemarks\n") && !text.contains("went wrong"),
        "{text}"
    );
}

#[test]
fn truncated_packets_are_analysed() {
    const SNAP: usize = 100;
    let frames = frames("gold-batch");
    let mut writer = PcapWriter::with_header(Vec::new(), link(DataLink::ETHERNET)).expect("memory");
    for frame in &frames {
        let kept = &frame.ethernet[..frame.ethernet.len().min(SNAP)];
        let packet = PcapPacket::new(frame.time, frame.ethernet.len() as u32, kept);
        writer.write_packet(&packet).expect("memory");
    }
    let analysis = analysed(&writer.into_writer());
    let whole = crate::kernel_captures::analysis("gold-batch");
    assert_eq!(analysis.packets.len(), whole.packets.len());
    let data = |analysis: &Analysis| -> Vec<_> {
        let messages = analysis.messages.iter();
        messages
            .map(|message| (message.name(), message.length, message.outcome))
            .collect()
    };
    assert_eq!(data(&analysis), data(&whole));
    assert_eq!(analysis.statistics.damaged, 0);
    assert!(
        analysis
            .packets
            .iter()
            .any(|packet| packet.marks.contains(Marks::CUT))
    );
}

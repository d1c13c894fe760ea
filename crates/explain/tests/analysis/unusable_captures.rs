//! Files that are not captures, and captures without RoCEv2.

use explain::terminal::{View, render};
use explain::{Analysis, ReadError};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use wire::{Datagram, Flow, Fragmentation, ROCE_PORT};

fn rejected(bytes: &[u8]) -> String {
    Analysis::read(bytes).expect_err("no capture").to_string()
}

#[test]
fn file_that_is_no_capture_is_an_error() {
    assert!(matches!(Analysis::read(&b""[..]), Err(ReadError::Empty)));
    assert!(matches!(
        Analysis::read(&b"hello, world"[..]),
        Err(ReadError::NotACapture)
    ));
    assert!(rejected(b"\x1f\x8b\x08\0\0\0").contains("gunzip"));
    assert!(rejected(b"\x0a\x0d\x0d\x0a\0\0").contains("cut off"));
    assert!(rejected(b"\xd4\xc3\xb2\xa1\x02").contains("cut off"));
}

fn capture(datalink: DataLink, frame: &[u8]) -> Vec<u8> {
    let header = PcapHeader {
        datalink,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).expect("memory");
    let packet = PcapPacket::new(std::time::Duration::ZERO, frame.len() as u32, frame);
    writer.write_packet(&packet).expect("memory");
    writer.into_writer()
}

#[test]
fn capture_without_roce_gives_advice() {
    let analysis = crate::kernel_captures::analysed(&capture(DataLink::ETHERNET, &[0; 60]));
    assert_eq!((analysis.capture.frames, analysis.capture.foreign), (1, 1));
    let text = render(&analysis, &View::default());
    assert!(
        text.contains("UDP port 4791") && text.contains("ROCI_PCAP"),
        "{text}"
    );
}

#[test]
fn unknown_link_type_is_a_remark() {
    let analysis = crate::kernel_captures::analysed(&capture(DataLink::USER0, &[0; 60]));
    let remark = analysis.capture.remarks.first().expect("a remark");
    assert!(
        remark.starts_with("Frames of link type 147 are left out"),
        "{remark}"
    );
}

/// A frame to the RoCEv2 port with this payload.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let datagram = Datagram {
        flow: Flow {
            source: [127, 0, 0, 1].into(),
            destination: [127, 0, 0, 1].into(),
            source_port: 50_000,
            destination_port: ROCE_PORT,
        },
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        fragmentation: Fragmentation::NONE,
        payload,
    };
    datagram.emit(&mut frame);
    frame
}

#[test]
fn malformed_packets_are_reported_and_own_probes_are_not() {
    let analysis =
        crate::kernel_captures::analysed(&capture(DataLink::RAW, &datagram(&[0x1f; 20])));
    let sentences: Vec<_> = analysis
        .anomalies
        .iter()
        .map(|it| it.sentence.as_str())
        .collect();
    assert_eq!(
        sentences,
        ["Frame 1 is no packet: transport header version 15, the only known one is 0."]
    );
    let probe = [&[0xff, 0x0f, b'r', b'c'][..], &[7; 12]].concat();
    let of_closed_port = Vec::new();
    let of_silent_peer = vec![0; 16];
    for probe in [probe, of_closed_port, of_silent_peer] {
        let analysis = crate::kernel_captures::analysed(&capture(DataLink::RAW, &datagram(&probe)));
        assert_eq!((analysis.anomalies.len(), analysis.capture.foreign), (0, 1));
    }
}

//! The causes of a rejected request fit its operation.

use explain::{Analysis, Role, State};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use wire::{Datagram, ICRC_LENGTH, Packet, Syndrome, icrc};

use crate::kernel_captures::{analysed, analysis, frames};

/// The capture with every fatal NAK changed to an invalid request.
fn with_invalid_request(name: &str) -> Analysis {
    let header = PcapHeader {
        datalink: DataLink::RAW,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).expect("memory");
    for frame in frames(name) {
        let mut bytes = frame.ip().to_vec();
        reject_as_invalid(&mut bytes);
        let packet = PcapPacket::new(frame.time, bytes.len() as u32, &bytes);
        writer.write_packet(&packet).expect("memory");
    }
    analysed(&writer.into_writer())
}

fn reject_as_invalid(frame: &mut [u8]) {
    const BTH_LENGTH: usize = 12;
    const INVALID_REQUEST: u8 = 0x61;
    let datagram = Datagram::parse_ip(frame).expect("UDP");
    let packet = Packet::parse(datagram.payload).expect("RoCE");
    let syndrome = packet.aeth().map(wire::Aeth::syndrome);
    if !matches!(syndrome, Some(Syndrome::Negative(_))) {
        return;
    }
    let begin = datagram.payload.as_ptr().addr() - frame.as_ptr().addr();
    let end = begin + datagram.payload.len() - ICRC_LENGTH;
    let (flow, identification) = (datagram.flow, datagram.fragmentation.identification);
    frame[begin + BTH_LENGTH] = INVALID_REQUEST;
    let checksum = icrc::checksum(&flow, identification, &frame[begin..end]);
    frame[end..end + ICRC_LENGTH].copy_from_slice(&checksum);
}

/// The operation that was rejected, and all causes.
fn rejection(analysis: &Analysis) -> (&'static str, String) {
    let mut anomalies = analysis.anomalies.iter();
    let anomaly = anomalies
        .find(|anomaly| anomaly.kind.explanation().name == "invalid-request")
        .expect("it is reported");
    let message = anomaly.message.expect("it is captured");
    let causes = anomaly.kind.explanation().causes.join("; ");
    (analysis[message].name(), causes)
}

#[test]
fn a_fatal_nak_moves_both_queue_pairs_to_the_error_state() {
    let analysis = analysis("gold-badrkey");
    let states = analysis.queue_pairs.iter().flat_map(|it| &it.states);
    let failed = states.filter(|change| change.state == State::Error);
    let packets: Vec<_> = failed.map(|change| change.packet).collect();
    assert_eq!(packets.len(), 2);
    assert_eq!(packets[0], packets[1], "with the same packet");
}

#[test]
fn causes_of_an_invalid_write_are_those_of_writes() {
    let (name, causes) = rejection(&with_invalid_request("gold-badrkey"));
    assert_eq!(name, "RDMA WRITE");
    assert!(causes.contains("IBV_ACCESS_REMOTE_WRITE"), "{causes}");
    assert!(!causes.contains("receive"), "{causes}");
}

#[test]
fn causes_of_an_invalid_send_are_those_of_sends() {
    let (name, causes) = rejection(&with_invalid_request("gold-toolong"));
    assert_eq!(name, "SEND");
    assert!(causes.contains("longer than the receive"), "{causes}");
    assert!(!causes.contains("ACCESS"), "{causes}");
}

#[test]
fn naks_are_counted_apart_from_acknowledgements() {
    let counted = |name: &str| {
        let counted = analysis(name).statistics;
        (counted.rejections > 0, counted.not_ready > 0)
    };
    assert_eq!(counted("gold-badrkey"), (true, false));
    assert_eq!(counted("gold-rnr"), (false, true));
    assert_eq!(counted("gold-send"), (false, false));
    let all = analysis("gold-badrkey").statistics;
    let roles = analysis("gold-badrkey").packets;
    let acknowledgements = roles
        .iter()
        .filter(|packet| packet.role == Role::Acknowledge);
    assert_eq!(all.acknowledgements, acknowledgements.count() as u64);
}

//! Datagram services that are not offered.

use explain::{Analysis, HandshakeOutcome};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use wire::cm::{Message, ServiceStatus};
use wire::{Datagram, ICRC_LENGTH, icrc, mad};

use crate::kernel_captures::{analysed, frames};

/// The capture of a service that was found, with another status in its reply.
fn answered_with(status: ServiceStatus) -> Analysis {
    let header = PcapHeader {
        datalink: DataLink::RAW,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).expect("memory");
    for frame in frames("udaddy") {
        let mut bytes = frame.ip().to_vec();
        change_status(&mut bytes, status);
        let packet = PcapPacket::new(frame.time, bytes.len() as u32, &bytes);
        writer.write_packet(&packet).expect("memory");
    }
    analysed(&writer.into_writer())
}

fn change_status(frame: &mut [u8], status: ServiceStatus) {
    const BTH_AND_DETH: usize = 20;
    let datagram = Datagram::parse_ip(frame).expect("UDP");
    let (flow, identification) = (datagram.flow, datagram.fragmentation.identification);
    let begin = datagram.payload.as_ptr().addr() - frame.as_ptr().addr();
    let end = begin + datagram.payload.len() - ICRC_LENGTH;
    let message = begin + BTH_AND_DETH..begin + BTH_AND_DETH + mad::LENGTH;
    let Some(Ok(bytes)) = frame
        .get(message.clone())
        .map(<[u8; mad::LENGTH]>::try_from)
    else {
        return;
    };
    let Ok((header, Message::ServiceReply(reply))) = Message::parse(&bytes) else {
        return;
    };
    let changed = Message::from(wire::cm::ServiceReply { status, ..reply });
    frame[message].copy_from_slice(&changed.emit(header.transaction()));
    let checksum = icrc::checksum(&flow, identification, &frame[begin..end]);
    frame[end..end + ICRC_LENGTH].copy_from_slice(&checksum);
}

fn outcomes(analysis: &Analysis) -> Vec<HandshakeOutcome> {
    let handshakes = analysis.connections.iter();
    let handshakes = handshakes.filter_map(|connection| connection.handshake.as_ref());
    handshakes
        .map(|handshake| handshake.outcome.clone())
        .collect()
}

#[test]
fn service_that_is_not_offered_is_rejected_and_not_found() {
    let found = outcomes(&answered_with(ServiceStatus::Valid));
    assert!(matches!(found[..], [HandshakeOutcome::Found]), "{found:?}");
    let refused = outcomes(&answered_with(ServiceStatus::NotSupported));
    let [HandshakeOutcome::Rejected { reason, words }] = &refused[..] else {
        panic!("{refused:?}");
    };
    assert_eq!(*reason, 1);
    assert_eq!(words, "no program listens on this service id");
}

//! Fuzz targets for captures: any file can be analysed, and the analysis printed.
//!
//! The same functions run on a stable compiler, in `crates/explain/tests/analysis/damage.rs`.

use std::io;

use explain::terminal::{View, render};
use explain::{Analysis, MessageId};
use pcap_file::pcap::{PcapReader, PcapWriter};
use wire::{Datagram, ICRC_LENGTH, Packet, icrc};

/// Tells a capture as it is, and as if its senders had meant all of it.
pub(crate) fn tell(capture: &[u8]) {
    explain(capture);
    if let Some(resealed) = resealed(capture).filter(|resealed| resealed != capture) {
        explain(&resealed);
    }
}

/// Does everything that can be done with a capture.
pub(crate) fn explain(capture: &[u8]) {
    let analysis = match Analysis::read(capture) {
        Ok(analysis) => analysis,
        Err(error) => return drop(error.to_string()),
    };
    drop(render(&analysis, &View::default()));
    let second_half = View {
        width: 0,
        from: analysis.capture.duration / 2,
        ..View::default()
    };
    drop(render(&analysis, &second_half));
    analysis.write_json(&mut io::sink()).expect("it takes all");
    analysis
        .write_page("<capture>", &mut io::sink())
        .expect("it takes all");
    for id in analysis.packet_ids() {
        drop(analysis.layers(id));
    }
    for index in 0..analysis.messages.len() {
        let packets = analysis.packets_of(MessageId::new(index)).count();
        assert!(packets > 0, "a message without packets");
    }
}

/// The same frames with checksums that fit what is in them now: if a checksum is wrong, no parser accepts
/// numbers that make no sense. None for pcapng.
fn resealed(capture: &[u8]) -> Option<Vec<u8>> {
    let mut reader = PcapReader::new(capture).ok()?;
    let mut writer = PcapWriter::with_header(Vec::new(), reader.header()).ok()?;
    while let Some(Ok(mut packet)) = reader.next_raw_packet() {
        seal(packet.data.to_mut());
        writer.write_raw_packet(&packet).ok()?;
    }
    Some(writer.into_writer())
}

/// Makes the checksum fit the packet in a frame, if there is one.
pub(crate) fn seal(frame: &mut [u8]) {
    let Ok(datagram) = Datagram::parse_ethernet(frame) else {
        return;
    };
    let payload = datagram.payload;
    if Packet::parse(payload).is_err() {
        return;
    }
    let (covered, old) = payload.split_at(payload.len() - ICRC_LENGTH);
    let place = old.as_ptr().addr() - frame.as_ptr().addr();
    let identification = datagram.fragmentation.identification;
    let icrc = icrc::checksum(&datagram.flow, identification, covered);
    frame[place..place + ICRC_LENGTH].copy_from_slice(&icrc);
}

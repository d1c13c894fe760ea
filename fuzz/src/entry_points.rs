//! What a fuzzer feeds with bytes: each function accepts anything and panics on a broken promise.
//!
//! The same functions run on a stable compiler under proptest, in `xtask/tests/entry_points.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use wire::cm::{AddressHeader, Message};
use wire::{Datagram, Extension, ICRC_LENGTH, IcrcChecker, Packet, mad};

const BTH_LENGTH: usize = 12;

/// How many packets lie between two lines of [`count`].
const REPORT_INTERVAL: u64 = 10_000_000;

/// Counts the packets of targets that take many in one run. libFuzzer counts runs only.
pub fn count(packets: u64) {
    static TOTAL: AtomicU64 = AtomicU64::new(0);
    let before = TOTAL.fetch_add(packets, Ordering::Relaxed);
    let total = before + packets;
    if before / REPORT_INTERVAL != total / REPORT_INTERVAL {
        eprintln!("{total} packets");
    }
}

/// Any datagram is either a packet that can be shown or an error that can be shown.
pub fn parse(datagram: &[u8]) {
    match Packet::parse(datagram) {
        Ok(packet) => drop(packet.to_string()),
        Err(error) => drop(error.to_string()),
    }
}

/// What was understood is written as it was read, apart from what the specification reserves.
pub fn roundtrip(datagram: &[u8]) {
    let Ok(packet) = Packet::parse(datagram) else {
        return;
    };
    let mut written = Vec::new();
    packet.emit(&mut written);
    assert_eq!(written, without_reserved_bits(&packet, datagram));

    written.extend([0; ICRC_LENGTH]);
    let again = Packet::parse(&written).expect("what we write, we can read");
    assert_eq!(again.head(), packet.head());
    assert_eq!(again.payload, packet.payload);
}

/// The bytes in front of the ICRC, with reserved bits and pad bytes as a sender must set them.
///
/// Written from the specification's pictures and not from `wire`, so that both must be wrong in
/// the same way before an error goes unseen.
fn without_reserved_bits(packet: &Packet<'_>, datagram: &[u8]) -> Vec<u8> {
    let mut bytes = datagram[..datagram.len() - ICRC_LENGTH].to_vec();
    bytes[4] &= 0xc0; // FECN and BECN, then resv8a
    bytes[8] &= 0x80; // AckReq, then resv7
    for extension in [Extension::Deth, Extension::Xrceth] {
        if let Some(offset) = packet.opcode.offset_of(extension) {
            let reserved = match extension {
                Extension::Deth => 4, // between Q_Key and source QP
                _ => 0,
            };
            bytes[BTH_LENGTH + offset + reserved] = 0;
        }
    }
    let pad_start = bytes.len() - usize::from(packet.pad);
    bytes[pad_start..].fill(0);
    bytes
}

/// A message of the connection manager means the same after it was written and read again.
/// What is missing at the end of `bytes` counts as zeros.
pub fn cm_message(bytes: &[u8]) {
    let mut datagram = [0; mad::LENGTH];
    let length = bytes.len().min(mad::LENGTH);
    datagram[..length].copy_from_slice(&bytes[..length]);

    let (header, message) = match Message::parse(&datagram) {
        Ok(parsed) => parsed,
        Err(error) => return drop(error.to_string()),
    };
    drop(message.to_string());
    let written = message.emit(header.transaction());
    let (header_again, again) = Message::parse(&written).expect("what we write, we can read");
    assert_eq!(again, message);
    assert_eq!(header_again.transaction(), header.transaction());

    if let Message::ConnectRequest(request) = message {
        address_header(request.private_data.bytes());
    }
}

/// Applications of rdma_cm tell their IP addresses at the start of a REQ's private data.
fn address_header(private_data: &[u8]) {
    let bytes = private_data
        .first_chunk()
        .expect("a REQ has room for the header");
    if let Ok(header) = AddressHeader::parse(bytes) {
        assert_eq!(AddressHeader::parse(&header.emit()), Ok(header));
    }
}

/// A frame of a capture is read down to the packet, and what IP and UDP say survives writing.
pub fn frame(bytes: &[u8]) {
    let datagram = match Datagram::parse_ethernet(bytes) {
        Ok(datagram) => datagram,
        Err(error) => return drop(error.to_string()),
    };
    parse(datagram.payload);
    // Right or wrong, but without a panic.
    _ = IcrcChecker::new().check(&datagram.flow, datagram.payload);

    let mut written = Vec::new();
    datagram.emit(&mut written);
    assert_eq!(Datagram::parse_ip(&written), Ok(datagram));
}

//! Divides datagrams that were captured before segmentation offload.
//!
//! With segmentation offload, a capture on the sending machine or its loopback interface contains one
//! large datagram with many packets, all of one size except the last. The size is not in the capture.
//! But each packet has the ICRC of its own position, so the size is the one with valid ICRCs.

use wire::{Flow, ICRC_LENGTH, Opcode, Packet, PathMtu, icrc, opcode_of};

/// The shortest packet: a BTH and an ICRC.
const SHORTEST: usize = 16;

/// Divides datagrams.
#[derive(Default)]
pub(crate) struct Divider {
    /// The size of the previous datagram.
    last_size: usize,
}

impl Divider {
    /// The size of the packets in a datagram that is not one packet. None if no size fits.
    pub(crate) fn size(&mut self, flow: &Flow, payload: &[u8]) -> Option<usize> {
        if payload.len() < 2 * SHORTEST {
            return None;
        }
        let likely = self.likely_sizes(payload);
        let any = (SHORTEST..=longest(payload)).step_by(4);
        let size = likely
            .into_iter()
            .chain(any)
            .find(|&size| size >= SHORTEST && size < payload.len() && fits(flow, payload, size))?;
        self.last_size = size;
        Some(size)
    }

    /// Trying all sizes takes long. Usually it is the size of a full packet, or the previous one.
    fn likely_sizes(&self, payload: &[u8]) -> Vec<usize> {
        let head = opcode_of(payload).map_or(SHORTEST, Opcode::header_length);
        let full = (1..=5).filter_map(PathMtu::from_code);
        let full = full.map(|mtu| head + mtu.bytes() + ICRC_LENGTH);
        [self.last_size].into_iter().chain(full).collect()
    }
}

/// Whether segment *i* has the ICRC for identification *i*, for all segments.
fn fits(flow: &Flow, payload: &[u8], size: usize) -> bool {
    payload.chunks(size).enumerate().all(|(index, packet)| {
        let (covered, icrc) = packet.split_at(packet.len().saturating_sub(ICRC_LENGTH));
        Packet::parse(packet).is_ok() && icrc::checksum(flow, index as u16, covered) == icrc
    })
}

/// No packet is longer than the longest head, the largest path MTU and an ICRC.
fn longest(payload: &[u8]) -> usize {
    let limit = Opcode::MAX_HEADER_LENGTH + PathMtu::Mtu4096.bytes() + ICRC_LENGTH;
    limit.min(payload.len() - SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{PacketHead, Psn, Qpn, ROCE_PORT};

    fn flow() -> Flow {
        Flow {
            source: [127, 0, 0, 1].into(),
            destination: [127, 0, 0, 2].into(),
            source_port: 50000,
            destination_port: ROCE_PORT,
        }
    }

    /// Packets with these payload sizes and the ICRCs of a segmented send.
    fn batch(sizes: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (index, &size) in sizes.iter().enumerate() {
            let psn = Psn::new(index as u32);
            let head = PacketHead::new(Opcode::RcSendMiddle, Qpn::new(9), psn);
            let packet = [head.bytes(), &vec![index as u8; size]].concat();
            bytes.extend_from_slice(&packet);
            bytes.extend(icrc::checksum(&flow(), index as u16, &packet));
        }
        bytes
    }

    #[test]
    fn the_segment_size_is_found_by_its_icrcs() {
        let mut divider = Divider::default();
        let full = batch(&[1024, 512]);
        assert_eq!(divider.size(&flow(), &full), Some(1040));
        let odd = batch(&[44, 44, 8]);
        assert_eq!(divider.size(&flow(), &odd), Some(60));
        assert_eq!(divider.size(&flow(), &odd), Some(60));
        let shortest = batch(&[0, 0]);
        assert_eq!(divider.size(&flow(), &shortest), Some(SHORTEST));
    }

    #[test]
    fn corrupted_bytes_have_no_segment_size() {
        let mut divider = Divider::default();
        let mut bytes = batch(&[1024, 1024]);
        bytes[1050] ^= 1;
        assert_eq!(divider.size(&flow(), &bytes), None);
        assert_eq!(divider.size(&flow(), &bytes[..20]), None);
    }
}

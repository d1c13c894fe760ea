//! Statistics of a capture.

use serde::Serialize;
use wire::{ICRC_LENGTH, Opcode};

use crate::message::{Message, describe};
use crate::packet::{Marks, Packet, Role};

/// Statistics of a capture.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Statistics {
    /// Packets, without duplicates.
    pub packets: u64,
    /// Their bytes, from the BTH to the ICRC.
    pub bytes: u64,
    /// Payload bytes.
    pub payload: u64,
    /// Retransmitted packets.
    pub retransmitted: u64,
    /// Packets that did not arrive, as far as the capture shows.
    pub lost: u64,
    /// Packets with a wrong ICRC.
    pub damaged: u64,
    /// Acknowledgements of any kind.
    pub acknowledgements: u64,
    /// NAKs.
    pub rejections: u64,
    /// RNR NAKs.
    pub not_ready: u64,
    /// How long responses took, in nanoseconds.
    pub response_times: ResponseTimes,
    /// How many packets there are of each opcode, the most frequent first.
    pub opcodes: Vec<OpcodeCount>,
}

/// The number of packets with an opcode.
#[derive(Clone, Debug, Serialize)]
pub struct OpcodeCount {
    /// Its byte.
    pub opcode: u8,
    /// Its name.
    pub name: String,
    /// The number of packets.
    pub packets: u64,
}

/// How long responses took, from the last packet of a message on, in nanoseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ResponseTimes {
    /// The number of responses.
    pub count: u64,
    /// The shortest.
    pub minimum: u64,
    /// Half of them took at most this long.
    pub median: u64,
    /// 99 of 100 took at most this long.
    pub percentile_99: u64,
    /// The longest.
    pub maximum: u64,
    /// How many took less than 2^n nanoseconds but not less than half of that, by n.
    pub histogram: Vec<u64>,
}

impl Statistics {
    pub(crate) fn of(packets: &[Packet], messages: &[Message]) -> Self {
        let mut statistics = Statistics::default();
        let mut opcodes = [0; 256];
        for packet in packets {
            statistics.add(packet);
            opcodes[usize::from(packet.opcode.byte())] += 1;
        }
        statistics.opcodes = by_frequency(&opcodes);
        let times = messages.iter().filter_map(Message::response_time);
        statistics.response_times = ResponseTimes::of(times.collect());
        statistics
    }

    fn add(&mut self, packet: &Packet) {
        let head = packet.opcode.header_length() + ICRC_LENGTH;
        let padded = usize::from(packet.length).next_multiple_of(4);
        self.packets += 1;
        self.bytes += (head + padded) as u64;
        self.payload += u64::from(packet.length);
        self.retransmitted += u64::from(packet.marks.contains(Marks::RETRANSMITTED));
        self.lost += u64::from(packet.marks.contains(Marks::LOST));
        self.damaged += u64::from(packet.marks.contains(Marks::DAMAGED));
        match packet.role {
            Role::Acknowledge => self.acknowledgements += 1,
            Role::Reject => self.rejections += 1,
            Role::NotReady => self.not_ready += 1,
            Role::Request | Role::Response | Role::Manage | Role::Congestion => {}
        }
    }
}

impl ResponseTimes {
    fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let (Some(&minimum), Some(&maximum)) = (times.first(), times.last()) else {
            return ResponseTimes::default();
        };
        let at = |part: f64| times[(times.len() as f64 * part) as usize];
        let mut histogram = vec![0; power_above(maximum) + 1];
        for &time in &times {
            histogram[power_above(time)] += 1;
        }
        ResponseTimes {
            count: times.len() as u64,
            minimum,
            median: at(0.5),
            percentile_99: at(0.99),
            maximum,
            histogram,
        }
    }
}

/// The smallest power of two that is larger.
fn power_above(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()) as usize
}

fn by_frequency(counts: &[u64; 256]) -> Vec<OpcodeCount> {
    let seen = Opcode::ALL
        .iter()
        .map(|&opcode| (opcode, counts[usize::from(opcode.byte())]));
    let mut seen: Vec<_> = seen.filter(|&(_, packets)| packets > 0).collect();
    seen.sort_by_key(|&(opcode, packets)| (std::cmp::Reverse(packets), opcode.byte()));
    let counts = seen.into_iter().map(|(opcode, packets)| OpcodeCount {
        opcode: opcode.byte(),
        name: format!("{} {}", opcode.transport(), describe(opcode)),
        packets,
    });
    counts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let times = ResponseTimes::of((1..=100).rev().collect());
        assert_eq!((times.count, times.minimum, times.maximum), (100, 1, 100));
        assert_eq!((times.median, times.percentile_99), (51, 100));
        // 1, 2 to 3, 4 to 7 and so on.
        assert_eq!(times.histogram, [0, 1, 2, 4, 8, 16, 32, 37]);
    }
}

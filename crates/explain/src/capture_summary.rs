//! What is known of a capture file as a whole.

use std::time::Duration;

use crate::typed_index::PacketId;

/// The capture file.
#[derive(Clone, Debug, Default)]
pub struct CaptureSummary {
    /// `pcap` or `pcapng`.
    pub format: &'static str,
    /// When the first packet was captured, since 1970.
    pub start: Duration,
    /// From the first to the last packet of RoCEv2, in nanoseconds.
    pub duration: u64,
    /// How many frames the file has.
    pub frames: u64,
    /// How many of them are not RoCEv2.
    pub foreign: u64,
    /// How many of them are not packets but tell what a program did.
    pub journal: u64,
    /// Asynchronous events that programs got, with their times in nanoseconds since the first packet.
    pub async_events: Vec<(i64, String)>,
    /// How many packets were captured a second time, at the other end or on another interface.
    pub seen_twice: u64,
    /// Whether the file ends within a record.
    pub(crate) cut_off: bool,
    /// The processes that wrote the capture, as far as it names them: `rping (process 4711)`.
    pub processes: Vec<String>,
    /// Remarks about the file, one sentence each.
    pub remarks: Vec<String>,
    /// Comments of the capture, by packet.
    pub comments: Vec<(PacketId, String)>,
}

impl CaptureSummary {
    /// Adds the fault that the second capture point of a packet names. Packets are not sorted by time yet.
    pub(crate) fn add_fault(&mut self, packet: PacketId, fault: &str) {
        match self.comments.binary_search_by_key(&packet, |(at, _)| *at) {
            Ok(place) => {
                let comment = &mut self.comments[place].1;
                *comment = format!("{fault}; {comment}");
            }
            Err(place) => self.comments.insert(place, (packet, fault.to_owned())),
        }
    }
}

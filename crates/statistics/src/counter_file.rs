//! The counter files of a port, and how each is computed.
//!
//! `counters` has the files that the kernel has for the port counters of a card, and `hw_counters` those of `rdma_rxe`. Some
//! names of common cards are added, because tools ask for them. What this device can't have is zero. `cm_tx_msgs` and the
//! other three directories of [`MESSAGE_FILES`] are those of the kernel's connection manager.

use crate::counter::{DeviceCounter as C, DeviceCounters, MESSAGES, MessageCounter};

/// One file.
#[derive(Debug, Clone, Copy)]
pub struct CounterFile {
    /// Its name.
    pub name: &'static str,
    /// Where its content comes from.
    source: Source,
    /// What the result is divided by.
    unit: u64,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    /// The sum of some counters, less the sum of others.
    Counters {
        sum_of: &'static [C],
        without: &'static [C],
    },
    /// The counter of a message, which is named by its place in the list of messages.
    Message(MessageCounter, usize),
}

impl CounterFile {
    const fn new(name: &'static str, sum_of: &'static [C]) -> Self {
        Self::sum(name, sum_of, &[])
    }

    /// The sum of some counters, less the sum of others.
    const fn sum(name: &'static str, sum_of: &'static [C], without: &'static [C]) -> Self {
        Self {
            name,
            source: Source::Counters { sum_of, without },
            unit: 1,
        }
    }

    /// The files of all messages.
    const fn of_messages(counter: MessageCounter) -> [Self; MESSAGES.len()] {
        let mut files = [Self::new("", &[]); MESSAGES.len()];
        let mut message = 0;
        while message < files.len() {
            files[message].name = MESSAGES[message];
            files[message].source = Source::Message(counter, message);
            message += 1;
        }
        files
    }

    const fn in_units_of(self, unit: u64) -> Self {
        Self { unit, ..self }
    }

    /// Its content.
    #[must_use]
    pub fn value(&self, counters: &DeviceCounters) -> u64 {
        let total = |list: &[C]| list.iter().map(|it| counters.get(*it)).sum::<u64>();
        let value = match self.source {
            Source::Counters { sum_of, without } => total(sum_of).saturating_sub(total(without)),
            Source::Message(counter, message) => counters.of_message(counter, message),
        };
        value / self.unit
    }

    /// The file with this name in one of the directories with counters.
    #[must_use]
    pub fn find(directory: &[u8], name: &[u8]) -> Option<&'static Self> {
        let files: &[Self] = match directory {
            b"counters" => &GENERAL,
            b"hw_counters" => &HARDWARE,
            _ => {
                let mut groups = MESSAGE_FILES.iter();
                let (_, files) = groups.find(|(name, _)| name.as_bytes() == directory)?;
                files
            }
        };
        files.iter().find(|file| file.name.as_bytes() == name)
    }
}

/// Data is counted in words of four bytes.
const WORD: u64 = 4;

/// The files of `counters`.
pub static GENERAL: [CounterFile; 21] = [
    CounterFile::new("VL15_dropped", &[]),
    CounterFile::new("excessive_buffer_overrun_errors", &[]),
    CounterFile::new("link_downed", &[C::LinkDowned]),
    CounterFile::new("link_error_recovery", &[]),
    CounterFile::new("local_link_integrity_errors", &[]),
    CounterFile::new("multicast_rcv_packets", &[C::MulticastReceived]),
    CounterFile::new("multicast_xmit_packets", &[C::MulticastSent]),
    CounterFile::new("port_rcv_constraint_errors", &[C::BadPartitionKey]),
    CounterFile::new("port_rcv_data", &[C::BytesReceived]).in_units_of(WORD),
    CounterFile::new("port_rcv_errors", &[C::Malformed, C::BadChecksum]),
    CounterFile::new("port_rcv_packets", &[C::PacketsReceived]),
    CounterFile::new("port_rcv_remote_physical_errors", &[]),
    CounterFile::new("port_rcv_switch_relay_errors", &[]),
    CounterFile::new("port_xmit_constraint_errors", &[]),
    CounterFile::new("port_xmit_data", &[C::BytesSent]).in_units_of(WORD),
    CounterFile::new("port_xmit_discards", &[C::SendErrors]),
    CounterFile::new("port_xmit_packets", &[C::PacketsSent]),
    CounterFile::new("port_xmit_wait", &[]),
    CounterFile::new("symbol_error", &[]),
    CounterFile::sum(
        "unicast_rcv_packets",
        &[C::PacketsReceived],
        &[C::MulticastReceived],
    ),
    CounterFile::sum(
        "unicast_xmit_packets",
        &[C::PacketsSent],
        &[C::MulticastSent],
    ),
];

/// The files of `hw_counters`: those of `rdma_rxe`, and then those of common cards.
pub static HARDWARE: [CounterFile; 25] = [
    // The kernel counts responses that it leaves to a worker. Here, the thread that receives a response handles it.
    CounterFile::new("ack_deferred", &[]),
    CounterFile::new(
        "completer_retry_err",
        &[C::Timeouts, C::SequenceNaksReceived, C::ImpliedNaks],
    ),
    CounterFile::new("duplicate_request", &[C::DuplicateRequests]),
    CounterFile::new("link_downed", &[C::LinkDowned]),
    CounterFile::new("out_of_seq_request", &[C::OutOfSequence]),
    CounterFile::new("rcvd_pkts", &[C::PacketsReceived]),
    CounterFile::new("rcvd_rnr_err", &[C::RnrNaksReceived]),
    CounterFile::new("rcvd_seq_err", &[C::SequenceNaksReceived]),
    CounterFile::new("rdma_recvs", &[C::ReceivesCompleted]),
    CounterFile::new("rdma_sends", &[C::SendsCompleted]),
    CounterFile::new("retry_exceeded_err", &[C::RetriesExhausted]),
    CounterFile::new("retry_rnr_exceeded_err", &[C::RnrRetriesExhausted]),
    CounterFile::new("send_err", &[C::SendErrors]),
    CounterFile::new("send_rnr_err", &[C::RnrNaksSent]),
    CounterFile::new("sent_pkts", &[C::PacketsSent]),
    CounterFile::new("implied_nak_seq_err", &[C::ImpliedNaks]),
    CounterFile::new("local_ack_timeout_err", &[C::Timeouts]),
    CounterFile::new("np_cnp_sent", &[C::CongestionNotificationsSent]),
    CounterFile::new("np_ecn_marked_roce_packets", &[C::CongestionMarks]),
    CounterFile::new("out_of_buffer", &[C::RnrNaksSent, C::DroppedMessages]),
    CounterFile::new("out_of_sequence", &[C::OutOfSequence]),
    CounterFile::new("packet_seq_err", &[C::SequenceNaksReceived]),
    CounterFile::new("rnr_nak_retry_err", &[C::RnrRetriesExhausted]),
    CounterFile::new("rp_cnp_handled", &[C::CongestionNotifications]),
    CounterFile::new("rx_icrc_encapsulated", &[C::BadChecksum]),
];

/// The directories of the connection manager, and their files.
pub static MESSAGE_FILES: [(&str, [CounterFile; MESSAGES.len()]); 4] = [
    ("cm_tx_msgs", CounterFile::of_messages(MessageCounter::Sent)),
    (
        "cm_tx_retries",
        CounterFile::of_messages(MessageCounter::Retransmitted),
    ),
    (
        "cm_rx_msgs",
        CounterFile::of_messages(MessageCounter::Received),
    ),
    (
        "cm_rx_duplicates",
        CounterFile::of_messages(MessageCounter::Duplicates),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DEVICE_COUNTERS;

    #[test]
    fn messages_are_counted_in_the_directories_of_the_connection_manager() {
        let mut counters = DeviceCounters::default();
        let counter = |name: &str| DEVICE_COUNTERS.iter().position(|it| *it == name);
        counters.0[counter("cm_sent_dreq").expect("a counter")] = 5;
        let value = |directory: &str| {
            let file = CounterFile::find(directory.as_bytes(), b"dreq");
            file.expect("a file").value(&counters)
        };
        assert_eq!(value("cm_tx_msgs"), 5);
        assert_eq!(value("cm_rx_msgs"), 0);
        assert_eq!(value("cm_tx_retries"), 0);
        assert!(CounterFile::find(b"hw_counters", b"dreq").is_none());
    }

    #[test]
    fn data_is_counted_in_words_of_four_bytes_and_multicast_apart() {
        let mut counters = DeviceCounters::default();
        counters.0[C::BytesSent as usize] = 4099;
        counters.0[C::PacketsSent as usize] = 10;
        counters.0[C::MulticastSent as usize] = 3;
        let value = |name: &str| {
            let file = CounterFile::find(b"counters", name.as_bytes());
            file.expect("a file").value(&counters)
        };
        assert_eq!(value("port_xmit_data"), 1024);
        assert_eq!(value("port_xmit_packets"), 10);
        assert_eq!(value("unicast_xmit_packets"), 7);
        assert_eq!(value("multicast_xmit_packets"), 3);
        assert_eq!(value("symbol_error"), 0);
    }

    #[test]
    fn a_file_is_found_in_its_directory_only() {
        assert!(CounterFile::find(b"hw_counters", b"sent_pkts").is_some());
        assert!(CounterFile::find(b"counters", b"sent_pkts").is_none());
        assert!(CounterFile::find(b"gids", b"0").is_none());
    }
}

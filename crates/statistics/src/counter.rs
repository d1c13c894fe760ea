//! The counters of a device.

macro_rules! device_counters {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)*) => {
        /// A counter of a device. Its number is its place on the page.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum DeviceCounter {
            $($(#[doc = $doc])+ $name,)*
        }

        /// The names of all counters, in the order of the page.
        pub const DEVICE_COUNTERS: [&str; [$($text),*].len()] = [$($text),*];
    };
}

// The names and their order are those of the engine's counters. The last ones are the driver's.
device_counters! {
    /// Packets sent.
    PacketsSent = "packets_sent",
    /// Packets received.
    PacketsReceived = "packets_received",
    /// Bytes sent.
    BytesSent = "bytes_sent",
    /// Bytes received.
    BytesReceived = "bytes_received",
    /// Packets sent to multicast groups.
    MulticastSent = "multicast_sent",
    /// Packets received from multicast groups.
    MulticastReceived = "multicast_received",
    /// SENDs that completed.
    SendsCompleted = "sends_completed",
    /// Receives that completed.
    ReceivesCompleted = "receives_completed",
    /// Packets that stayed in the device.
    DeliveredToSelf = "delivered_to_self",
    /// Datagrams that are not valid packets.
    Malformed = "malformed",
    /// Packets with a wrong ICRC.
    BadChecksum = "bad_checksum",
    /// Packets for no queue pair.
    UnknownQueuePair = "unknown_queue_pair",
    /// Packets in a wrong state.
    WrongState = "wrong_state",
    /// Packets of another service.
    WrongService = "wrong_service",
    /// Packets from another address than the peer's.
    WrongPath = "wrong_path",
    /// Packets with a wrong P_Key.
    BadPartitionKey = "bad_partition_key",
    /// Packets with a wrong Q_Key.
    BadQueueKey = "bad_queue_key",
    /// Packets for groups without members.
    UnknownGroup = "unknown_group",
    /// Duplicate requests.
    DuplicateRequests = "duplicate_requests",
    /// Requests ahead of the expected PSN.
    OutOfSequence = "out_of_sequence",
    /// Responses that match no request.
    UnexpectedResponses = "unexpected_responses",
    /// Lost responses, detected by a later one.
    ImpliedNaks = "implied_naks",
    /// Dropped messages of unreliable services.
    DroppedMessages = "dropped_messages",
    /// Retransmitted packets.
    Retransmitted = "retransmitted",
    /// Acknowledgement timeouts.
    Timeouts = "timeouts",
    /// Requests that used all retries.
    RetriesExhausted = "retries_exhausted",
    /// Requests that used all RNR retries.
    RnrRetriesExhausted = "rnr_retries_exhausted",
    /// Sequence NAKs sent.
    SequenceNaksSent = "sequence_naks_sent",
    /// Sequence NAKs received.
    SequenceNaksReceived = "sequence_naks_received",
    /// RNR NAKs sent.
    RnrNaksSent = "rnr_naks_sent",
    /// RNR NAKs received.
    RnrNaksReceived = "rnr_naks_received",
    /// NAKs sent that end the connection.
    FatalNaksSent = "fatal_naks_sent",
    /// NAKs received that end the connection.
    FatalNaksReceived = "fatal_naks_received",
    /// Congestion notifications received.
    CongestionNotifications = "congestion_notifications",
    /// Packets that the system refused to send.
    SendErrors = "send_errors",
    /// How often all interfaces of the device went down.
    LinkDowned = "link_downed",
}

/// The values of all counters, in the order of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCounters(pub [u64; DEVICE_COUNTERS.len()]);

impl Default for DeviceCounters {
    fn default() -> Self {
        Self([0; DEVICE_COUNTERS.len()])
    }
}

impl DeviceCounters {
    /// The value of a counter.
    #[must_use]
    pub fn get(&self, counter: DeviceCounter) -> u64 {
        self.0[counter as usize]
    }

    /// Adds the counters of another device, or of another page of the same device.
    pub fn add(&mut self, others: &[u64]) {
        for (sum, value) in self.0.iter_mut().zip(others) {
            *sum = sum.wrapping_add(*value);
        }
    }

    /// All counters with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        DEVICE_COUNTERS.into_iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_two_pages_are_added_by_place() {
        let mut sum = DeviceCounters::default();
        let mut page = [0; DEVICE_COUNTERS.len()];
        page[DeviceCounter::Timeouts as usize] = 3;
        page[DeviceCounter::LinkDowned as usize] = 1;
        sum.add(&page);
        sum.add(&page);
        assert_eq!(sum.get(DeviceCounter::Timeouts), 6);
        assert_eq!(sum.iter().last(), Some(("link_downed", 2)));
    }
}

//! The counters of a device.

macro_rules! device_counters {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)*) => {
        /// A counter of a device that is not one of messages. Its number is its place on the page.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum DeviceCounter {
            $($(#[doc = $doc])+ $name,)*
        }

        const NAMES: [&str; [$($text),*].len()] = [$($text),*];
    };
}

// The names and their order are those of the engine's counters. The last ones are the driver's. Those of the connection
// manager's messages follow on the page.
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
    /// Congestion notifications sent.
    CongestionNotificationsSent = "congestion_notifications_sent",
    /// Packets received with a congestion mark.
    CongestionMarks = "congestion_marks",
    /// Packets that the system refused to send.
    SendErrors = "send_errors",
    /// How often all interfaces of the device went down.
    LinkDowned = "link_downed",
}

/// The messages of the connection manager, as the kernel names them, in the order of their attribute IDs.
pub const MESSAGES: [&str; 11] = [
    "req", "mra", "rej", "rep", "rtu", "dreq", "drep", "sidr_req", "sidr_rep", "lap", "apr",
];

/// What is counted of each message of the connection manager, in the order of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageCounter {
    /// Messages sent, including retransmissions.
    Sent,
    /// Messages retransmitted because no response came.
    Retransmitted,
    /// Messages received.
    Received,
    /// Messages received that had been received before.
    Duplicates,
}

/// The number of message counters.
const MESSAGE_COUNTERS: usize = 4 * MESSAGES.len();

/// The names of one kind of message counters.
macro_rules! of_messages {
    ($prefix:literal) => {
        [
            concat!($prefix, "req"),
            concat!($prefix, "mra"),
            concat!($prefix, "rej"),
            concat!($prefix, "rep"),
            concat!($prefix, "rtu"),
            concat!($prefix, "dreq"),
            concat!($prefix, "drep"),
            concat!($prefix, "sidr_req"),
            concat!($prefix, "sidr_rep"),
            concat!($prefix, "lap"),
            concat!($prefix, "apr"),
        ]
    };
}

/// The names of the message counters, in the order of [`MessageCounter`].
const MESSAGE_NAMES: [[&str; MESSAGES.len()]; 4] = [
    of_messages!("cm_sent_"),
    of_messages!("cm_retransmitted_"),
    of_messages!("cm_received_"),
    of_messages!("cm_duplicate_"),
];

/// The names of all counters, in the order of the page.
pub const DEVICE_COUNTERS: [&str; NAMES.len() + MESSAGE_COUNTERS] = {
    let mut names = [""; _];
    let mut place = 0;
    while place < NAMES.len() {
        names[place] = NAMES[place];
        place += 1;
    }
    while place < names.len() {
        names[place] = MESSAGE_NAMES.as_flattened()[place - NAMES.len()];
        place += 1;
    }
    names
};

/// The place of the counter of a message, which is named by its place in [`MESSAGES`].
const fn place(counter: MessageCounter, message: usize) -> usize {
    NAMES.len() + counter as usize * MESSAGES.len() + message
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

    /// The value of a counter of a message, which is named by its place in [`MESSAGES`].
    #[must_use]
    pub fn of_message(&self, counter: MessageCounter, message: usize) -> u64 {
        self.0[place(counter, message)]
    }

    /// Sets the counters of all messages, in the order of [`MESSAGES`].
    pub fn set_messages(&mut self, counter: MessageCounter, values: impl Iterator<Item = u64>) {
        let first = place(counter, 0);
        for (place, value) in self.0[first..][..MESSAGES.len()].iter_mut().zip(values) {
            *place = value;
        }
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
        assert!(sum.iter().any(|it| it == ("link_downed", 2)));
    }

    #[test]
    fn a_counter_of_a_message_has_the_place_of_its_name() {
        let mut page = [0; DEVICE_COUNTERS.len()];
        let named = |name: &str| DEVICE_COUNTERS.iter().position(|it| *it == name);
        page[named("cm_retransmitted_rep").expect("a counter")] = 7;
        page[named("cm_duplicate_apr").expect("a counter")] = 8;
        let counters = DeviceCounters(page);
        let message = |name: &str| MESSAGES.iter().position(|it| *it == name);
        let rep = message("rep").expect("a message");
        let apr = message("apr").expect("a message");
        assert_eq!(counters.of_message(MessageCounter::Retransmitted, rep), 7);
        assert_eq!(counters.of_message(MessageCounter::Duplicates, apr), 8);
        assert_eq!(counters.of_message(MessageCounter::Sent, rep), 0);
        let mut same = DeviceCounters::default();
        let only = |message, value| (0..11).map(move |it| if it == message { value } else { 0 });
        same.set_messages(MessageCounter::Retransmitted, only(rep, 7));
        same.set_messages(MessageCounter::Duplicates, only(apr, 8));
        assert_eq!(same, counters);
    }
}

//! Counters of what a device and its queue pairs send, receive and drop.

macro_rules! counters {
    ($(#[doc = $about:literal])+ $counters:ident: $($(#[doc = $doc:literal])+ $name:ident,)*) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $counters {
            $($(#[doc = $doc])+ pub $name: u64,)*
        }

        impl $counters {
            /// All counters with their names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl std::ops::AddAssign for $counters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// The counters of one device. They never decrease.
    Counters:
    /// Packets sent.
    packets_sent,
    /// Packets that were delivered to a queue pair.
    packets_received,
    /// The bytes of packets sent, from the base transport header to the ICRC.
    bytes_sent,
    /// The bytes of packets that were delivered to a queue pair, from the base transport header to the ICRC.
    bytes_received,
    /// Packets sent to multicast groups.
    multicast_sent,
    /// Packets received from multicast groups.
    multicast_received,
    /// SEND requests that completed successfully.
    sends_completed,
    /// Receives that completed successfully.
    receives_completed,
    /// Sent packets that stayed in the device, because they were for its own queue pairs.
    delivered_to_self,
    /// Datagrams that are not valid packets.
    malformed,
    /// Packets with a wrong ICRC.
    bad_checksum,
    /// Packets for a queue pair that does not exist.
    unknown_queue_pair,
    /// Packets for a queue pair that cannot receive in its state.
    wrong_state,
    /// Packets of another transport service than the queue pair's.
    wrong_service,
    /// Packets from an address other than the peer's, or from one that no machine can have.
    wrong_path,
    /// Packets with a P_Key that does not match.
    bad_partition_key,
    /// Datagrams with a wrong Q_Key.
    bad_queue_key,
    /// Multicast packets for groups without members.
    unknown_group,
    /// Duplicate requests.
    duplicate_requests,
    /// Requests ahead of the expected PSN.
    out_of_sequence,
    /// Responses that match no outstanding request.
    unexpected_responses,
    /// Lost responses, detected by a later one (implied NAK).
    implied_naks,
    /// Messages of unreliable services that were dropped: no receive, out of order, rejected.
    dropped_messages,
    /// Retransmitted packets.
    retransmitted,
    /// Acknowledgement timeouts.
    timeouts,
    /// Requests that failed because all retries were used.
    retries_exhausted,
    /// Requests that failed because all RNR retries were used.
    rnr_retries_exhausted,
    /// Sequence NAKs sent.
    sequence_naks_sent,
    /// Sequence NAKs received.
    sequence_naks_received,
    /// RNR NAKs sent.
    rnr_naks_sent,
    /// RNR NAKs received.
    rnr_naks_received,
    /// NAKs sent that end the connection.
    fatal_naks_sent,
    /// NAKs received that end the connection.
    fatal_naks_received,
    /// Congestion notification packets received.
    congestion_notifications,
    /// Congestion notification packets sent.
    congestion_notifications_sent,
    /// Packets received that a router has marked because it was congested.
    congestion_marks,
}

counters! {
    /// The counters of one queue pair. They never decrease.
    QueuePairCounters:
    /// Send requests that completed successfully.
    messages_sent,
    /// Messages of the peer that were executed: receives that completed, and reads, writes and atomics of the peer.
    messages_received,
    /// Packets sent.
    packets_sent,
    /// Packets received.
    packets_received,
    /// The bytes of packets sent, from the base transport header to the ICRC.
    bytes_sent,
    /// The bytes of packets received, from the base transport header to the ICRC.
    bytes_received,
    /// Retransmitted packets.
    retransmitted,
    /// Acknowledgement timeouts.
    timeouts,
    /// Sequence NAKs received.
    sequence_naks_received,
    /// RNR NAKs sent.
    rnr_naks_sent,
    /// RNR NAKs received.
    rnr_naks_received,
    /// Duplicate requests.
    duplicate_requests,
    /// Requests ahead of the expected PSN.
    out_of_sequence,
}

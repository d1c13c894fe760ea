//! What happened on the wire, in numbers.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// Counters of one device; they only grow.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)*
        }

        impl Counters {
            /// All counters with their names, for printing.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Packets sent.
    packets_sent,
    /// Packets that reached a queue pair.
    packets_received,
    /// Datagrams that are no packets.
    malformed,
    /// Packets whose ICRC is wrong.
    bad_checksum,
    /// Packets for a queue pair that does not exist.
    unknown_queue_pair,
    /// Packets for a queue pair that is not in a state to receive them.
    wrong_state,
    /// Packets of another service than the queue pair's.
    wrong_service,
    /// Packets from another address than the peer's.
    wrong_path,
    /// Packets with a partition key that does not match.
    bad_partition_key,
    /// Datagrams with another queue key than the queue pair's.
    bad_queue_key,
    /// Multicast packets for groups that no queue pair joined.
    unknown_group,
    /// Requests seen before.
    duplicate_requests,
    /// Requests ahead of the one expected.
    out_of_sequence,
    /// Responses that answer nothing outstanding.
    ghost_responses,
    /// Responses that were lost, as a later one shows.
    implied_naks,
    /// Messages of unreliable services that were dropped: no receive, out of order, refused.
    dropped_messages,
    /// Packets sent again.
    retransmitted,
    /// ACK timeouts.
    timeouts,
    /// Sequence NAKs sent.
    sequence_naks_sent,
    /// Sequence NAKs received.
    sequence_naks_received,
    /// Receiver-not-ready NAKs sent.
    rnr_naks_sent,
    /// Receiver-not-ready NAKs received.
    rnr_naks_received,
    /// Requests refused with a NAK that ends the connection.
    fatal_naks_sent,
    /// NAKs received that ended a connection.
    fatal_naks_received,
    /// Congestion notifications received.
    congestion_notifications,
}

//! What a queue pair is told when it is modified.

use wire::{AckTimeout, PathMtu, Psn, Qpn, QueueKey, RnrTimer};

use super::State;
use crate::address::Address;
use crate::memory::Access;

bitflags::bitflags! {
    /// Names of attributes. The values are those of `enum ibv_qp_attr_mask`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Attribute: u32 {
        /// The state to go to.
        const STATE = 1 << 0;
        /// The state that the caller believes it to be in.
        const CURRENT_STATE = 1 << 1;
        /// Whether draining raises an event.
        const DRAIN_EVENT = 1 << 2;
        /// What the peer may do.
        const ACCESS = 1 << 3;
        /// The index of the partition key.
        const PARTITION = 1 << 4;
        /// The port.
        const PORT = 1 << 5;
        /// The queue key of datagrams.
        const QUEUE_KEY = 1 << 6;
        /// The address of the peer.
        const PATH = 1 << 7;
        /// The largest payload of a packet.
        const PATH_MTU = 1 << 8;
        /// How long to wait for an acknowledgement.
        const ACK_TIMEOUT = 1 << 9;
        /// How often to try again.
        const RETRY_COUNT = 1 << 10;
        /// How often to try again when the receiver is not ready.
        const RNR_RETRY = 1 << 11;
        /// The first sequence number expected.
        const RECEIVE_PSN = 1 << 12;
        /// How many reads and atomics may be outstanding to the peer.
        const INITIATOR_DEPTH = 1 << 13;
        /// A second path to the peer.
        const ALTERNATE_PATH = 1 << 14;
        /// How long a peer waits when no receive is posted.
        const RNR_TIMER = 1 << 15;
        /// The first sequence number sent.
        const SEND_PSN = 1 << 16;
        /// How many reads and atomics of the peer may be outstanding.
        const RESPONDER_RESOURCES = 1 << 17;
        /// The state of path migration.
        const MIGRATION = 1 << 18;
        /// The peer's queue pair.
        const DESTINATION = 1 << 20;
    }
}

macro_rules! attributes {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $flag:ident,)*) => {
        /// New values for the attributes of a queue pair; what is `None` stays.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Attributes {
            $($(#[doc = $doc])+ pub $name: Option<$type>,)*
        }

        impl Attributes {
            /// Which ones are given.
            #[must_use]
            pub fn given(&self) -> Attribute {
                let mut given = Attribute::empty();
                $(given.set(Attribute::$flag, self.$name.is_some());)*
                given
            }

            /// These values with the given ones of `changes` in their place.
            pub(super) fn updated_by(&self, changes: &Self) -> Self {
                Self { $($name: changes.$name.or(self.$name),)* }
            }
        }
    };
}

attributes! {
    /// The state to go to.
    state: State = STATE,
    /// The state that the caller believes it to be in.
    current_state: State = CURRENT_STATE,
    /// Whether draining raises an event.
    drain_event: bool = DRAIN_EVENT,
    /// What the peer may do.
    access: Access = ACCESS,
    /// The index of the partition key.
    partition_index: u16 = PARTITION,
    /// The port; there is only number 1.
    port: u8 = PORT,
    /// The queue key of datagrams.
    queue_key: QueueKey = QUEUE_KEY,
    /// The address of the peer.
    path: Address = PATH,
    /// The largest payload of a packet.
    path_mtu: PathMtu = PATH_MTU,
    /// How long to wait for an acknowledgement.
    ack_timeout: AckTimeout = ACK_TIMEOUT,
    /// How often to try again, 0 to 7.
    retry_count: u8 = RETRY_COUNT,
    /// How often to try again when the receiver is not ready, 0 to 6, or 7 for ever.
    rnr_retry: u8 = RNR_RETRY,
    /// The first sequence number expected.
    receive_psn: Psn = RECEIVE_PSN,
    /// How many reads and atomics may be outstanding to the peer.
    initiator_depth: u8 = INITIATOR_DEPTH,
    /// A second path to the peer: kept for the caller, never migrated to.
    alternate_path: Address = ALTERNATE_PATH,
    /// How long a peer waits when no receive is posted.
    rnr_timer: RnrTimer = RNR_TIMER,
    /// The first sequence number sent.
    send_psn: Psn = SEND_PSN,
    /// How many reads and atomics of the peer may be outstanding.
    responder_resources: u8 = RESPONDER_RESOURCES,
    /// The state of path migration: kept for the caller, without effect.
    migration: u8 = MIGRATION,
    /// The peer's queue pair.
    destination: Qpn = DESTINATION,
}

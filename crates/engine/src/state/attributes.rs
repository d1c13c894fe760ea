//! The attributes of a queue pair.

use std::fmt;

use wire::{AckTimeout, PathMtu, Psn, Qpn, QueueKey, RnrTimer};

use super::State;
use crate::address::Address;
use crate::memory::Access;

bitflags::bitflags! {
    /// The names of attributes. The values are those of `enum ibv_qp_attr_mask`. The alternate path (`1 << 14`) is not
    /// among them: Linux has it for InfiniBand only, and rejects it at RoCE devices.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Attribute: u32 {
        /// The new state.
        const STATE = 1 << 0;
        /// The state that the caller expects the queue pair to be in.
        const CURRENT_STATE = 1 << 1;
        /// Whether draining the send queue raises an event.
        const DRAIN_EVENT = 1 << 2;
        /// The access rights of the peer.
        const ACCESS = 1 << 3;
        /// The index of the P_Key.
        const PARTITION = 1 << 4;
        /// The port.
        const PORT = 1 << 5;
        /// The Q_Key of datagrams.
        const QUEUE_KEY = 1 << 6;
        /// The address of the peer.
        const PATH = 1 << 7;
        /// The largest payload of a packet.
        const PATH_MTU = 1 << 8;
        /// The acknowledgement timeout.
        const ACK_TIMEOUT = 1 << 9;
        /// How often to retry.
        const RETRY_COUNT = 1 << 10;
        /// How often to retry after an RNR NAK.
        const RNR_RETRY = 1 << 11;
        /// The first PSN to expect.
        const RECEIVE_PSN = 1 << 12;
        /// The maximum number of outstanding reads and atomics to the peer.
        const INITIATOR_DEPTH = 1 << 13;
        /// How long the peer must wait after an RNR NAK.
        const RNR_TIMER = 1 << 15;
        /// The first PSN to send.
        const SEND_PSN = 1 << 16;
        /// The maximum number of outstanding reads and atomics of the peer.
        const RESPONDER_RESOURCES = 1 << 17;
        /// The state of path migration.
        const MIGRATION = 1 << 18;
        /// The peer's queue pair number.
        const DESTINATION = 1 << 20;
    }
}

impl fmt::Display for Attribute {
    /// `PATH | DESTINATION`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(self, f)
    }
}

macro_rules! attributes {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $flag:ident,)*) => {
        /// New values for attributes of a queue pair. `None` keeps the present value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Attributes {
            $($(#[doc = $doc])+ pub $name: Option<$type>,)*
        }

        impl Attributes {
            /// The names of the attributes that are set.
            #[must_use]
            pub fn given(&self) -> Attribute {
                let mut given = Attribute::empty();
                $(given.set(Attribute::$flag, self.$name.is_some());)*
                given
            }

            /// These values, replaced by those of `changes` that are set.
            pub(crate) fn updated_by(&self, changes: &Self) -> Self {
                Self { $($name: changes.$name.or(self.$name),)* }
            }
        }
    };
}

attributes! {
    /// The new state.
    state: State = STATE,
    /// The state that the caller expects the queue pair to be in.
    current_state: State = CURRENT_STATE,
    /// Whether draining the send queue raises an event.
    drain_event: bool = DRAIN_EVENT,
    /// The access rights of the peer.
    access: Access = ACCESS,
    /// The index of the P_Key.
    partition_index: u16 = PARTITION,
    /// The port. The only port is 1.
    port: u8 = PORT,
    /// The Q_Key of datagrams.
    queue_key: QueueKey = QUEUE_KEY,
    /// The address of the peer.
    path: Address = PATH,
    /// The largest payload of a packet.
    path_mtu: PathMtu = PATH_MTU,
    /// The acknowledgement timeout.
    ack_timeout: AckTimeout = ACK_TIMEOUT,
    /// How often to retry, 0 to 7.
    retry_count: u8 = RETRY_COUNT,
    /// How often to retry after an RNR NAK, 0 to 6, or 7 for no limit.
    rnr_retry: u8 = RNR_RETRY,
    /// The first PSN to expect.
    receive_psn: Psn = RECEIVE_PSN,
    /// The maximum number of outstanding reads and atomics to the peer.
    initiator_depth: u8 = INITIATOR_DEPTH,
    /// How long the peer must wait after an RNR NAK.
    rnr_timer: RnrTimer = RNR_TIMER,
    /// The first PSN to send.
    send_psn: Psn = SEND_PSN,
    /// The maximum number of outstanding reads and atomics of the peer.
    responder_resources: u8 = RESPONDER_RESOURCES,
    /// The state of path migration. Kept for the caller; it has no effect.
    migration: u8 = MIGRATION,
    /// The peer's queue pair number.
    destination: Qpn = DESTINATION,
}

//! The two messages that end a connection: DREQ and DREP.

use super::field::{PrivateData, at, bytes};
use super::identifier::CommunicationId;
use crate::number::Qpn;

layout! {
    /// DREQ: asks to end a connection.
    DisconnectRequest {
        /// What the sender calls the connection.
        local_id: CommunicationId = at(0, 32);
        /// What the receiver calls it.
        remote_id: CommunicationId = at(4, 32);
        /// The receiver's queue pair.
        remote_qpn: Qpn = at(8, 24);
        /// The application's data.
        private_data: PrivateData<220> = bytes(12, 220);
    }
}

layout! {
    /// DREP: the connection is ended.
    DisconnectReply {
        /// What the sender calls the connection.
        local_id: CommunicationId = at(0, 32);
        /// What the receiver calls it.
        remote_id: CommunicationId = at(4, 32);
        /// The application's data.
        private_data: PrivateData<224> = bytes(8, 224);
    }
}

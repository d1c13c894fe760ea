//! The two messages that end a connection: DREQ and DREP.

use super::field::{PrivateData, at, bytes};
use super::ids::CommunicationId;
use crate::number::Qpn;

layout! {
    /// DREQ: requests the end of a connection.
    DisconnectRequest {
        /// The sender's communication ID.
        local_id: CommunicationId = at(0, 32);
        /// The receiver's communication ID.
        remote_id: CommunicationId = at(4, 32);
        /// The receiver's queue pair number.
        remote_qpn: Qpn = at(8, 24);
        /// The application's data.
        private_data: PrivateData<220> = bytes(12, 220);
    }
}

layout! {
    /// DREP: confirms the end of a connection.
    DisconnectReply {
        /// The sender's communication ID.
        local_id: CommunicationId = at(0, 32);
        /// The receiver's communication ID.
        remote_id: CommunicationId = at(4, 32);
        /// The application's data.
        private_data: PrivateData<224> = bytes(8, 224);
    }
}

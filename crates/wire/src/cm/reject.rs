//! The two messages that delay or reject: MRA and REJ.

use super::field::{PrivateData, at, bytes};
use super::ids::{CommunicationId, Timeout};
use super::reason_codes::{AcknowledgedMessage, RejectReason, RejectedMessage};

layout! {
    /// MRA: confirms receipt of a message whose response takes longer.
    ReceiptAcknowledge {
        /// The sender's communication ID.
        local_id: CommunicationId = at(0, 32);
        /// The receiver's communication ID.
        remote_id: CommunicationId = at(4, 32);
        /// The message that is confirmed.
        message: AcknowledgedMessage = at(8, 2);
        /// How long the response may take.
        service_timeout: Timeout = at(9, 5);
        /// The application's data.
        private_data: PrivateData<222> = bytes(10, 222);
    }
}

layout! {
    /// REJ: rejects a connection.
    Reject {
        /// The sender's communication ID; 0 if it has none for this connection.
        local_id: CommunicationId = at(0, 32);
        /// The receiver's communication ID.
        remote_id: CommunicationId = at(4, 32);
        /// The message that is rejected.
        message: RejectedMessage = at(8, 2);
        /// How many bytes of `information` are used, 7 bits.
        information_length: u8 = at(9, 7);
        /// Why the connection is rejected.
        reason: RejectReason = at(10, 16);
        /// Additional information about the reason, such as a value that would be accepted.
        information: PrivateData<72> = bytes(12, 72);
        /// The application's data.
        private_data: PrivateData<148> = bytes(84, 148);
    }
}

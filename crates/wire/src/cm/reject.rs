//! REJ, the message that rejects a connection.

use super::field::{PrivateData, at, bytes};
use super::ids::CommunicationId;
use super::reason_codes::{RejectReason, RejectedMessage};

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

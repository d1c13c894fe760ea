//! MRA, the message that delays a response.

use super::field::{PrivateData, at, bytes};
use super::ids::{CommunicationId, Timeout};
use super::reason_codes::AcknowledgedMessage;

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

//! The two messages that put off or refuse: MRA and REJ.

use super::code::{AnsweredMessage, RefusedMessage, RejectReason};
use super::field::{PrivateData, at, bytes};
use super::identifier::{CommunicationId, Timeout};

layout! {
    /// MRA: the message arrived, the answer takes longer.
    ReceiptAcknowledge {
        /// What the sender calls the connection.
        local_id: CommunicationId = at(0, 32);
        /// What the receiver calls it.
        remote_id: CommunicationId = at(4, 32);
        /// Which message arrived.
        message: AnsweredMessage = at(8, 2);
        /// How long the answer may take.
        service_timeout: Timeout = at(9, 5);
        /// The application's data.
        private_data: PrivateData<222> = bytes(10, 222);
    }
}

layout! {
    /// REJ: there will be no connection.
    Reject {
        /// What the sender calls the connection; 0 if it has no name for it.
        local_id: CommunicationId = at(0, 32);
        /// What the receiver calls it.
        remote_id: CommunicationId = at(4, 32);
        /// Which message is refused.
        message: RefusedMessage = at(8, 2);
        /// How much of `information` is filled, 7 bits.
        information_length: u8 = at(9, 7);
        /// Why.
        reason: RejectReason = at(10, 16);
        /// More about the reason, such as the value that would be accepted.
        information: PrivateData<72> = bytes(12, 72);
        /// The application's data.
        private_data: PrivateData<148> = bytes(84, 148);
    }
}

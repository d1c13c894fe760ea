//! REJ, the message that rejects a connection.

use super::field::{PrivateData, at, bytes};
use super::ids::CommunicationId;
use super::reason_codes::{RejectReason, RejectedMessage};
use crate::number::PathMtu;

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

impl Reject {
    /// The path MTU that the sender would accept, if it rejects that of the request. Its code is in the upper four bits, as in
    /// the REQ.
    pub fn acceptable_mtu(&self) -> Option<PathMtu> {
        let is_told = self.reason == RejectReason::InvalidPathMtu && self.information_length > 0;
        let first = self.information.bytes().first()?;
        PathMtu::from_code(first >> 4).filter(|_| is_told)
    }

    /// Tells the path MTU that would be accepted.
    #[must_use]
    pub fn with_acceptable_mtu(self, mtu: PathMtu) -> Self {
        let information = PrivateData::new(&[mtu.code() << 4]).expect("one byte fits");
        Self {
            information_length: 1,
            information,
            ..self
        }
    }
}

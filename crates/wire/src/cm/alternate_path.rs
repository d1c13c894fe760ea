//! The two messages about an alternate path: LAP and APR.

use std::ops::Range;

use super::connect::Path;
use super::field::{PrivateData, at, bytes};
use super::ids::{CommunicationId, Timeout};
use super::reason_codes::AlternatePathStatus;
use crate::number::Qpn;

layout! {
    /// LAP: names a path to use if the current one fails.
    LoadAlternatePath {
        /// The sender's communication ID.
        local_id: CommunicationId = at(0, 32);
        /// The receiver's communication ID.
        remote_id: CommunicationId = at(4, 32);
        /// The receiver's queue pair number.
        remote_qpn: Qpn = at(12, 24);
        /// How long the receiver may take to answer.
        remote_response_timeout: Timeout = at(15, 5);
        /// The alternate path.
        alternate: Path = bytes(20, 44);
        /// The application's data.
        private_data: PrivateData<168> = bytes(64, 168);
    }
}

impl LoadAlternatePath {
    /// Position of traffic class, hop limit and rate, whose order differs from REQ.
    pub(super) const CLASS_HOPS_RATE: Range<usize> = 59..62;
}

layout! {
    /// APR: accepts or rejects the alternate path.
    AlternatePathResponse {
        /// The sender's communication ID.
        local_id: CommunicationId = at(0, 32);
        /// The receiver's communication ID.
        remote_id: CommunicationId = at(4, 32);
        /// How many bytes of `information` are used.
        information_length: u8 = at(8, 8);
        /// Whether the path was accepted, or why not.
        status: AlternatePathStatus = at(9, 8);
        /// Additional information about the status.
        information: PrivateData<72> = bytes(12, 72);
        /// The application's data.
        private_data: PrivateData<148> = bytes(84, 148);
    }
}

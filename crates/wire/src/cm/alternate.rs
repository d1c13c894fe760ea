//! The two messages about a path in reserve: LAP and APR.

use std::ops::Range;

use super::code::AlternatePathStatus;
use super::connect::Path;
use super::field::{PrivateData, at, bytes};
use super::identifier::{CommunicationId, Timeout};
use crate::number::Qpn;

layout! {
    /// LAP: names a path to take if the present one breaks.
    LoadAlternatePath {
        /// What the sender calls the connection.
        local_id: CommunicationId = at(0, 32);
        /// What the receiver calls it.
        remote_id: CommunicationId = at(4, 32);
        /// The receiver's queue pair.
        remote_qpn: Qpn = at(12, 24);
        /// How long the receiver may take to answer.
        remote_response_timeout: Timeout = at(15, 5);
        /// The path.
        alternate: Path = bytes(20, 44);
        /// The application's data.
        private_data: PrivateData<168> = bytes(64, 168);
    }
}

impl LoadAlternatePath {
    /// Where its path differs from that of a REQ.
    pub(super) const CLASS_HOPS_RATE: Range<usize> = 59..62;
}

layout! {
    /// APR: says what became of the alternate path.
    AlternatePathResponse {
        /// What the sender calls the connection.
        local_id: CommunicationId = at(0, 32);
        /// What the receiver calls it.
        remote_id: CommunicationId = at(4, 32);
        /// How much of `information` is filled.
        information_length: u8 = at(8, 8);
        /// What became of it.
        status: AlternatePathStatus = at(9, 8);
        /// More about the status.
        information: PrivateData<72> = bytes(12, 72);
        /// The application's data.
        private_data: PrivateData<148> = bytes(84, 148);
    }
}

//! The handshake of a connection: the messages of the connection managers.

use serde::Serialize;
use wire::cm::ServiceId;

use crate::connection_end::Side;
use crate::typed_index::PacketId;

/// The messages of the connection manager about one connection.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// The requested service.
    pub service: Option<ServiceId>,
    /// The active side.
    pub active: Side,
    /// Each message, in order.
    pub steps: Vec<Step>,
    /// Its outcome.
    pub outcome: HandshakeOutcome,
    /// From the first REQ to RTU, in nanoseconds.
    pub duration: Option<u64>,
}

/// One message of the connection manager.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The packet that carried it.
    pub packet: PacketId,
    /// Its sender.
    pub from: Side,
    /// Its name in the specification, such as `REQ`.
    pub name: &'static str,
    /// Its content, as text.
    pub says: String,
    /// A short form of the content.
    pub in_short: String,
    /// The application's data in it. Words of 8 bytes that are zero are left out at its end.
    pub private_data: Vec<u8>,
    /// Whether it is a retransmission.
    pub retransmitted: bool,
}

/// The outcome of a handshake.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandshakeOutcome {
    /// There was no response.
    Unanswered,
    /// It was answered, but not finished in this capture.
    Unfinished,
    /// The connection was established.
    Established,
    /// The connection was established and disconnected.
    Closed,
    /// It was rejected.
    Rejected {
        /// The reason code.
        reason: u16,
        /// The reason as text.
        words: String,
    },
    /// A datagram service was looked up and found.
    Found,
}

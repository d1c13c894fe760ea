//! How the connection manager made and ended a connection.

use serde::Serialize;
use wire::cm::ServiceId;

use crate::connection::Side;
use crate::id::PacketId;

/// The messages of the connection manager about one connection.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// What the active side asked for.
    pub service: Option<ServiceId>,
    /// Who asked.
    pub active: Side,
    /// Each message, in order.
    pub steps: Vec<Step>,
    /// What became of it.
    pub outcome: HandshakeOutcome,
    /// From the first REQ to RTU, in nanoseconds.
    pub duration: Option<u64>,
}

/// One message of the connection manager.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The packet that carried it.
    pub packet: PacketId,
    /// Who said it.
    pub from: Side,
    /// What the specification calls it, such as `REQ`.
    pub name: &'static str,
    /// What it says, in words.
    pub says: String,
    /// The same in a few words.
    pub in_short: String,
    /// The application's data in it, without the zeros at its end.
    pub private_data: Vec<u8>,
    /// Whether it was said before.
    pub repeated: bool,
}

/// What became of a handshake.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandshakeOutcome {
    /// Nobody answered.
    Unanswered,
    /// It was answered, but not finished in this capture.
    Unfinished,
    /// The connection was made.
    Established,
    /// The connection was made, and ended in peace.
    Closed,
    /// It was refused.
    Rejected {
        /// The number of the reason.
        reason: u16,
        /// The reason in words.
        words: String,
    },
    /// A datagram service was looked up and found.
    Found,
}

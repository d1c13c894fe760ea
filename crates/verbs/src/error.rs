//! Errors of setting up and connecting queue pairs.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use driver::rdma_cm::CmError;
use engine::{MemoryError, ModifyError, ObjectError};
use wire::cm::RejectReason;

/// Why a queue pair could not be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// It could not be created.
    #[error(transparent)]
    Create(#[from] ObjectError),
    /// An attribute was rejected.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// Memory for it could not be registered.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The completion queue may overrun.
    #[error(
        "a completion queue for {capacity} completions is too small for the {needed} requests that its queue pairs may have \
         outstanding: create a larger one, and say with `depth` how many requests each queue pair needs"
    )]
    CompletionQueueTooSmall {
        /// How many completions the queue holds.
        capacity: u32,
        /// How many requests may be outstanding, those of other queue pairs included.
        needed: u64,
    },
    /// The GID table has no such entry.
    #[error("GID index {0} is empty: `roci gids` lists the indexes to use")]
    EmptyGid(u8),
}

/// Why a connection failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A step of the connection manager failed.
    #[error(transparent)]
    Cm(#[from] CmError),
    /// The peer's name cannot be resolved.
    #[error("{name} can't be resolved: {source}")]
    Name {
        /// The name, as the program gave it.
        name: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// The queue pair could not be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The queue pair belongs to another device.
    #[error(
        "the queue pair's protection domain belongs to another open device: make it from `context()` of the listener, the request \
         or the connector, or name your device there with `Listener::bind_on` or `Connector::resolve_on`"
    )]
    OtherDevice,
    /// No process listens at that address and port.
    #[error("no program listens at {0}: start the server first, and check address and port")]
    NoListener(SocketAddr),
    /// The peer rejected the connection.
    #[error("{peer} rejected the connection: {reason}{}", quoted(private_data))]
    Rejected {
        /// The peer.
        peer: SocketAddr,
        /// The reason.
        reason: RejectReason,
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// The peer did not respond.
    #[error("{0} does not answer: is the machine up, and does UDP port 4791 get through?")]
    Unreachable(SocketAddr),
    /// The peer requested a connection, but did not confirm it.
    #[error(
        "{peer} asked for a connection but did not confirm the reply within {timeout:?}: serve \
         the next request"
    )]
    NotConfirmed {
        /// The peer.
        peer: SocketAddr,
        /// The timeout.
        timeout: Duration,
    },
    /// The peer disconnected before the connection was established.
    #[error("the peer disconnected before the connection was established")]
    Gone,
    /// The peer of a `Stream` speaks another protocol.
    #[error(
        "{peer} speaks {}: connect a `Stream` with one that is accepted by `Stream::accept`, of the same version of this library",
        spoken(*version)
    )]
    NotStream {
        /// The peer.
        peer: SocketAddr,
        /// The version of the protocol of streams that it speaks, if it speaks any.
        version: Option<u16>,
    },
}

impl From<ObjectError> for ConnectError {
    /// So that a function can create the objects of a connection and connect, with one error type.
    fn from(error: ObjectError) -> Self {
        Self::Setup(error.into())
    }
}

/// As it would be derived, but without the zeros that pad private data: a program whose `main` returns the error prints this.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cm(error) => f.debug_tuple("Cm").field(error).finish(),
            Self::Name { name, source } => {
                let mut name_error = f.debug_struct("Name");
                name_error.field("name", name).field("source", source);
                name_error.finish()
            }
            Self::Setup(error) => f.debug_tuple("Setup").field(error).finish(),
            Self::OtherDevice => f.write_str("OtherDevice"),
            Self::NoListener(peer) => f.debug_tuple("NoListener").field(peer).finish(),
            Self::Rejected {
                peer,
                reason,
                private_data,
            } => {
                let said = without_padding(private_data).escape_ascii();
                let mut rejected = f.debug_struct("Rejected");
                rejected.field("peer", peer).field("reason", reason);
                rejected.field("private_data", &format_args!("b\"{said}\""));
                rejected.finish()
            }
            Self::Unreachable(peer) => f.debug_tuple("Unreachable").field(peer).finish(),
            Self::NotConfirmed { peer, timeout } => {
                let mut not_confirmed = f.debug_struct("NotConfirmed");
                not_confirmed.field("peer", peer).field("timeout", timeout);
                not_confirmed.finish()
            }
            Self::Gone => f.write_str("Gone"),
            Self::NotStream { peer, version } => {
                let mut not_stream = f.debug_struct("NotStream");
                not_stream.field("peer", peer).field("version", version);
                not_stream.finish()
            }
        }
    }
}

/// What a peer speaks that offers no stream, or one of another version.
fn spoken(version: Option<u16>) -> String {
    match version {
        Some(version) => format!("version {version} of the protocol of streams"),
        None => "no stream protocol".to_owned(),
    }
}

/// Private data without the zeros that pad it.
fn without_padding(private_data: &[u8]) -> &[u8] {
    let end = private_data.iter().rposition(|byte| *byte != 0);
    end.map_or(&[], |last| &private_data[..=last])
}

/// Private data as text, if it is readable text.
fn quoted(private_data: &[u8]) -> String {
    match std::str::from_utf8(without_padding(private_data)) {
        Ok(text) if !text.is_empty() && !text.contains(char::is_control) => format!(": {text:?}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_is_printed_without_the_padding_of_its_private_data() {
        let mut private_data = b"bad\xff".to_vec();
        private_data.resize(148, 0);
        let rejected = ConnectError::Rejected {
            peer: ([127, 0, 0, 1], 7174).into(),
            reason: RejectReason::Consumer,
            private_data,
        };
        assert_eq!(
            format!("{rejected:?}"),
            r#"Rejected { peer: 127.0.0.1:7174, reason: Consumer, private_data: b"bad\xff" }"#
        );
    }

    #[test]
    fn rejection_quotes_readable_private_data() {
        let rejected = |private_data: &[u8]| ConnectError::Rejected {
            peer: ([127, 0, 0, 1], 7174).into(),
            reason: RejectReason::Consumer,
            private_data: private_data.to_vec(),
        };
        let text = "127.0.0.1:7174 rejected the connection: refused by the application";
        assert_eq!(
            rejected(b"bad magic\0\0").to_string(),
            format!("{text}: \"bad magic\"")
        );
        for unreadable in [&b"\0\0"[..], b"\x01\x02", b"\xff"] {
            assert_eq!(rejected(unreadable).to_string(), text);
        }
    }
}

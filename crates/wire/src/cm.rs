//! The messages of the connection manager (IBA vol. 1, chapter 12), which travel over queue pair 1.
//!
//! Every message is a struct. Each field is declared once, together with its position on the wire.
//! Reading and writing both follow from that row, so they cannot disagree.

#[macro_use]
mod field;
mod alternate_path;
mod connect;
mod disconnect;
mod ids;
mod ip_address_header;
mod reason_codes;
mod receipt_acknowledge;
mod reject;
mod sidr;

pub use alternate_path::{AlternatePathResponse, LoadAlternatePath};
pub use connect::{ConnectReply, ConnectRequest, Path, ReadyToUse};
pub use disconnect::{DisconnectReply, DisconnectRequest};
pub use field::{PrivateData, PrivateDataTooLong};
pub use ids::{CommunicationId, PortSpace, ServiceId, Timeout};
pub use ip_address_header::{AddressHeader, AddressHeaderError};
pub use reason_codes::{
    AcknowledgedMessage, AlternatePathStatus, Failover, RejectReason, RejectedMessage, Service,
    ServiceStatus,
};
pub use receipt_acknowledge::ReceiptAcknowledge;
pub use reject::Reject;
pub use sidr::{ServiceReply, ServiceRequest};

use crate::mad;
use field::{Body, Field, FieldPosition};

/// The class version of all messages here.
pub const CLASS_VERSION: u8 = 2;

/// Turns the table of messages into [`Message`].
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident = $attribute:literal $short:literal,)+) => {
        /// A message of the connection manager.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Message {
            $($(#[$doc])* $name($name),)+
        }

        impl Message {
            /// The names of all messages in the specification.
            pub const NAMES: &[&str] = &[$($short),+];

            /// The attribute ID of this kind of message in the MAD header.
            pub const fn attribute(&self) -> u16 {
                match self { $(Message::$name(_) => $attribute,)+ }
            }

            /// The name of this kind of message in the specification.
            pub const fn name(&self) -> &'static str {
                match self { $(Message::$name(_) => $short,)+ }
            }

            fn read(attribute: u16, body: &Body) -> Option<Message> {
                match attribute {
                    $($attribute => Some(Message::$name(Field::read(body, FieldPosition::BODY))),)+
                    _ => None,
                }
            }

            fn write(&self, body: &mut Body) {
                match self { $(Message::$name(message) => message.write(body, FieldPosition::BODY),)+ }
            }
        }

        $(
            impl $name {
                /// The attribute ID of this message in the MAD header.
                pub const ATTRIBUTE: u16 = $attribute;
            }

            impl From<$name> for Message {
                fn from(message: $name) -> Self {
                    Message::$name(message)
                }
            }
        )+
    };
}

messages! {
    /// Requests a connection.
    ConnectRequest = 0x0010 "REQ",
    /// Confirms receipt of a message whose response takes longer.
    ReceiptAcknowledge = 0x0011 "MRA",
    /// Rejects a connection.
    Reject = 0x0012 "REJ",
    /// Accepts a connection and names the sender's queue pair.
    ConnectReply = 0x0013 "REP",
    /// Confirms that the connection is established.
    ReadyToUse = 0x0014 "RTU",
    /// Requests the end of a connection.
    DisconnectRequest = 0x0015 "DREQ",
    /// Confirms the end of a connection.
    DisconnectReply = 0x0016 "DREP",
    /// Asks for the queue pair that serves a service ID.
    ServiceRequest = 0x0017 "SIDR_REQ",
    /// Names the queue pair that serves a service ID.
    ServiceReply = 0x0018 "SIDR_REP",
    /// Names an alternate path for a connection.
    LoadAlternatePath = 0x0019 "LAP",
    /// Accepts or rejects an alternate path.
    AlternatePathResponse = 0x001a "APR",
}

/// Why a management datagram is not a message of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CmParseError {
    /// The MAD header has an unknown base version.
    #[error("management datagram version {0}, the only known one is 1")]
    BaseVersion(u8),
    /// The management class is not communication management.
    #[error("management class {0:#04x} is not communication management")]
    Class(u8),
    /// The class version is unknown.
    #[error("communication management version {0}, the only known one is 2")]
    ClassVersion(u8),
    /// The method is not Send.
    #[error("method {0:#04x}: only Send messages manage connections")]
    Method(u8),
    /// No message has this attribute ID.
    #[error("unknown attribute {0:#06x}")]
    UnknownAttribute(u16),
}

impl Message {
    /// Parses a management datagram.
    pub fn parse(datagram: &[u8; mad::LENGTH]) -> Result<(mad::Header, Message), CmParseError> {
        let (header, body) = mad::split(datagram);
        check_header(header)?;
        let attribute = header.attribute();
        let body = to_request_order(attribute, *body);
        let message =
            Message::read(attribute, &body).ok_or(CmParseError::UnknownAttribute(attribute))?;
        Ok((*header, message))
    }

    /// Writes a management datagram.
    pub fn emit(&self, transaction: u64) -> [u8; mad::LENGTH] {
        let attribute = self.attribute();
        let mut body = [0; mad::BODY_LENGTH];
        self.write(&mut body);
        let body = from_request_order(attribute, body);
        let class = mad::COMMUNICATION_MANAGEMENT;
        let header = mad::Header::new(class, CLASS_VERSION, mad::SEND, attribute, transaction);
        mad::join(&header, &body)
    }
}

fn check_header(header: &mad::Header) -> Result<(), CmParseError> {
    if header.base_version() != mad::BASE_VERSION {
        return Err(CmParseError::BaseVersion(header.base_version()));
    }
    if header.class() != mad::COMMUNICATION_MANAGEMENT {
        return Err(CmParseError::Class(header.class()));
    }
    if header.class_version() != CLASS_VERSION {
        return Err(CmParseError::ClassVersion(header.class_version()));
    }
    if header.method() != mad::SEND {
        return Err(CmParseError::Method(header.method()));
    }
    Ok(())
}

/// Converts the body to the field order of REQ. LAP orders a path's fields as traffic class, hop
/// limit, rate; REQ orders them as rate, traffic class, hop limit. All other fields of a path are
/// the same.
fn to_request_order(attribute: u16, mut body: Body) -> Body {
    if attribute == LoadAlternatePath::ATTRIBUTE {
        body[LoadAlternatePath::CLASS_HOPS_RATE].rotate_right(1);
    }
    body
}

/// Converts the body from the field order of REQ to that of the message.
fn from_request_order(attribute: u16, mut body: Body) -> Body {
    if attribute == LoadAlternatePath::ATTRIBUTE {
        body[LoadAlternatePath::CLASS_HOPS_RATE].rotate_left(1);
    }
    body
}

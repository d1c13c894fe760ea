//! The messages of the connection manager (IBA vol. 1, chapter 12), which travel over queue pair 1.
//!
//! Every message is a struct, and each of its fields is declared once, together with its place on
//! the wire: reading and writing both follow from that row and cannot disagree.

#[macro_use]
mod field;
mod address;
mod alternate;
mod code;
mod connect;
mod disconnect;
mod identifier;
mod refuse;
mod service;

pub use address::{AddressHeader, AddressHeaderError};
pub use alternate::{AlternatePathResponse, LoadAlternatePath};
pub use code::{
    AlternatePathStatus, AnsweredMessage, Failover, RefusedMessage, RejectReason, Service,
    ServiceStatus,
};
pub use connect::{ConnectReply, ConnectRequest, Path, ReadyToUse};
pub use disconnect::{DisconnectReply, DisconnectRequest};
pub use field::{PrivateData, PrivateDataTooLong};
pub use identifier::{CommunicationId, PortSpace, ServiceId, Timeout};
pub use refuse::{ReceiptAcknowledge, Reject};
pub use service::{ServiceReply, ServiceRequest};

use crate::mad;
use field::{Body, Field, Place};

/// The version of all messages here.
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
            /// The attribute that stands for this kind of message in the header.
            pub const fn attribute(&self) -> u16 {
                match self { $(Message::$name(_) => $attribute,)+ }
            }

            /// What the specification calls this kind of message.
            pub const fn name(&self) -> &'static str {
                match self { $(Message::$name(_) => $short,)+ }
            }

            fn read(attribute: u16, body: &Body) -> Option<Message> {
                match attribute {
                    $($attribute => Some(Message::$name(Field::read(body, Place::BODY))),)+
                    _ => None,
                }
            }

            fn write(&self, body: &mut Body) {
                match self { $(Message::$name(message) => message.write(body, Place::BODY),)+ }
            }
        }

        $(
            impl $name {
                /// The attribute that stands for this message in the header.
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
    /// "Let us connect."
    ConnectRequest = 0x0010 "REQ",
    /// "I have your message, but answering takes longer."
    ReceiptAcknowledge = 0x0011 "MRA",
    /// "No."
    Reject = 0x0012 "REJ",
    /// "Yes, and here is my side."
    ConnectReply = 0x0013 "REP",
    /// "Then we are connected."
    ReadyToUse = 0x0014 "RTU",
    /// "Let us part."
    DisconnectRequest = 0x0015 "DREQ",
    /// "We have parted."
    DisconnectReply = 0x0016 "DREP",
    /// "Which queue pair serves this?"
    ServiceRequest = 0x0017 "SIDR_REQ",
    /// "This one."
    ServiceReply = 0x0018 "SIDR_REP",
    /// "Should our path break, take this one."
    LoadAlternatePath = 0x0019 "LAP",
    /// The answer to that.
    AlternatePathResponse = 0x001a "APR",
}

/// Why a management datagram is not a message of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CmParseError {
    /// The header is of another version.
    #[error("management datagram version {0}, the only known one is 1")]
    BaseVersion(u8),
    /// It is for another service.
    #[error("management class {0:#04x} is not communication management")]
    Class(u8),
    /// The message is of another version.
    #[error("communication management version {0}, the only known one is 2")]
    ClassVersion(u8),
    /// It does not send, but gets, sets or answers.
    #[error("method {0:#04x}: only Send messages manage connections")]
    Method(u8),
    /// There is no such message.
    #[error("unknown attribute {0:#06x}")]
    UnknownAttribute(u16),
}

impl Message {
    /// Reads a management datagram.
    pub fn parse(datagram: &[u8; mad::LENGTH]) -> Result<(mad::Header, Message), CmParseError> {
        let (header, body) = mad::split(datagram);
        check_header(header)?;
        let attribute = header.attribute();
        let body = in_common_order(attribute, *body);
        let message =
            Message::read(attribute, &body).ok_or(CmParseError::UnknownAttribute(attribute))?;
        Ok((*header, message))
    }

    /// Writes a management datagram.
    pub fn emit(&self, transaction: u64) -> [u8; mad::LENGTH] {
        let attribute = self.attribute();
        let mut body = [0; mad::BODY_LENGTH];
        self.write(&mut body);
        let body = in_order_of(attribute, body);
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

/// LAP lists traffic class, hop limit and rate of its path; REQ lists the rate first.
/// Everything else about a path is the same, so the order is all that is changed.
fn in_common_order(attribute: u16, mut body: Body) -> Body {
    if attribute == LoadAlternatePath::ATTRIBUTE {
        body[LoadAlternatePath::CLASS_HOPS_RATE].rotate_right(1);
    }
    body
}

fn in_order_of(attribute: u16, mut body: Body) -> Body {
    if attribute == LoadAlternatePath::ATTRIBUTE {
        body[LoadAlternatePath::CLASS_HOPS_RATE].rotate_left(1);
    }
    body
}

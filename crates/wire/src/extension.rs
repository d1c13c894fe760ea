//! What two peers can do beyond the specification. One asks the other with a management datagram.
//!
//! The datagram is of a vendor class with an OUI, which the specification leaves to vendors: a receiver that does not know
//! it ignores it, or answers with a status. `Get` asks, and `GetResp` answers with what the asked one understands.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::mad;

/// The first of the vendor classes with an OUI.
const CLASS: u8 = 0x30;
const CLASS_VERSION: u8 = 1;

/// "ROC", as an OUI of the part that is not assigned to vendors.
const OUI: [u8; 3] = *b"ROC";

/// The attribute: what the sender understands.
const UNDERSTANDS: u16 = 0x10;

/// The bit of acknowledgements that end in [`HeldPackets`](crate::HeldPackets).
const HELD_PACKETS: u32 = 1;

/// The beginning of the body of a vendor class with an OUI.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Body {
    /// Not used: such a message is never divided.
    rmpp: [u8; 12],
    reserved: u8,
    oui: [u8; 3],
    understands: U32,
}
const _: () = assert!(size_of::<Body>() == 20);

/// Whether a message asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It asks what the receiver understands. Its sender understands lists of held packets.
    Question,
    /// It answers a question.
    Answer {
        /// Whether the sender understands lists of held packets.
        held_packets: bool,
    },
}

/// A question or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whether it asks or answers.
    pub kind: Kind,
    /// The number by which the answer is matched to its question.
    pub transaction: u64,
}

impl Message {
    /// Parses a management datagram; `None` if it is another message. A rejected question is an answer: nothing is understood.
    #[must_use]
    pub fn parse(datagram: &[u8; mad::LENGTH]) -> Option<Self> {
        let (header, body) = mad::split(datagram);
        let (body, _) = Body::ref_from_prefix(body).ok()?;
        let is_ours = header.base_version() == mad::BASE_VERSION
            && header.class() == CLASS
            && header.class_version() == CLASS_VERSION
            && header.attribute() == UNDERSTANDS
            && body.oui == OUI;
        let understands = header.status() == 0 && body.understands.get() & HELD_PACKETS != 0;
        let kind = match header.method() {
            mad::GET => Kind::Question,
            mad::GET_RESPONSE => Kind::Answer {
                held_packets: understands,
            },
            _ => return None,
        };
        is_ours.then_some(Self {
            kind,
            transaction: header.transaction(),
        })
    }

    /// The datagram.
    #[must_use]
    pub fn emit(&self) -> [u8; mad::LENGTH] {
        let (method, understands) = match self.kind {
            Kind::Question => (mad::GET, HELD_PACKETS),
            Kind::Answer { held_packets: true } => (mad::GET_RESPONSE, HELD_PACKETS),
            Kind::Answer {
                held_packets: false,
            } => (mad::GET_RESPONSE, 0),
        };
        let header = mad::Header::new(CLASS, CLASS_VERSION, method, UNDERSTANDS, self.transaction);
        let mut body = [0; mad::BODY_LENGTH];
        let start = Body {
            rmpp: [0; 12],
            reserved: 0,
            oui: OUI,
            understands: understands.into(),
        };
        body[..size_of::<Body>()].copy_from_slice(start.as_bytes());
        mad::join(&header, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed_as_they_were_emitted() {
        let kinds = [
            Kind::Question,
            Kind::Answer { held_packets: true },
            Kind::Answer {
                held_packets: false,
            },
        ];
        for kind in kinds {
            let message = Message {
                kind,
                transaction: 0x0123_4567_89ab_cdef,
            };
            assert_eq!(Message::parse(&message.emit()), Some(message));
        }
    }

    #[test]
    fn kernel_returns_a_question_with_a_status_and_that_is_no() {
        let question = Message {
            kind: Kind::Question,
            transaction: 7,
        };
        let mut returned = question.emit();
        // The method becomes GetResp, the status "method or attribute not supported".
        returned[3] = mad::GET_RESPONSE;
        returned[5] = 0x0c;
        let parsed = Message::parse(&returned).expect("an answer");
        assert_eq!(
            parsed.kind,
            Kind::Answer {
                held_packets: false
            }
        );
    }

    #[test]
    fn datagrams_of_others_are_not_ours() {
        let ours = Message {
            kind: Kind::Question,
            transaction: 7,
        };
        // The base version, the class, its version, the method, the attribute, and the OUI.
        for position in [0, 1, 2, 3, 17, 37, 38, 39] {
            let mut other = ours.emit();
            other[position] ^= 0x40;
            assert_eq!(Message::parse(&other), None, "byte {position}");
        }
    }
}

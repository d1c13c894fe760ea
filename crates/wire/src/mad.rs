//! Management datagrams (MADs), which queue pair 1 sends and receives.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of every management datagram.
pub const LENGTH: usize = 256;

/// The length of the body after the header.
pub const BODY_LENGTH: usize = LENGTH - size_of::<Header>();

/// The only defined base version of the header.
pub const BASE_VERSION: u8 = 1;

/// The management class of the connection manager.
pub const COMMUNICATION_MANAGEMENT: u8 = 7;

/// The Get method: the receiver answers with [`GET_RESPONSE`].
pub const GET: u8 = 1;

/// The GetResp method: the answer to a Get.
pub const GET_RESPONSE: u8 = 0x81;

/// The Send method: the receiver does not answer with a GetResp.
pub const SEND: u8 = 3;

/// The header of every management datagram.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    base_version: u8,
    class: u8,
    class_version: u8,
    method: u8,
    status: U16,
    class_specific: U16,
    transaction: U64,
    attribute: U16,
    reserved: U16,
    modifier: U32,
}
const _: () = assert!(size_of::<Header>() == 24);

impl Header {
    /// A header of the given class and method, for one attribute, with nothing else set.
    pub fn new(class: u8, class_version: u8, method: u8, attribute: u16, transaction: u64) -> Self {
        Header {
            base_version: BASE_VERSION,
            class,
            class_version,
            method,
            status: 0.into(),
            class_specific: 0.into(),
            transaction: transaction.into(),
            attribute: attribute.into(),
            reserved: 0.into(),
            modifier: 0.into(),
        }
    }

    /// The base version of this header.
    pub fn base_version(&self) -> u8 {
        self.base_version
    }

    /// The management class.
    pub fn class(&self) -> u8 {
        self.class
    }

    /// The class version.
    pub fn class_version(&self) -> u8 {
        self.class_version
    }

    /// The method, such as [`SEND`].
    pub fn method(&self) -> u8 {
        self.method
    }

    /// The status of a response; 0 in requests.
    pub fn status(&self) -> u16 {
        self.status.get()
    }

    /// The transaction ID, which matches a response to its request.
    pub fn transaction(&self) -> u64 {
        self.transaction.get()
    }

    /// The attribute ID.
    pub fn attribute(&self) -> u16 {
        self.attribute.get()
    }

    /// The attribute modifier.
    pub fn modifier(&self) -> u32 {
        self.modifier.get()
    }
}

/// Splits a datagram into header and body.
pub fn split(datagram: &[u8; LENGTH]) -> (&Header, &[u8; BODY_LENGTH]) {
    let (header, body) =
        Header::ref_from_prefix(datagram).expect("a datagram is longer than a header");
    let body = body
        .try_into()
        .expect("the body is LENGTH minus the header");
    (header, body)
}

/// Joins header and body into a datagram.
pub fn join(header: &Header, body: &[u8; BODY_LENGTH]) -> [u8; LENGTH] {
    let mut datagram = [0; LENGTH];
    let (head, rest) = datagram.split_at_mut(size_of::<Header>());
    head.copy_from_slice(header.as_bytes());
    rest.copy_from_slice(body);
    datagram
}

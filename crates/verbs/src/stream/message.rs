//! A message that has arrived, and its buffer.

use std::mem;
use std::ops::Range;

use engine::{Access, MemoryError};

use super::flow::HEADER;
use crate::memory::OwnedRegion;
use crate::protection_domain::ProtectionDomain;

/// A message with data, and the part of it that is not read yet.
#[derive(Debug)]
pub(super) struct Message {
    buffer: Buffer,
    unread: Range<usize>,
}

/// The buffer of a message.
#[derive(Debug)]
pub(super) enum Buffer {
    /// Registered memory can't be borrowed. Its bytes are copied out, and it is posted again as it is.
    Registered(OwnedRegion<Vec<u8>>),
    /// Memory that was taken back from the device, to be read in its place.
    Own(Vec<u8>),
}

impl Message {
    /// A message of this length, its header included.
    pub(super) fn new(region: OwnedRegion<Vec<u8>>, length: usize) -> Self {
        Self {
            buffer: Buffer::Registered(region),
            unread: HEADER..length,
        }
    }

    /// Copies as much as there is and fits. Returns how much.
    pub(super) fn read(&mut self, into: &mut [u8]) -> usize {
        let length = into.len().min(self.unread.len());
        let (begin, into) = (self.unread.start, &mut into[..length]);
        match &self.buffer {
            Buffer::Registered(region) => region.read(begin, into),
            Buffer::Own(bytes) => into.copy_from_slice(&bytes[begin..begin + length]),
        }
        self.skip(length);
        length
    }

    /// What is unread, in its place.
    pub(super) fn in_place(&mut self) -> &[u8] {
        let unread = self.unread.clone();
        &self.buffer.own()[unread]
    }

    /// Counts bytes as read.
    pub(super) fn skip(&mut self, length: usize) {
        self.unread.start += length.min(self.unread.len());
    }

    pub(super) fn is_read(&self) -> bool {
        self.unread.is_empty()
    }

    pub(super) fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

impl Buffer {
    /// Takes the memory back from the device, unless that was done.
    fn own(&mut self) -> &[u8] {
        let bytes = match mem::replace(self, Self::Own(Vec::new())) {
            // A region that can't end, in a forked child, is copied.
            Self::Registered(region) => region
                .into_inner()
                .unwrap_or_else(|region| region.to_vec(..)),
            Self::Own(bytes) => bytes,
        };
        *self = Self::Own(bytes);
        match self {
            Self::Own(bytes) => bytes,
            Self::Registered(_) => unreachable!("it was taken back"),
        }
    }

    /// For the next message.
    pub(super) fn registered(
        self,
        domain: &ProtectionDomain,
    ) -> Result<OwnedRegion<Vec<u8>>, MemoryError> {
        match self {
            Self::Registered(region) => Ok(region),
            Self::Own(bytes) => domain
                .register(bytes, Access::LOCAL_WRITE)
                .map_err(|error| error.reason),
        }
    }
}

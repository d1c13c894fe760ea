//! Messages that are built and handled in the ring, without a further copy.

use std::sync::atomic::AtomicU8;

use super::ring::{InvalidRing, Reader, State};
use super::{Destination, Shortcuts};
use crate::sharing::mailbox::{HEADER_LENGTH, MAX_MESSAGE, Mailbox};

/// Shorter messages are copied: that costs less.
const MIN_IN_PLACE: usize = 2048;

/// A message of another process.
#[derive(Clone, Copy)]
pub(in crate::sharing) enum RingMessage<'m> {
    /// A copy.
    Copied(&'m [u8]),
    /// A message in the ring. Its writer may change it at any time.
    InPlace(&'m [AtomicU8]),
}

/// Reads the next message. Returns whether there was one.
pub(super) fn read(
    reader: &mut Reader,
    buffer: &mut [u8],
    take: &mut impl FnMut(RingMessage<'_>),
) -> Result<bool, InvalidRing> {
    match reader.next_message(buffer.len())? {
        None => Ok(false),
        Some(MIN_IN_PLACE..) => {
            reader.read_in_place(buffer.len(), |message| take(RingMessage::InPlace(message)))
        }
        Some(_) => {
            let length = reader.read(buffer)?;
            take(RingMessage::Copied(&buffer[..length.unwrap_or(0)]));
            Ok(true)
        }
    }
}

impl Shortcuts {
    /// Room for at most `bytes` bytes of packets in the ring to their owner; `None` if it is full or there is none.
    pub(in crate::sharing) fn reserve(
        &mut self,
        to: Destination,
        bytes: usize,
    ) -> Option<&[AtomicU8]> {
        if !self.enabled || HEADER_LENGTH + bytes > MAX_MESSAGE {
            return None;
        }
        self.drop_outdated_routes_if_due();
        let outlet = self.route(to)?.ring.as_mut()?;
        if outlet.writer.state() != State::Open {
            return None;
        }
        outlet.writer.reserve(HEADER_LENGTH, bytes)
    }

    /// Sends the first `bytes` bytes of the room that was reserved.
    pub(in crate::sharing) fn commit(
        &mut self,
        to: Destination,
        header: &[u8; HEADER_LENGTH],
        bytes: usize,
        mailbox: &Mailbox,
    ) {
        if let Some(route) = self.route(to)
            && let Some(outlet) = &mut route.ring
        {
            outlet.writer.commit(header, bytes);
            outlet.wake_reader(mailbox);
        }
    }
}

#[cfg(test)]
impl RingMessage<'_> {
    pub(super) fn to_vec(self) -> Vec<u8> {
        match self {
            RingMessage::Copied(message) => message.to_vec(),
            RingMessage::InPlace(message) => wire::PayloadBytes::Shared(message).to_vec(),
        }
    }
}

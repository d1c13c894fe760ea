//! The way into a stream: what the peer wrote, and what it may write next.

use std::collections::VecDeque;

use engine::{Remote, SendRequest, Work};
use wire::Key;

use super::parts::Region;
use super::pipe::{Pipe, SENT_CONTROL};
use super::protocol::{Message, Target};
use crate::errno::Errno;

pub(super) struct ReceiveSide {
    pub(super) region: Region,
    /// How long each message is that was not read yet.
    pub(super) messages: VecDeque<u32>,
    /// Where the next byte is read.
    pub(super) at: u32,
    /// What was read and is not the peer's again; and where that begins.
    pub(super) free: u32,
    pub(super) free_at: u32,
    /// Messages that came, and at how many the peer is to be told that more may: modulo 2^16.
    pub(super) received: u16,
    pub(super) tell_at: u16,
    /// Which of the peer's places for descriptions is next.
    pub(super) place: u32,
}

impl Pipe {
    pub(super) fn has_data(&self) -> bool {
        !self.receive.messages.is_empty()
    }

    /// Copies what has come; how many bytes.
    pub(super) fn receive_into(&mut self, into: &mut [u8], peek: bool) -> usize {
        let mut copied = 0;
        let mut at = self.receive.at;
        let mut message = 0;
        let mut left = self.receive.messages.front().copied().unwrap_or(0);
        while copied < into.len() && message < self.receive.messages.len() {
            let until_end = self.sizes.receive_buffer - at;
            let length = left.min(until_end).min((into.len() - copied) as u32);
            let part = &mut into[copied..copied + length as usize];
            self.receive.region.buffer.read(at as usize, part);
            copied += length as usize;
            at = (at + length) % self.sizes.receive_buffer;
            left -= length;
            if left == 0 {
                message += 1;
                left = self.receive.messages.get(message).copied().unwrap_or(0);
            }
        }
        if !peek {
            self.receive.messages.drain(..message);
            if let Some(first) = self.receive.messages.front_mut() {
                *first = left;
            }
            self.receive.at = at;
            self.receive.free += copied as u32;
        }
        copied
    }

    /// Lets the peer send more, when half of what it had is used up.
    pub(super) fn grant(&mut self) {
        let half = self.sizes.receive_buffer / 2;
        let buffer_free = self.receive.free >= half;
        let due = self
            .receive
            .received
            .wrapping_sub(self.receive.tell_at)
            .cast_signed()
            >= 0;
        if !(buffer_free || due) || !self.can_say() {
            return;
        }
        let received = self.receive.received;
        self.receive.tell_at = received.wrapping_add(self.sizes.receive_queue / 2);
        let message = Message::Credits(received.wrapping_add(self.sizes.receive_queue));
        let told = if buffer_free {
            self.grant_buffer(message, half)
        } else {
            self.say(message)
        };
        if told.is_err() {
            self.break_off(Errno(libc::EIO));
        }
    }

    fn grant_buffer(&mut self, message: Message, half: u32) -> Result<(), Errno> {
        let target = self.receive.region.target(self.receive.free_at, half);
        let places = self.peer.targets;
        let remote = Remote {
            address: places.address + u64::from(self.receive.place) * Target::SIZE as u64,
            key: Key::new(places.key),
        };
        self.receive.free -= half;
        self.receive.free_at = (self.receive.free_at + half) % (half * 2);
        self.receive.place = (self.receive.place + 1) % places.length.max(1);
        self.controls.0 += 1;
        let work = Work::WriteImmediate(remote, message.emit());
        let bytes = target.emit(self.peer.big_endian);
        self.post(SendRequest::new(SENT_CONTROL, work).inline(&bytes))
    }
}

//! The receiving side of a stream: what the peer wrote, and what it may write next.

use engine::{RemoteMemory, SendRequest, Work};
use wire::Key;

use super::connection::{Connection, SENT_CONTROL};
use super::protocol::{Message, Target};
use crate::errno::Errno;

impl Connection {
    pub(super) fn has_data(&self) -> bool {
        !self.receive.messages.is_empty()
    }

    /// How many bytes can be read.
    pub(super) fn unread(&self) -> u64 {
        self.receive.messages.iter().copied().map(u64::from).sum()
    }

    /// Copies received data. Returns the number of bytes.
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

    /// Sends credits to the peer, when half of those it had are used.
    pub(super) fn grant(&mut self) {
        let half = self.sizes.receive_buffer / 2;
        let buffer_free = self.receive.free >= half;
        let due = self
            .receive
            .received
            .wrapping_sub(self.receive.credits_due_at)
            .cast_signed()
            >= 0;
        if !(buffer_free || due) || !self.can_send_control() {
            return;
        }
        let received = self.receive.received;
        self.receive.credits_due_at = received.wrapping_add(self.sizes.receive_queue / 2);
        let message = Message::Credits(received.wrapping_add(self.sizes.receive_queue));
        let sent = if buffer_free {
            self.grant_buffer(message, half)
        } else {
            self.send_control(message)
        };
        if sent.is_err() {
            self.fail(Errno(libc::EIO));
        }
    }

    fn grant_buffer(&mut self, message: Message, half: u32) -> Result<(), Errno> {
        let target = self.receive.region.target(self.receive.free_at, half);
        let targets = self.peer.targets;
        let remote = RemoteMemory {
            address: targets.address + u64::from(self.receive.target_slot) * Target::SIZE as u64,
            key: Key::new(targets.key),
        };
        self.receive.free -= half;
        self.receive.free_at = (self.receive.free_at + half) % (half * 2);
        self.receive.target_slot = (self.receive.target_slot + 1) % targets.length.max(1);
        self.controls.0 += 1;
        let work = Work::WriteImmediate(remote, message.emit());
        let bytes = target.emit(self.peer.big_endian);
        self.post(SendRequest::new(SENT_CONTROL, work).inline(&bytes))
    }
}

//! The receiving side of a stream: what the peer wrote, and what it may write next.

use engine::{RemoteMemory, SendRequest, Work};
use wire::Key;

use super::connection::{Connection, SENT_CONTROL};
use super::protocol::Message;
use crate::errno::Errno;

impl Connection {
    pub(super) fn has_data(&self) -> bool {
        self.receive.unread > 0
    }

    /// How many bytes can be read.
    pub(super) fn unread(&self) -> u32 {
        self.receive.unread
    }

    /// The peer says that it has written data. If it has written less, or more than it may, we would read older data again.
    pub(super) fn take_data(&mut self, length: u32, written: u32) {
        if length != written || length > self.receive.granted {
            return self.fail_by_peer();
        }
        if length > 0 {
            self.receive.granted -= length;
            self.receive.unread += length;
            self.receive.received_data = self.receive.received_data.wrapping_add(1);
        }
    }

    /// Copies received data. Returns the number of bytes.
    pub(super) fn receive_into(&mut self, into: &mut [u8], peek: bool) -> usize {
        let length = (self.receive.unread as usize).min(into.len());
        let until_end = (self.sizes.receive_buffer - self.receive.at) as usize;
        let (head, tail) = into[..length].split_at_mut(length.min(until_end));
        let region = &self.receive.region;
        region.buffer.read(self.receive.at as usize, head);
        region.buffer.read(0, tail);
        if !peek {
            let read = length as u32;
            self.receive.at = (self.receive.at + read) % self.sizes.receive_buffer;
            self.receive.unread -= read;
            self.receive.free += read;
        }
        length
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
            address: self.peer.target_address(self.receive.target_slot),
            key: Key::new(targets.key),
        };
        self.receive.free -= half;
        self.receive.granted += half;
        self.receive.free_at = (self.receive.free_at + half) % (half * 2);
        self.receive.target_slot = (self.receive.target_slot + 1) % targets.length;
        self.controls.0 += 1;
        let work = Work::WriteImmediate(remote, message.emit());
        let bytes = target.emit(self.peer.big_endian);
        self.post(SendRequest::new(SENT_CONTROL, work).inline(&bytes))
    }
}

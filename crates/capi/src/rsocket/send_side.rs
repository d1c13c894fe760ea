//! The sending side of a stream: writes pieces of data into the peer's buffers.

use engine::{RemoteMemory, SendRequest, Work};
use wire::Key;

use super::connection::{Connection, SENT_DATA};
use super::protocol::{Mapping, Message, PROTOCOL_ERROR, Target};
use super::verbs_objects::TARGETS;
use crate::errno::Errno;

/// Sending waits while less space is free, because small pieces are inefficient.
const LOW_WATER: u32 = 2048;

/// The size of the first piece of a transfer, so that the peer starts early, and the largest size.
pub(super) const FIRST_PIECE: usize = 16384;
pub(super) const MAX_PIECE: usize = 65536;

impl Connection {
    pub(super) fn can_send(&self) -> bool {
        let send = &self.send;
        send.queue_slots > 0
            && send.free >= LOW_WATER
            && send.sent != send.allowed
            && send.targets[send.target].length > 0
    }

    /// Sends the beginning of the data, at most `limit` bytes. Returns how many. [`can_send`](Self::can_send)
    /// must be true.
    pub(super) fn send_piece(&mut self, data: &[u8], limit: usize) -> Result<usize, Errno> {
        let index = self.send.target;
        let target = self.send.targets[index];
        let length = data.len().min(limit).min(self.send.free as usize);
        let length = length.min(target.length as usize);
        let remote = RemoteMemory {
            address: target.address,
            key: Key::new(target.key),
        };
        let left = &mut self.send.targets[index];
        left.address += length as u64;
        left.length -= length as u32;
        if left.length == 0 {
            self.send.target = (index + 1) % TARGETS;
        }
        self.send.sent = self.send.sent.wrapping_add(1);
        let message = Message::Data(length as u32);
        let work = Work::WriteImmediate(remote, message.emit());
        let request = SendRequest::new(SENT_DATA | length as u64, work);
        self.post_data(&data[..length], request)?;
        Ok(length)
    }

    /// Writes the beginning of the data directly to the memory that the peer has mapped at `offset`. Returns
    /// the number of bytes; `None` if nothing is mapped there. [`can_send`](Self::can_send) must be true.
    pub(super) fn write_piece(
        &mut self,
        data: &[u8],
        limit: usize,
        offset: u64,
    ) -> Result<Option<usize>, Errno> {
        let Some(mapping) = self.mapping_of(offset) else {
            return Ok(None);
        };
        if mapping.target.end().is_none() {
            return Err(PROTOCOL_ERROR);
        }
        let within = offset - mapping.offset;
        let left = u64::from(mapping.target.length) - within;
        let length = data.len().min(limit).min(self.send.free as usize);
        let length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
        let remote = RemoteMemory {
            address: mapping.target.address + within,
            key: Key::new(mapping.target.key),
        };
        let request = SendRequest::new(SENT_DATA | length as u64, Work::Write(remote));
        self.post_data(&data[..length], request)?;
        Ok(Some(length))
    }

    /// Posts data, from a copy in the send buffer unless it is small.
    fn post_data(&mut self, data: &[u8], request: SendRequest) -> Result<(), Errno> {
        let length = data.len() as u32;
        self.send.queue_slots -= 1;
        self.send.free -= length;
        if data.len() <= usize::from(self.sizes.inline) {
            return self.post(request.inline(data));
        }
        let first = length.min(self.sizes.send_buffer - self.send.at);
        let (head, tail) = data.split_at(first as usize);
        let region = &self.send.region;
        region.buffer.write(self.send.at as usize, head);
        region.buffer.write(0, tail);
        let parts = [
            region.segment(self.send.at, first),
            region.segment(0, length - first),
        ];
        let request = request.with(parts.into_iter().filter(|part| part.length > 0));
        self.send.at = (self.send.at + length) % self.sizes.send_buffer;
        self.post(request)
    }

    /// Reads the descriptions of new buffers that the peer wrote over those that are used up. It is called
    /// after the peer's message has arrived, so each description is complete.
    pub(super) fn read_targets(&mut self) {
        let is_used_up = |index: &usize| self.send.targets[*index].length == 0;
        let used_up: Vec<usize> = (0..TARGETS).filter(is_used_up).collect();
        for index in used_up {
            let mut bytes = [0; Target::SIZE];
            let at = index * Target::SIZE;
            self.descriptions.buffer.read(at, &mut bytes);
            let described = Target::parse(&bytes, cfg!(target_endian = "big"));
            if described.end().is_none() {
                return self.fail_by_peer();
            }
            if described.length > 0 {
                self.send.targets[index] = described;
                // The peer writes here again only after this one is used up.
                self.descriptions.buffer.write(at, &[0; Target::SIZE]);
            }
        }
    }

    /// The peer's mapping that contains an offset.
    fn mapping_of(&self, offset: u64) -> Option<Mapping> {
        let first = TARGETS * Target::SIZE;
        (0..usize::from(self.sizes.mappings))
            .map(|entry| {
                let mut bytes = [0; Mapping::SIZE];
                let at = first + entry * Mapping::SIZE;
                self.descriptions.buffer.read(at, &mut bytes);
                Mapping::parse(&bytes, cfg!(target_endian = "big"))
            })
            .find(|it| {
                let within = offset.checked_sub(it.offset);
                within.is_some_and(|within| within < it.target.length.into())
            })
    }
}

//! The way out of a stream: pieces of data into the peer's buffers.

use engine::{Remote, SendRequest, Work};
use wire::Key;

use super::parts::{Region, TARGETS};
use super::pipe::{Pipe, SENT_DATA};
use super::protocol::{Mapping, Message, Target};
use crate::errno::Errno;

/// Below so much free space, sending waits: small pieces would cost more than they carry.
const LOW_WATER: u32 = 2048;

/// The first piece of a long transfer, and the longest: the peer begins early, and then goes on.
pub(super) const FIRST_PIECE: usize = 16384;
pub(super) const LONGEST_PIECE: usize = 65536;

pub(super) struct SendSide {
    pub(super) region: Region,
    /// Where the next piece is put.
    pub(super) at: u32,
    pub(super) free: u32,
    /// Room in the send queue.
    pub(super) room: u32,
    /// Messages that were sent, and that may be: modulo 2^16.
    pub(super) sent: u16,
    pub(super) allowed: u16,
    /// Whose turn it is of the peer's buffers.
    pub(super) target: usize,
    /// What is left of them.
    pub(super) targets: [Target; TARGETS],
}

impl Pipe {
    pub(super) fn can_send(&self) -> bool {
        let send = &self.send;
        send.room > 0
            && send.free >= LOW_WATER
            && send.sent != send.allowed
            && send.targets[send.target].length > 0
    }

    /// Sends the beginning of the data, at most `most` bytes of it; how many. There must be room.
    pub(super) fn send_piece(&mut self, data: &[u8], most: usize) -> Result<usize, Errno> {
        let place = self.send.target;
        let target = self.send.targets[place];
        let length = data.len().min(most).min(self.send.free as usize);
        let length = length.min(target.length as usize);
        let remote = Remote {
            address: target.address,
            key: Key::new(target.key),
        };
        let left = &mut self.send.targets[place];
        left.address += length as u64;
        left.length -= length as u32;
        if left.length == 0 {
            self.send.target = (place + 1) % TARGETS;
        }
        self.send.sent = self.send.sent.wrapping_add(1);
        let message = Message::Data(length as u32);
        let work = Work::WriteImmediate(remote, message.emit());
        let request = SendRequest::new(SENT_DATA | length as u64, work);
        self.post_data(&data[..length], request)?;
        Ok(length)
    }

    /// Writes the beginning of the data directly to where the peer has mapped `offset`; how many bytes.
    /// Nothing if it has not. There must be room.
    pub(super) fn write_piece(
        &mut self,
        data: &[u8],
        most: usize,
        offset: u64,
    ) -> Result<Option<usize>, Errno> {
        let Some(mapping) = self.mapping_of(offset) else {
            return Ok(None);
        };
        let within = offset - mapping.offset;
        let left = u64::from(mapping.target.length) - within;
        let length = data.len().min(most).min(self.send.free as usize);
        let length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
        let remote = Remote {
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
        self.send.room -= 1;
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

    /// The peer may have described new buffers, in the places of those that are used up. This is
    /// looked at when its message has come: then the description is whole.
    pub(super) fn learn_targets(&mut self) {
        let is_used_up = |place: &usize| self.send.targets[*place].length == 0;
        let places: Vec<usize> = (0..TARGETS).filter(is_used_up).collect();
        for place in places {
            let mut bytes = [0; Target::SIZE];
            let at = place * Target::SIZE;
            self.descriptions.buffer.read(at, &mut bytes);
            let described = Target::parse(&bytes, cfg!(target_endian = "big"));
            if described.length > 0 {
                self.send.targets[place] = described;
                // The peer writes here again only when this one is used up, too.
                self.descriptions.buffer.write(at, &[0; Target::SIZE]);
            }
        }
    }

    /// The memory of the peer's that an offset is in.
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
                let end = it.offset.saturating_add(it.target.length.into());
                (it.offset..end).contains(&offset)
            })
    }
}

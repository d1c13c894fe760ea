//! Memory that the peer writes directly: `riomap` and `riowrite`.

use engine::Access;
use wire::Key;

use super::protocol::{Mapping, Target};
use super::stream::{Inner, Stream};
use crate::errno::Errno;
use crate::verbs::memory;

/// A piece of the program's memory that the peer may write.
pub(super) struct Mapped {
    start: usize,
    length: usize,
    key: Key,
    /// Its place in the peer's map; none if only this side is to use it.
    entry: Option<u16>,
    mapping: Mapping,
    published: bool,
}

impl Stream {
    /// Opens memory to the peer under an offset, or under its own address.
    pub(super) fn map(
        &self,
        start: *mut std::ffi::c_void,
        length: usize,
        writable: bool,
        offset: Option<u64>,
    ) -> Result<u64, Errno> {
        let whole = u32::try_from(length).map_err(|_| Errno::INVALID)?;
        let mut inner = self.lock();
        let Inner { pipe, mapped, .. } = &mut *inner;
        let pipe = pipe.as_mut().ok_or(Errno::INVALID)?;
        let entry = if writable {
            let taken = |entry: &u16| mapped.iter().any(|it| it.entry == Some(*entry));
            let free = (0..pipe.peer_mappings()).find(|entry| !taken(entry));
            Some(free.ok_or(Errno::NO_MEMORY)?)
        } else {
            None
        };
        let access = if writable {
            Access::LOCAL_WRITE | Access::REMOTE_WRITE
        } else {
            Access::LOCAL_WRITE
        };
        let called = start.addr() as u64;
        let (extent, called) = memory::extent(start, length, called, access)?;
        let domain = pipe.domain;
        let registered = pipe
            .context
            .raw()
            .tell(|device| device.register(domain, extent, called, access))?;
        let mapping = Mapping {
            offset: offset.unwrap_or(called),
            target: Target {
                address: registered.address,
                key: registered.remote_key.value(),
                length: whole,
            },
        };
        mapped.push(Mapped {
            start: start.addr(),
            length,
            key: registered.local_key,
            entry,
            mapping,
            published: entry.is_none(),
        });
        Ok(mapping.offset)
    }

    /// Closes it again.
    pub(super) fn unmap(&self, start: usize, length: usize) -> Result<(), Errno> {
        let mut inner = self.lock();
        let same = |it: &Mapped| it.start == start && it.length == length;
        let place = inner.mapped.iter().position(same).ok_or(Errno::INVALID)?;
        let ended = inner.mapped.remove(place);
        if let Some(pipe) = &inner.pipe {
            let _ = pipe
                .context
                .raw()
                .tell(|device| device.deregister(ended.key));
        }
        Ok(())
    }

    /// Writes to where the peer has mapped an offset; how much.
    pub(super) fn write_at(&self, data: &[u8], offset: u64, flags: i32) -> Result<usize, Errno> {
        self.send_with(data, flags, |pipe, rest, most, sent| {
            pipe.write_piece(rest, most, offset + sent as u64)
        })
    }
}

impl Inner {
    /// Tells the peer of memory that was mapped since the last time, as far as there is room.
    pub(super) fn publish_mappings(&mut self) -> Result<(), Errno> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        for mapped in self.mapped.iter_mut().filter(|it| !it.published) {
            if !pipe.can_send() {
                break;
            }
            if let Some(entry) = mapped.entry {
                pipe.publish(entry, mapped.mapping)?;
            }
            mapped.published = true;
        }
        Ok(())
    }

    pub(super) fn forget_mappings(&mut self) {
        let mapped = std::mem::take(&mut self.mapped);
        if let Some(pipe) = &self.pipe {
            pipe.context.raw().tell(|device| {
                for it in mapped {
                    let _ = device.deregister(it.key);
                }
            });
        }
    }
}

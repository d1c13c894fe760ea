//! Memory that the peer writes directly: `riomap` and `riowrite`.

use engine::Access;

use super::protocol::{Mapping, Target};
use super::stream::{Inner, MappedMemory, Stream};
use crate::errno::Errno;
use crate::verbs::memory_region;

impl Stream {
    /// Registers memory for the peer at an offset, or at its own address.
    pub(super) fn map(
        &self,
        start: *mut std::ffi::c_void,
        length: usize,
        writable: bool,
        offset: Option<u64>,
    ) -> Result<u64, Errno> {
        let whole = u32::try_from(length).map_err(|_| Errno::INVALID)?;
        let mut inner = self.lock();
        let Inner {
            connection, mapped, ..
        } = &mut *inner;
        let connection = connection.as_mut().ok_or(Errno::INVALID)?;
        let entry = if writable {
            let taken = |entry: &u16| mapped.iter().any(|it| it.entry == Some(*entry));
            let free = (0..connection.peer_mappings()).find(|entry| !taken(entry));
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
        let driver = &connection.driver;
        let (extent, called) = memory_region::extent(driver, start, length, called, access)?;
        let domain = connection.domain;
        let registered = connection
            .driver
            .call_without_transmit(|device| device.register(domain, extent, called, access))?;
        let mapping = Mapping {
            offset: offset.unwrap_or(called),
            target: Target {
                address: registered.address,
                key: registered.remote_key.value(),
                length: whole,
            },
        };
        mapped.push(MappedMemory {
            start: start.addr(),
            length,
            key: registered.local_key,
            entry,
            mapping,
            published: entry.is_none(),
        });
        Ok(mapping.offset)
    }

    /// Deregisters it.
    pub(super) fn unmap(&self, start: usize, length: usize) -> Result<(), Errno> {
        let mut inner = self.lock();
        let same = |it: &MappedMemory| it.start == start && it.length == length;
        let index = inner.mapped.iter().position(same).ok_or(Errno::INVALID)?;
        let ended = inner.mapped.remove(index);
        if let Some(connection) = &inner.connection {
            let _ = connection
                .driver
                .call_without_transmit(|device| device.deregister(ended.key));
        }
        Ok(())
    }

    /// Writes to the memory that the peer has mapped at an offset. Returns how much.
    pub(super) fn write_at(&self, data: &[u8], offset: u64, flags: i32) -> Result<usize, Errno> {
        self.send_with(data, flags, |connection, rest, limit, sent| {
            match offset.checked_add(sent as u64) {
                Some(at) => connection.write_piece(rest, limit, at),
                None => Ok(None),
            }
        })
    }
}

impl Inner {
    /// Sends new mappings to the peer, as far as the send queue has space.
    pub(super) fn send_mappings(&mut self) -> Result<(), Errno> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        for mapped in self.mapped.iter_mut().filter(|it| !it.published) {
            if !connection.can_send() {
                break;
            }
            if let Some(entry) = mapped.entry {
                connection.send_mapping(entry, mapped.mapping)?;
            }
            mapped.published = true;
        }
        Ok(())
    }

    pub(super) fn deregister_mappings(&mut self) {
        let mapped = std::mem::take(&mut self.mapped);
        if let Some(connection) = &self.connection {
            connection.driver.call_without_transmit(|device| {
                for it in mapped {
                    let _ = device.deregister(it.key);
                }
            });
        }
    }
}

//! The registered buffers of a domain, by their local keys.

use std::collections::HashMap;
use std::mem;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use abi::ibv_mr;
use engine::{Buffer, Segment};
use wire::{Gid, Key, grh};

/// The registered buffers of a domain.
#[derive(Debug, Default)]
pub(super) struct RegisteredBuffers(Mutex<HashMap<Key, Registered>>);

#[derive(Debug)]
struct Registered {
    region: NonNull<ibv_mr>,
    buffer: Weak<Buffer>,
}

// SAFETY: the functions of libibverbs may be called from any thread.
unsafe impl Send for Registered {}

impl RegisteredBuffers {
    pub(super) fn add(&self, key: Key, region: NonNull<ibv_mr>, buffer: &Arc<Buffer>) {
        let buffer = Arc::downgrade(buffer);
        self.lock().insert(key, Registered { region, buffer });
    }

    /// Adds a region whose bytes are not in the memory of the process.
    pub(super) fn add_device_memory(&self, key: Key, region: NonNull<ibv_mr>) {
        let buffer = Weak::new();
        self.lock().insert(key, Registered { region, buffer });
    }

    /// Removes a region that is deregistered next. No call of [`with_region`](Self::with_region) uses it any more.
    pub(super) fn remove(&self, key: Key) {
        self.lock().remove(&key);
    }

    /// Calls a function with a region, which is not deregistered meanwhile; `None` if there is no such region.
    pub(super) fn with_region<R>(
        &self,
        key: Key,
        work: impl FnOnce(NonNull<ibv_mr>) -> R,
    ) -> Option<R> {
        let registered = self.lock();
        let found = registered.get(&key)?;
        Some(work(found.region))
    }

    /// The sender's address, which the device has written to the beginning of a receive; zero if the memory is no longer registered.
    pub(super) fn sender(&self, receive: &[Segment]) -> Gid {
        let mut header = [0; grh::LENGTH];
        let mut rest = &mut header[..];
        for segment in receive {
            let length = rest.len().min(segment.length as usize);
            let (part, after) = mem::take(&mut rest).split_at_mut(length);
            if !self.read(segment, part) {
                return Gid::default();
            }
            rest = after;
        }
        let fields = grh::parse(&header);
        fields.map_or(Gid::default(), |fields| fields.source)
    }

    /// Reads the beginning of a segment. Returns whether it is registered.
    pub(super) fn read(&self, segment: &Segment, into: &mut [u8]) -> bool {
        let found = self.lock().get(&segment.key).map(|it| it.buffer.upgrade());
        let Some(Some(buffer)) = found else {
            return false;
        };
        let offset = segment.address.checked_sub(buffer.address());
        let offset = offset.and_then(|offset| usize::try_from(offset).ok());
        let end = offset.and_then(|offset| offset.checked_add(into.len()));
        match (offset, end) {
            (Some(offset), Some(end)) if end <= buffer.len() => {
                buffer.read(offset, into);
                true
            }
            _ => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Registered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use wire::{Flow, Fragmentation, ROCE_PORT};

    use super::*;

    const KEY: Key = Key::new(9);

    fn segment(buffer: &Buffer, offset: u64, length: u32) -> Segment {
        Segment {
            address: buffer.address() + offset,
            length,
            key: KEY,
        }
    }

    #[test]
    fn the_sender_stands_at_the_beginning_of_the_receive() {
        let buffer = Buffer::try_zeroed(128).expect("memory");
        let [source, destination] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let flow = Flow {
            source,
            destination,
            source_port: 49152,
            destination_port: ROCE_PORT,
        };
        let header = grh::area(&flow, 0, 64, Fragmentation::NONE, 100);
        buffer.write(16, &header);
        let buffers = RegisteredBuffers::default();
        buffers.add(KEY, NonNull::dangling(), &buffer);
        let expected = Gid::from(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(buffers.sender(&[segment(&buffer, 16, 100)]), expected);
        let divided = [segment(&buffer, 16, 30), segment(&buffer, 46, 60)];
        assert_eq!(buffers.sender(&divided), expected);
        let outside = segment(&buffer, 100, 100);
        assert!(buffers.sender(&[outside]).is_zero());
        buffers.remove(KEY);
        assert!(buffers.sender(&[segment(&buffer, 16, 100)]).is_zero());
    }
}

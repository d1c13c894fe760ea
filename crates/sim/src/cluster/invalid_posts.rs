//! Requests that the post must reject.

use engine::{
    Address, Destination, PostError, QueuePairType, RemoteMemory, Segment, SendRequest, Work,
};
use wire::{Gid, Key, QueueKey};

use super::Cluster;
use crate::CheckError;

impl Cluster {
    /// Posts an invalid request: it must be rejected without an effect.
    pub(super) fn post_invalid(&mut self, end: usize) -> Result<(), CheckError> {
        let (mut request, expected) = match self.rng.below(5) {
            0 => self.short_atomic(end),
            1 => self.too_many_segments(end),
            2 => self.too_much_inline(end),
            3 => self.inline_read(),
            _ => self.stray_destination(end),
        };
        let (host, number) = (self.ends[end].host, self.ends[end].number);
        if self.ends[end].kind == QueuePairType::XrcInitiator {
            request.remote_srqn = Some(wire::Srqn::new(number.value()));
        }
        let Some(device) = self.world.device_of(host, number) else {
            return Ok(());
        };
        let found = device.post_send(number, request);
        if found == Err(expected) {
            Ok(())
        } else {
            let text = format!("a post returned {found:?}, but {expected:?} was expected");
            Err(self.error_at(end, &text))
        }
    }

    /// Its result has no room.
    fn short_atomic(&mut self, end: usize) -> (SendRequest, PostError) {
        let (memory, key) = self.ends[end].local;
        let remote = RemoteMemory {
            address: self.rng.word() & !7,
            key: Key::new(0),
        };
        let segment = Segment {
            address: self.memories[memory].address(0),
            length: self.rng.between(1, 7) as u32,
            key,
        };
        let request = SendRequest::new(0, Work::FetchAdd { remote, add: 1 }).with([segment]);
        if self.ends[end].is_reliable() {
            (request, PostError::AtomicShape)
        } else {
            (request, PostError::Unsupported)
        }
    }

    fn too_many_segments(&mut self, end: usize) -> (SendRequest, PostError) {
        let most = self.ends[end].limits.max_segments;
        let segment = Segment {
            address: 0,
            length: 0,
            key: Key::new(0),
        };
        let request = SendRequest::new(0, Work::Send).with(vec![segment; most + 1]);
        (request, PostError::TooManySegments { max: most as u32 })
    }

    fn too_much_inline(&mut self, end: usize) -> (SendRequest, PostError) {
        let most = self.ends[end].limits.max_inline;
        let request = SendRequest::new(0, Work::Send).inline(&vec![0; most + 1]);
        (request, PostError::InlineTooLong { max: most as u32 })
    }

    /// A read sends no data, so it can't be inline.
    fn inline_read(&mut self) -> (SendRequest, PostError) {
        let remote = RemoteMemory {
            address: self.rng.word(),
            key: Key::new(0),
        };
        let request = SendRequest::new(0, Work::Read(remote)).inline(&[]);
        (request, PostError::InlineResult)
    }

    /// Only datagrams have a destination in the request.
    fn stray_destination(&mut self, end: usize) -> (SendRequest, PostError) {
        let destination = Destination {
            address: Address::new(Gid::default(), 0),
            queue_pair: self.ends[end].number,
            queue_key: QueueKey::new(1),
        };
        let request = SendRequest::new(0, Work::Send).to(destination);
        (request, PostError::Destination)
    }
}

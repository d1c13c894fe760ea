//! Where bytes of registered memory are copied to.

use std::sync::atomic::{AtomicU8, Ordering};

use wire::shared_bytes;

use super::buffer::Buffer;
use super::error::NotAccessible;

/// The packets of one send, while they are built.
pub(crate) enum Output<'o> {
    /// In a vector of the driver.
    Private(&'o mut Vec<u8>),
    /// In memory that their receiver, another process, reads. `length` bytes are written.
    Shared { room: &'o [AtomicU8], length: usize },
}

impl Output<'_> {
    /// How many bytes were written.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Output::Private(bytes) => bytes.len(),
            Output::Shared { length, .. } => *length,
        }
    }

    /// Discards all but the first `length` bytes.
    pub(crate) fn truncate(&mut self, length: usize) {
        match self {
            Output::Private(bytes) => bytes.truncate(length),
            Output::Shared { length: all, .. } => *all = length.min(*all),
        }
    }

    /// The bytes that were written from `start` on; `None` if another process can change them.
    #[inline]
    pub(crate) fn private(&self, start: usize) -> Option<&[u8]> {
        match self {
            Output::Private(bytes) => Some(&bytes[start..]),
            Output::Shared { .. } => None,
        }
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If there is no room for them in shared memory.
    #[inline]
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        match self {
            Output::Private(out) => out.extend_from_slice(bytes),
            Output::Shared { .. } => {
                shared_bytes::store(self.take_room(bytes.len()), bytes);
            }
        }
    }

    /// Appends bytes of a buffer.
    #[inline]
    pub(super) fn append_buffer(&mut self, buffer: &Buffer, offset: usize, length: usize) {
        match self {
            Output::Private(out) => buffer.append_to(out, offset, length),
            Output::Shared { .. } => buffer.load(offset, self.take_room(length)),
        }
    }

    /// Appends zeros.
    pub(super) fn append_zeros(&mut self, count: usize) {
        match self {
            Output::Private(out) => out.resize(out.len() + count, 0),
            Output::Shared { .. } => {
                let room = self.take_room(count);
                room.iter()
                    .for_each(|byte| byte.store(0, Ordering::Relaxed));
            }
        }
    }

    /// Appends `length` bytes that `load` copies to an address. If it returns false, nothing is appended.
    ///
    /// # Safety
    /// `load` must write `length` bytes at the address and no others, or return false. It must be sound for memory that
    /// another process accesses at the same time.
    #[inline]
    pub(super) unsafe fn append_raw(
        &mut self,
        length: usize,
        load: impl FnOnce(*mut u8) -> bool,
    ) -> Result<(), NotAccessible> {
        let start = self.len();
        match self {
            Output::Private(out) => {
                out.reserve(length);
                if !load(out.spare_capacity_mut().as_mut_ptr().cast()) {
                    return Err(NotAccessible);
                }
                // SAFETY: `reserve` made room for `length` bytes behind `start`, and `load` initialised them.
                unsafe { out.set_len(start + length) };
            }
            Output::Shared { .. } => {
                if !load(self.take_room(length).as_ptr() as *mut u8) {
                    self.truncate(start);
                    return Err(NotAccessible);
                }
            }
        }
        Ok(())
    }

    /// The next `count` bytes of the room, which become part of the output.
    ///
    /// # Panics
    /// If there is less room, or the output is private.
    #[inline]
    fn take_room(&mut self, count: usize) -> &[AtomicU8] {
        let Output::Shared { room, length } = self else {
            panic!("private output has no room");
        };
        let start = *length;
        *length += count;
        &room[start..*length]
    }
}

//! Memory that the processor does not access itself, such as that of a GPU.

/// Memory of an accelerator. It is read and written by copies that somebody else makes.
///
/// Copies of one message may be gathered: bytes that are stored with more of the message [following](InMessage::following) them
/// need not be in the memory when `store` returns, but all of them must be there when a call for the same memory returns whose
/// bytes are the last. A failure may be reported by any call up to that one. Bytes that follow may also be read ahead.
///
/// The device calls these functions while it holds its locks, for ranges that it has checked. They must not call it.
///
/// # Safety
/// A call of `load` that returns true must have written all bytes of the range, and `load` and `store` must access no other memory
/// of the caller.
pub unsafe trait AcceleratorMemory: Send + Sync {
    /// Its address in the accelerator. Words are aligned there.
    fn address(&self) -> u64;

    /// Copies bytes out of the memory, and reports whether that was possible.
    ///
    /// # Safety
    /// `to` must be valid for writes of `length` bytes, which another process may access at the same time.
    unsafe fn load(&self, to: *mut u8, offset: u64, length: usize, place: InMessage) -> bool;

    /// Copies bytes into the memory, and reports whether that was possible.
    ///
    /// # Safety
    /// `from` must be valid for reads of `length` bytes, which another process may change at the same time.
    unsafe fn store(&self, offset: u64, from: *const u8, length: usize, place: InMessage) -> bool;

    /// Changes a word, and returns the previous value. No other call of this function, for any memory of the process, is between
    /// the read and the write.
    fn update_word(&self, offset: u64, change: &dyn Fn(u64) -> u64) -> Option<u64>;

    /// Waits for all copies. The memory is not used any more, and the program may free it.
    fn settle(&self);
}

/// Where bytes are in the part of a message that is in the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InMessage {
    /// They are the first: what was read ahead for an earlier message is out of date.
    pub starts: bool,
    /// How many bytes of the message follow directly, at least; 0 for the last ones.
    pub following: u64,
}

impl InMessage {
    /// For bytes that are copied alone.
    pub const WHOLE: Self = Self {
        starts: true,
        following: 0,
    };

    /// For `length` bytes at `offset` of a part with `size` bytes.
    #[inline]
    pub(crate) fn of(offset: u64, length: usize, size: u64) -> Self {
        Self {
            starts: offset == 0,
            following: size.saturating_sub(offset + length as u64),
        }
    }
}

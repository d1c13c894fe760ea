//! Settings of a socket: sizes of queues and buffers, and other options.

use std::ffi::c_int;

/// The sizes that a program can set before a socket is connected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) send_queue: u16,
    pub(super) receive_queue: u16,
    /// The most bytes of inline data.
    pub(super) inline: u16,
    pub(super) send_buffer: u32,
    pub(super) receive_buffer: u32,
    /// How many mappings the peer may offer.
    pub(super) mappings: u16,
}

/// A queue holds data and control messages, and its count has 16 bits.
const QUEUE: std::ops::RangeInclusive<u16> = 16..=0xfffe;

/// A buffer has two halves of at least the smallest piece, and a length has 29 bits.
const BUFFER: std::ops::RangeInclusive<u32> = 4096..=1 << 28;

impl Default for Sizes {
    fn default() -> Self {
        Self {
            send_queue: 384,
            receive_queue: 384,
            inline: 64,
            send_buffer: 1 << 19,
            receive_buffer: 1 << 19,
            mappings: 0,
        }
    }
}

impl Sizes {
    pub(super) fn queue(wanted: i32) -> u16 {
        let limit = i32::from(*QUEUE.end());
        wanted.clamp((*QUEUE.start()).into(), limit) as u16
    }

    /// An even number, because the peer sees each half as a buffer.
    pub(super) fn buffer(wanted: i32) -> u32 {
        let wanted = u32::try_from(wanted).unwrap_or(0);
        wanted.clamp(*BUFFER.start(), *BUFFER.end()) & !1
    }
}

/// Options other than sizes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    /// The flags of `rfcntl`.
    pub(super) flags: c_int,
    pub(super) nonblocking: bool,
    pub(super) reuse_address: bool,
    pub(super) keep_alive: bool,
    pub(super) no_delay: bool,
    pub(super) out_of_band_inline: bool,
    pub(super) family_only: bool,
    pub(super) no_linger: bool,
    pub(super) idle: c_int,
}

impl Options {
    pub(super) fn set_flags(&mut self, flags: c_int) {
        self.flags = flags;
        self.nonblocking = flags & libc::O_NONBLOCK != 0;
    }
}

//! How large queues and buffers are.

/// What a program can choose before a socket is connected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) send_queue: u16,
    pub(super) receive_queue: u16,
    /// Up to so many bytes go with the request itself.
    pub(super) inline: u16,
    pub(super) send_buffer: u32,
    pub(super) receive_buffer: u32,
    /// How many pieces of memory the peer may offer for direct writing.
    pub(super) mappings: u16,
}

/// A queue has room for data, control messages and answers; and a number of 16 bits.
const QUEUE: std::ops::RangeInclusive<u16> = 16..=0xfffe;

/// A buffer has two halves of at least the smallest piece, and its pieces have 29 bits.
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
        let most = i32::from(*QUEUE.end());
        wanted.clamp((*QUEUE.start()).into(), most) as u16
    }

    /// An even number, because each half is a buffer of its own to the peer.
    pub(super) fn buffer(wanted: i32) -> u32 {
        let wanted = u32::try_from(wanted).unwrap_or(0);
        wanted.clamp(*BUFFER.start(), *BUFFER.end()) & !1
    }
}

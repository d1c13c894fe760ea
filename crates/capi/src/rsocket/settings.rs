//! Settings of a socket: sizes of queues and buffers, and other options.

use std::ffi::c_int;

use crate::errno::Errno;

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

    /// Twice as much as the program wants, as for any socket: the peer sees each half as a buffer.
    pub(super) fn buffer(wanted: i32) -> u32 {
        let wanted = u32::try_from(wanted).unwrap_or(0);
        let doubled = wanted.saturating_mul(2);
        doubled.clamp(*BUFFER.start(), *BUFFER.end())
    }
}

/// Options other than sizes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    pub(super) flags: Flags,
    pub(super) is_ipv6: bool,
    pub(super) reuse_address: bool,
    pub(super) keep_alive: bool,
    pub(super) no_delay: bool,
    pub(super) out_of_band_inline: bool,
    pub(super) family_only: bool,
    pub(super) no_linger: bool,
    pub(super) type_of_service: c_int,
    pub(super) idle: c_int,
}

/// The flags of a socket, as `rfcntl` reads and sets them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flags {
    /// Those of `F_GETFL`.
    status: c_int,
    /// Those of `F_GETFD`. They change nothing: no socket survives `exec`.
    descriptor: c_int,
}

impl Flags {
    /// The flags that the type of a socket may contain.
    pub(super) const IN_TYPE: c_int = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

    pub(super) fn of_type(kind: c_int) -> Self {
        let given = |bit: c_int, flag: c_int| if kind & bit != 0 { flag } else { 0 };
        Self {
            status: given(libc::SOCK_NONBLOCK, libc::O_NONBLOCK),
            descriptor: given(libc::SOCK_CLOEXEC, libc::FD_CLOEXEC),
        }
    }

    pub(super) fn nonblocking(self) -> bool {
        self.status & libc::O_NONBLOCK != 0
    }

    /// `rfcntl`.
    pub(super) fn control(&mut self, command: c_int, argument: c_int) -> Result<c_int, Errno> {
        match command {
            libc::F_GETFL => return Ok(self.status),
            libc::F_GETFD => return Ok(self.descriptor),
            libc::F_SETFL => self.status = argument,
            libc::F_SETFD => self.descriptor = argument & libc::FD_CLOEXEC,
            _ => return Err(Errno::UNSUPPORTED),
        }
        Ok(0)
    }
}

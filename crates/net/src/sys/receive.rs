//! Many datagrams in one system call, inward.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::check;

/// The most datagrams of one call.
pub(crate) const MAX_SLOTS: usize = 16;

/// No datagram is longer, and no several that the kernel joined.
const SLOT_LENGTH: usize = 1 << 16;

/// Room for any address of the two families.
const NAME_LENGTH: usize = size_of::<libc::sockaddr_in6>();

/// Room for the segment size, destination, traffic class and hop limit, each with its header.
const CONTROL_LENGTH: usize = 128;

/// Where one datagram, or several that the kernel joined, comes to lie.
pub(crate) struct Slot {
    data: Box<[u8]>,
    name: [u8; NAME_LENGTH],
    control: [u8; CONTROL_LENGTH],
    length: usize,
    control_length: usize,
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self {
            data: vec![0; SLOT_LENGTH].into(),
            name: [0; NAME_LENGTH],
            control: [0; CONTROL_LENGTH],
            length: 0,
            control_length: 0,
        }
    }

    /// What came.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data[..self.length]
    }

    /// From whom, as the bytes of a socket address.
    pub(crate) fn name(&self) -> &[u8; NAME_LENGTH] {
        &self.name
    }

    /// What the kernel says about it.
    pub(crate) fn control(&self) -> &[u8] {
        &self.control[..self.control_length]
    }
}

/// Fills slots from the front, as many as there are datagrams. Never waits.
pub(crate) fn receive(fd: BorrowedFd<'_>, slots: &mut [Slot]) -> io::Result<usize> {
    let count = slots.len().min(MAX_SLOTS);
    let mut pieces = [const { NO_PIECE }; MAX_SLOTS];
    let mut headers = [const { NO_HEADER }; MAX_SLOTS];
    for ((slot, piece), header) in slots.iter_mut().zip(&mut pieces).zip(&mut headers) {
        *piece = libc::iovec {
            iov_base: slot.data.as_mut_ptr().cast(),
            iov_len: slot.data.len(),
        };
        let header = &mut header.msg_hdr;
        header.msg_name = slot.name.as_mut_ptr().cast();
        header.msg_namelen = NAME_LENGTH as libc::socklen_t;
        header.msg_iov = piece;
        header.msg_iovlen = 1;
        header.msg_control = slot.control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_LENGTH as _;
    }
    // SAFETY: each of the first `count` headers points to the name, data and control of a slot of
    // its own, with their sizes, and to one entry of `pieces`. All of them outlive the call, and
    // nobody else looks at them meanwhile, because the slots are borrowed mutably.
    let result = unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    };
    let received = check(result)?;
    for (slot, header) in slots.iter_mut().zip(&headers).take(received) {
        slot.length = (header.msg_len as usize).min(slot.data.len());
        let control_length: usize = header.msg_hdr.msg_controllen as _;
        slot.control_length = control_length.min(CONTROL_LENGTH);
    }
    Ok(received)
}

const NO_PIECE: libc::iovec = libc::iovec {
    iov_base: ptr::null_mut(),
    iov_len: 0,
};

// SAFETY: a header of zeros is valid: null pointers with length 0.
const NO_HEADER: libc::mmsghdr = unsafe { std::mem::zeroed() };

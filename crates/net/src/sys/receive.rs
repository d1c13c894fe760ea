//! Receives many datagrams in one system call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::check;

/// The maximum number of datagrams per call.
pub(crate) const MAX_SLOTS: usize = 16;

/// The length of a slot in bytes. No datagram is longer, nor are several that the kernel joined.
const SLOT_LENGTH: usize = 1 << 16;

/// Room for any address of the two families.
const NAME_LENGTH: usize = size_of::<libc::sockaddr_in6>();

/// Room for the segment size, destination, traffic class and hop limit, each with its header.
const CONTROL_LENGTH: usize = 128;

/// The buffer of one datagram, or of several that the kernel joined.
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

    /// The received bytes.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data[..self.length]
    }

    /// The sender, as the bytes of a socket address.
    pub(crate) fn name(&self) -> &[u8; NAME_LENGTH] {
        &self.name
    }

    /// The control messages.
    pub(crate) fn control(&self) -> &[u8] {
        &self.control[..self.control_length]
    }

    /// Describes the buffers to the kernel.
    fn describe_in(&mut self, header: &mut libc::msghdr, piece: &mut libc::iovec) {
        *piece = libc::iovec {
            iov_base: self.data.as_mut_ptr().cast(),
            iov_len: self.data.len(),
        };
        header.msg_name = self.name.as_mut_ptr().cast();
        header.msg_namelen = NAME_LENGTH as libc::socklen_t;
        header.msg_iov = piece;
        header.msg_iovlen = 1;
        header.msg_control = self.control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_LENGTH as _;
    }

    /// Records how much the kernel has written.
    fn note(&mut self, length: usize, header: &libc::msghdr) {
        self.length = length.min(self.data.len());
        let control_length: usize = header.msg_controllen as _;
        self.control_length = control_length.min(CONTROL_LENGTH);
    }
}

/// Fills slots from the first on, one per datagram. Never waits. Returns how many.
pub(crate) fn receive(fd: BorrowedFd<'_>, slots: &mut [Slot]) -> io::Result<usize> {
    match slots {
        // Cheaper than `recvmmsg` with one entry.
        [slot] => receive_one(fd, slot).map(|()| 1),
        _ => receive_several(fd, slots),
    }
}

fn receive_one(fd: BorrowedFd<'_>, slot: &mut Slot) -> io::Result<()> {
    let mut piece = NO_PIECE;
    let mut header = NO_HEADER.msg_hdr;
    slot.describe_in(&mut header, &mut piece);
    // SAFETY: the header points to the name, data and control of the slot, with their sizes, and to
    // `piece`. All of them outlive the call, and no other code accesses them meanwhile, because the
    // slot is borrowed mutably.
    let result = unsafe {
        libc::syscall(
            libc::SYS_recvmsg,
            fd.as_raw_fd(),
            &raw mut header,
            libc::MSG_DONTWAIT,
        )
    };
    let length = check(result)?;
    slot.note(length, &header);
    Ok(())
}

fn receive_several(fd: BorrowedFd<'_>, slots: &mut [Slot]) -> io::Result<usize> {
    let count = slots.len().min(MAX_SLOTS);
    let mut pieces = [const { NO_PIECE }; MAX_SLOTS];
    let mut headers = [const { NO_HEADER }; MAX_SLOTS];
    for ((slot, piece), header) in slots.iter_mut().zip(&mut pieces).zip(&mut headers) {
        slot.describe_in(&mut header.msg_hdr, piece);
    }
    // SAFETY: each of the first `count` headers points to the name, data and control of a slot of
    // its own, with their sizes, and to one entry of `pieces`. All of them outlive the call, and no
    // other code accesses them meanwhile, because the slots are borrowed mutably.
    let result = unsafe {
        libc::syscall(
            libc::SYS_recvmmsg,
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT,
            ptr::null_mut::<libc::timespec>(),
        )
    };
    let received = check(result)?;
    for (slot, header) in slots.iter_mut().zip(&headers).take(received) {
        slot.note(header.msg_len as usize, &header.msg_hdr);
    }
    Ok(received)
}

const NO_PIECE: libc::iovec = libc::iovec {
    iov_base: ptr::null_mut(),
    iov_len: 0,
};

// SAFETY: a header of zeros is valid: null pointers with length 0.
const NO_HEADER: libc::mmsghdr = unsafe { std::mem::zeroed() };

/// Receives the beginning of one datagram; the rest of it is lost. Never waits. Returns how many bytes were copied.
pub(crate) fn receive_beginning(
    fd: BorrowedFd<'_>,
    into: &mut [u8],
    flags: libc::c_int,
) -> io::Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT;
    let (start, length) = (into.as_mut_ptr().cast(), into.len());
    // SAFETY: the kernel writes at most as many bytes as the slice has.
    let received = unsafe { libc::recv(fd.as_raw_fd(), start, length, flags) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

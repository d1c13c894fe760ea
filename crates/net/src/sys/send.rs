//! Sends one or many datagrams in one system call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use socket2::SockAddr;

use super::check;

/// Sends one datagram, or several of one size if `control` tells the kernel to segment. Never
/// waits.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    destination: &SockAddr,
    control: &[u8],
    bytes: &[u8],
) -> io::Result<()> {
    match control {
        // `sendto` needs no header.
        [] => send_plain(fd, destination, bytes),
        _ => send_with_control(fd, destination, control, bytes),
    }
}

fn send_plain(fd: BorrowedFd<'_>, destination: &SockAddr, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads the live bytes and the live address, each with its length.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sendto,
            fd.as_raw_fd(),
            bytes.as_ptr(),
            bytes.len(),
            FLAGS,
            destination.as_ptr(),
            destination.len(),
        )
    };
    check(result).map(drop)
}

fn send_with_control(
    fd: BorrowedFd<'_>,
    destination: &SockAddr,
    control: &[u8],
    bytes: &[u8],
) -> io::Result<()> {
    let mut piece = NO_PIECE;
    let mut header = NO_HEADER.msg_hdr;
    describe_in(&mut header, &mut piece, destination, control, bytes);
    // SAFETY: the header points to the live address, control bytes and `piece`, which points to the
    // live bytes, all with their sizes. They are only read.
    let result =
        unsafe { libc::syscall(libc::SYS_sendmsg, fd.as_raw_fd(), &raw const header, FLAGS) };
    check(result).map(drop)
}

/// Describes the buffers to the kernel, which only reads them.
fn describe_in(
    header: &mut libc::msghdr,
    piece: &mut libc::iovec,
    destination: &SockAddr,
    control: &[u8],
    bytes: &[u8],
) {
    *piece = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    header.msg_name = destination.as_ptr().cast_mut().cast();
    header.msg_namelen = destination.len();
    header.msg_iov = piece;
    header.msg_iovlen = 1;
    if !control.is_empty() {
        header.msg_control = control.as_ptr().cast_mut().cast();
        header.msg_controllen = control.len() as _;
    }
}

const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// The maximum number of datagrams per call.
const MAX_PACKETS: usize = 64;

/// Sends each packet in a datagram of its own, at most 64 of them. Returns how many were sent.
///
/// The control messages in `control` apply to each of them.
pub(crate) fn send_each<'p>(
    fd: BorrowedFd<'_>,
    destination: &SockAddr,
    control: &[u8],
    packets: impl Iterator<Item = &'p [u8]>,
) -> io::Result<usize> {
    let mut pieces = [const { NO_PIECE }; MAX_PACKETS];
    let mut headers = [const { NO_HEADER }; MAX_PACKETS];
    let mut count: libc::c_uint = 0;
    for ((packet, piece), header) in packets.zip(&mut pieces).zip(&mut headers) {
        describe_in(&mut header.msg_hdr, piece, destination, control, packet);
        count += 1;
    }
    // SAFETY: each of the first `count` headers points to the live address, control bytes and one
    // entry of `pieces`, which points to a live packet, all with their sizes. They are only read.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sendmmsg,
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            FLAGS,
        )
    };
    check(result)
}

const NO_PIECE: libc::iovec = libc::iovec {
    iov_base: ptr::null_mut(),
    iov_len: 0,
};

// SAFETY: a header of zeros is valid: null pointers with length 0.
const NO_HEADER: libc::mmsghdr = unsafe { std::mem::zeroed() };

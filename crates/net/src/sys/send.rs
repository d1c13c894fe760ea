//! Many datagrams in one system call, outward.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use socket2::SockAddr;

use super::check;

/// The most datagrams of one call.
const MAX_PACKETS: usize = 64;

/// Sends each packet in a datagram of its own, at most 64 of them; how many were sent.
///
/// The bytes of `control` go along with every one of them.
pub(crate) fn send_each<'p>(
    fd: BorrowedFd<'_>,
    destination: &SockAddr,
    control: &[u8],
    packets: impl Iterator<Item = &'p [u8]>,
) -> io::Result<usize> {
    let mut pieces = [const { NO_PIECE }; MAX_PACKETS];
    let mut headers = [const { NO_HEADER }; MAX_PACKETS];
    let mut count = 0;
    for ((packet, piece), header) in packets.zip(&mut pieces).zip(&mut headers) {
        *piece = libc::iovec {
            // The kernel only reads from here and from the other pointers.
            iov_base: packet.as_ptr().cast_mut().cast(),
            iov_len: packet.len(),
        };
        let header = &mut header.msg_hdr;
        header.msg_name = destination.as_ptr().cast_mut().cast();
        header.msg_namelen = destination.len();
        header.msg_iov = piece;
        header.msg_iovlen = 1;
        if !control.is_empty() {
            header.msg_control = control.as_ptr().cast_mut().cast();
            header.msg_controllen = control.len() as _;
        }
        count += 1;
    }
    // SAFETY: each of the first `count` headers points to the live address, control bytes and one
    // entry of `pieces`, which points to a live packet, all with their sizes. They are only read.
    let result = unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
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

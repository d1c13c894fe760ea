//! Socket options by number.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// An option: its level and its number.
pub(crate) type Name = (libc::c_int, libc::c_int);

/// Absent from `libc`; the number is part of the kernel's interface.
pub(crate) const UDP_NO_CHECK6_RX: Name = (libc::SOL_UDP, 102);
/// The kernel delivers several datagrams that arrived together in one piece.
pub(crate) const UDP_GRO: Name = (libc::SOL_UDP, 104);
/// The kernel cuts one piece into datagrams of this size.
pub(crate) const UDP_SEGMENT: Name = (libc::SOL_UDP, 103);
/// Subscribes to the messages of a netlink group.
pub(crate) const NETLINK_ADD_MEMBERSHIP: Name = (libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP);

/// Sets an option whose value is an integer.
pub(crate) fn set(fd: BorrowedFd<'_>, (level, name): Name, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<c_int>()` bytes at a pointer to a live c_int.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    check(result).map(drop)
}

/// The value of an option that is an integer.
pub(crate) fn get(fd: BorrowedFd<'_>, (level, name): Name) -> io::Result<libc::c_int> {
    let mut value = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of the live integer, and then the
    // number of bytes it wrote to the live `length`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    check(result).map(|_| value)
}

/// How many datagrams the kernel dropped because the socket's receive buffer was full.
pub(crate) fn drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // The numbers of `SK_MEMINFO_*`: the last of them counts the drops.
    let mut values = [0_u32; 9];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of the live array, and then the
    // number of bytes it wrote to the live `length`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    check(result)?;
    Ok(values[8])
}

/// One instruction of a classic BPF program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) jump_true: u8,
    pub(crate) jump_false: u8,
    pub(crate) operand: u32,
}

const _: () = assert!(size_of::<Instruction>() == size_of::<libc::sock_filter>());
const _: () = assert!(align_of::<Instruction>() == align_of::<libc::sock_filter>());

/// Attaches the program that chooses among the sockets that share this one's port.
pub(crate) fn attach_steering(fd: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    attach(fd, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// Makes the kernel verify the UDP checksum of a datagram before it enters the socket's queue.
///
/// Usually it does that when a program reads the datagram. The socket is then readable for a datagram that a read
/// drops, and nobody can tell afterwards that it was there. The kernel verifies earlier if a filter may look at the
/// datagram; this one accepts everything.
pub(crate) fn verify_checksums_early(fd: BorrowedFd<'_>) -> io::Result<()> {
    const ACCEPT: Instruction = Instruction {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jump_true: 0,
        jump_false: 0,
        operand: u32::MAX,
    };
    attach(fd, libc::SO_ATTACH_FILTER, &[ACCEPT])
}

fn attach(fd: BorrowedFd<'_>, name: libc::c_int, program: &[Instruction]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        // The kernel copies the program and never writes to it.
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the kernel reads a sock_fprog, which points to `len` live instructions of the
    // layout that is asserted above.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    check(result).map(drop)
}

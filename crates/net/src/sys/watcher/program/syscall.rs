//! System calls without a C library.

use core::arch::asm;

pub(crate) use numbers::*;

/// The numbers that all newer architectures share.
#[cfg(not(target_arch = "x86_64"))]
mod numbers {
    pub(crate) const CLOSE: usize = 57;
    pub(crate) const PREAD: usize = 67;
    pub(crate) const PPOLL: usize = 73;
    pub(crate) const EXIT_GROUP: usize = 94;
    pub(crate) const PRCTL: usize = 167;
    pub(crate) const SENDMSG: usize = 211;
    pub(crate) const RECVMSG: usize = 212;
    pub(crate) const CLOSE_RANGE: usize = 436;
}

#[cfg(target_arch = "x86_64")]
mod numbers {
    pub(crate) const CLOSE: usize = 3;
    pub(crate) const PREAD: usize = 17;
    pub(crate) const PPOLL: usize = 271;
    pub(crate) const EXIT_GROUP: usize = 231;
    pub(crate) const PRCTL: usize = 157;
    pub(crate) const SENDMSG: usize = 46;
    pub(crate) const RECVMSG: usize = 47;
    pub(crate) const CLOSE_RANGE: usize = 436;
}

/// Calls the kernel; a negative result is an error number.
///
/// # Safety
/// The arguments are what the call with this number takes: pointers to memory that lives and that may
/// be read and written as the call does.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn syscall(number: usize, arguments: [usize; 5]) -> isize {
    let result;
    // SAFETY: the kernel's convention: it changes rax, rcx and r11, and memory as the caller knows.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Calls the kernel; a negative result is an error number.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn syscall(number: usize, arguments: [usize; 5]) -> isize {
    let result;
    // SAFETY: the kernel's convention: it changes x0, and memory as the caller knows.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            options(nostack),
        );
    }
    result
}

/// Calls the kernel; a negative result is an error number.
///
/// # Safety
/// As above.
#[cfg(target_arch = "riscv64")]
pub(crate) unsafe fn syscall(number: usize, arguments: [usize; 5]) -> isize {
    let result;
    // SAFETY: the kernel's convention: it changes a0, and memory as the caller knows.
    unsafe {
        asm!(
            "ecall",
            in("a7") number,
            inlateout("a0") arguments[0] => result,
            in("a1") arguments[1],
            in("a2") arguments[2],
            in("a3") arguments[3],
            in("a4") arguments[4],
            options(nostack),
        );
    }
    result
}

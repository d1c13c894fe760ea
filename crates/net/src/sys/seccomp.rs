//! System call filters for tests, as a container may install them.

use super::check;

/// One system call with one value of one argument.
#[derive(Clone, Copy)]
pub(crate) struct Forbidden {
    pub(crate) call: libc::c_long,
    /// Which argument is compared, from 0.
    pub(crate) argument: u32,
    pub(crate) value: libc::c_int,
    /// The error of the call.
    pub(crate) errno: libc::c_int,
}

/// Forbids a system call to this thread, until the thread ends.
pub(crate) fn forbid(forbidden: Forbidden) {
    /// The offset of the arguments in `struct seccomp_data`.
    const ARGUMENTS: u32 = 16;
    let load = |offset| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, offset);
    let unless =
        |value, skip| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, skip, value);
    let answer = |value| instruction(libc::BPF_RET | libc::BPF_K, 0, value);
    // The low half of an argument comes first on little-endian machines.
    let low = if cfg!(target_endian = "little") { 0 } else { 4 };
    let mut filter = [
        load(0),
        unless(forbidden.call as u32, 3),
        load(ARGUMENTS + 8 * forbidden.argument + low),
        unless(forbidden.value as u32, 1),
        answer(libc::SECCOMP_RET_ERRNO | forbidden.errno as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: takes no pointers.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    check(result).expect("every thread may give up rights");
    let mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
    // SAFETY: the kernel reads a sock_fprog, which points to `len` live instructions, and keeps a copy.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    check(result).expect("the kernel takes filters");
}

/// `skip` is how many instructions to skip if a comparison fails.
fn instruction(code: u32, skip: u8, operand: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: skip,
        k: operand,
    }
}

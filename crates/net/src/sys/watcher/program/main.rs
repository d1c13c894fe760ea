//! Sends the exit notices of a process after that process has ended.
//!
//! This is a separate program: the build script compiles it, and the library embeds it and starts
//! it from memory (`net::sys::watcher`). It has no C library, no arguments, no files and only a few
//! pages of memory. It does not affect other processes: it has its own session, its signals are
//! blocked, and of its owner's descriptors it keeps only those that are sent to it.
#![no_std]
#![no_main]
// No library provides `memcpy` here, so the compiler must not turn its loop into a call of itself.
#![no_builtins]

mod layout;
mod syscall;

use core::mem::MaybeUninit;
use core::ptr::{null, null_mut};

use layout::{
    CONTROL_LENGTH, Command, MAX_DESCRIPTORS, MAX_SLOTS, NAME_LENGTH, OWNER, PAYLOAD_LENGTH,
    SLOT_LENGTH, Slot, TABLE,
};
use syscall::{CLOSE, CLOSE_RANGE, EXIT_GROUP, PPOLL, PRCTL, PREAD, RECVMSG, SENDMSG, syscall};

/// The descriptor that receives the owner's commands. Its other end is closed when the owner ends.
const CONTROL: i32 = 0;

/// No descriptor.
const NONE: i32 = -1;

/// How long to wait before all datagrams are sent again, in milliseconds. They are sent several times because
/// datagrams get lost, and a peer that misses them waits for ever. Responses go to the port of the dead
/// process, so this process does not see them. The last time is 15 seconds after the end.
const RESEND_AFTER: [i64; 6] = [50, 150, 800, 2_000, 4_000, 8_000];

/// How many descriptors are closed one by one on a system without `close_range`.
const SEARCHED: usize = 1 << 16;

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "and rsp, -16",
    "call {run}",
    run = sym run
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "mov x29, #0",
    "mov x30, #0",
    "bl {run}",
    run = sym run
);

#[cfg(target_arch = "riscv64")]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    ".weak __global_pointer$",
    ".option push",
    ".option norelax",
    "la gp, __global_pointer$",
    ".option pop",
    "call {run}",
    run = sym run
);

extern "C" fn run() -> ! {
    keep_only_control();
    let name = b"roci-watcher\0";
    const PR_SET_NAME: usize = 15;
    // SAFETY: the kernel reads the name up to its zero.
    unsafe { syscall(PRCTL, [PR_SET_NAME, name.as_ptr() as usize, 0, 0, 0]) };
    let mut descriptors = [NONE; MAX_DESCRIPTORS];
    while !is_owner_gone(&mut descriptors) {}
    if send_all(&descriptors) > 0 {
        for pause in RESEND_AFTER {
            // Without pauses all copies would get lost together.
            if wait(&mut [], Some(pause)).is_err() {
                break;
            }
            send_all(&descriptors);
        }
    }
    exit()
}

/// Closes every descriptor except the control socket.
fn keep_only_control() {
    let first = CONTROL as usize + 1;
    // SAFETY: takes no pointers.
    let closed = unsafe { syscall(CLOSE_RANGE, [first, u32::MAX as usize, 0, 0, 0]) };
    if closed < 0 {
        for descriptor in first..SEARCHED {
            close(descriptor as i32);
        }
    }
}

/// Waits for one event. Returns whether it is the end of the owner.
fn is_owner_gone(descriptors: &mut [i32; MAX_DESCRIPTORS]) -> bool {
    let mut set = [
        Poll::input(CONTROL),
        Poll::input(descriptors[OWNER as usize]),
    ];
    if wait(&mut set, None).is_err() {
        // A system call filter forbids it. The receive ends when the owner's end of the socket is closed.
        return !obey(descriptors, Receive::Blocking);
    }
    let [control, owner] = set;
    // The owner's last commands count, so they are read before its end is handled.
    if control.ready & POLLIN != 0 {
        return !obey(descriptors, Receive::Now);
    }
    control.ready != 0 || owner.ready != 0
}

/// Whether to wait for a command. The values are the flags of `recvmsg`.
#[derive(Clone, Copy)]
enum Receive {
    Blocking = 0,
    /// `MSG_DONTWAIT`.
    Now = 0x40,
}

/// Executes a command. Returns false if there are no more.
fn obey(descriptors: &mut [i32; MAX_DESCRIPTORS], receive: Receive) -> bool {
    let mut command: Command = 0;
    let mut descriptor = DescriptorMessage {
        length: 0,
        level: 0,
        kind: 0,
        descriptor: NONE,
        padding: 0,
    };
    let mut piece = Piece {
        base: (&raw mut command).cast(),
        length: size_of::<Command>(),
    };
    let mut header = Header {
        name: null(),
        name_length: 0,
        pieces: &raw mut piece,
        piece_count: 1,
        control: (&raw mut descriptor).cast(),
        control_length: size_of::<DescriptorMessage>(),
        flags: 0,
    };
    let arguments = [
        CONTROL as usize,
        (&raw mut header) as usize,
        receive as usize,
        0,
        0,
    ];
    // SAFETY: the header points to live variables with their sizes, which the kernel may write.
    let received = unsafe { syscall(RECVMSG, arguments) };
    if received <= 0 {
        return received == -EAGAIN || received == -EINTR;
    }
    let came_along = match header.control_length {
        0 => NONE,
        _ => descriptor.descriptor,
    };
    match descriptors.get_mut(command as usize) {
        Some(descriptor) => {
            close(*descriptor);
            *descriptor = came_along;
        }
        None => close(came_along),
    }
    true
}

/// Sends every datagram of the table. Returns how many there are.
fn send_all(descriptors: &[i32; MAX_DESCRIPTORS]) -> usize {
    let mut count = 0;
    let mut slot = MaybeUninit::<Slot>::uninit();
    let table = descriptors[TABLE as usize];
    for index in 0..MAX_SLOTS {
        let arguments = [
            table as usize,
            slot.as_mut_ptr() as usize,
            SLOT_LENGTH,
            index * SLOT_LENGTH,
            0,
        ];
        // SAFETY: the kernel writes at most the size of the live slot.
        if unsafe { syscall(PREAD, arguments) } != SLOT_LENGTH as isize {
            break;
        }
        // SAFETY: the call filled all of it, and its fields are numbers for which any bytes are valid.
        let slot = unsafe { slot.assume_init_ref() };
        if slot.payload_length != 0 {
            count += 1;
            send(slot, descriptors);
        }
    }
    count
}

fn send(slot: &Slot, descriptors: &[i32; MAX_DESCRIPTORS]) {
    let Some(&socket) = descriptors.get(slot.socket as usize) else {
        return;
    };
    let mut piece = Piece {
        base: slot.payload.as_ptr().cast_mut().cast(),
        length: (slot.payload_length as usize).min(PAYLOAD_LENGTH),
    };
    let control_length = (slot.control_length as usize).min(CONTROL_LENGTH);
    let header = Header {
        name: slot.name.as_ptr(),
        name_length: slot.name_length.min(NAME_LENGTH as u32),
        pieces: &raw mut piece,
        piece_count: 1,
        control: match control_length {
            0 => null_mut(),
            _ => slot.control.as_ptr().cast_mut(),
        },
        control_length,
        flags: 0,
    };
    const MSG_DONTWAIT_NOSIGNAL: usize = 0x4040;
    let arguments = [
        socket as usize,
        (&raw const header) as usize,
        MSG_DONTWAIT_NOSIGNAL,
        0,
        0,
    ];
    // SAFETY: the header points to the live slot and piece, with lengths inside of them. They are
    // only read. A datagram that can't be sent now is sent again later.
    unsafe { syscall(SENDMSG, arguments) };
}

fn close(descriptor: i32) {
    if descriptor != NONE {
        // SAFETY: takes no pointers.
        unsafe { syscall(CLOSE, [descriptor as usize, 0, 0, 0, 0]) };
    }
}

/// The system call can't be used.
struct Unavailable;

/// Waits until a descriptor is ready or the timeout, in milliseconds, ends.
fn wait(set: &mut [Poll], timeout: Option<i64>) -> Result<(), Unavailable> {
    let time = timeout.map(|milliseconds| [milliseconds / 1000, milliseconds % 1000 * 1_000_000]);
    let pointer = match &time {
        Some(time) => time.as_ptr() as usize,
        None => 0,
    };
    let arguments = [set.as_mut_ptr() as usize, set.len(), pointer, 0, 0];
    // SAFETY: the kernel writes to the entries of the live set; the time is null or a live timespec of
    // two words; a null mask is allowed.
    let result = unsafe { syscall(PPOLL, arguments) };
    if result < 0 && result != -EINTR {
        return Err(Unavailable);
    }
    Ok(())
}

fn exit() -> ! {
    loop {
        // SAFETY: takes no pointers and does not return.
        unsafe { syscall(EXIT_GROUP, [0; 5]) };
    }
}

const POLLIN: i16 = 1;
const EINTR: isize = 4;
const EAGAIN: isize = 11;

/// `struct pollfd`; a negative descriptor is never ready.
#[repr(C)]
struct Poll {
    descriptor: i32,
    wanted: i16,
    ready: i16,
}

impl Poll {
    fn input(descriptor: i32) -> Self {
        Self {
            descriptor,
            wanted: POLLIN,
            ready: 0,
        }
    }
}

/// `struct iovec`.
#[repr(C)]
struct Piece {
    base: *mut u8,
    length: usize,
}

/// `struct msghdr`, as 64-bit kernels read it.
#[repr(C)]
struct Header {
    name: *const u8,
    name_length: u32,
    pieces: *mut Piece,
    piece_count: usize,
    control: *mut u8,
    control_length: usize,
    flags: i32,
}

/// A control message that carries one descriptor.
#[repr(C)]
struct DescriptorMessage {
    length: usize,
    level: i32,
    kind: i32,
    descriptor: i32,
    padding: i32,
}

/// The compiler asks for these by name. `no_builtins` keeps the loops from becoming calls of themselves.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    for index in 0..count {
        // SAFETY: the caller promises `count` bytes that may be written.
        unsafe { to.add(index).write(byte as u8) };
    }
    to
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    for index in 0..count {
        // SAFETY: the caller promises `count` bytes on both sides.
        let byte = unsafe { from.add(index).read() };
        // SAFETY: the same.
        unsafe { to.add(index).write(byte) };
    }
    to
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit()
}

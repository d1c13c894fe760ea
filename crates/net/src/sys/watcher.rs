//! Starts the watcher: a process that is not a child of this one and holds none of its descriptors.
//!
//! The program must not notice it:
//!
//! - It is a static program of less than 3 KB without any library. The build script compiles it, and it is started from memory. A fork
//!   without `exec` would keep the owner's memory, and a process that shares the memory would be killed together with its owner when a core
//!   is dumped, before Linux 5.16.
//! - It starts with the first id of the connection manager, once per process, and not under a lane's lock.
//! - An intermediate process, which `wait` does not see, starts it and exits. It has its own session, blocks all signals and holds no
//!   descriptor of the program, so a pipe closes when the program ends.
//! - A forked child has no watcher until it creates connections of its own.

#[path = "watcher/program/layout.rs"]
pub(crate) mod layout;
#[cfg(test)]
mod tests;

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use super::signal::{Mask, restore};
use super::{check, file_size, process};
use layout::Command;

/// The program; empty if the build script could not compile it.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/watcher"));

/// Whether there is a program to start.
pub(crate) const fn is_built() -> bool {
    !PROGRAM.is_empty()
}

/// Absent from `libc`: the file may be executed, whatever the system's default is.
const MFD_EXEC: libc::c_uint = 0x10;

/// A file in memory.
pub(crate) fn table() -> io::Result<File> {
    memory_file(c"roci-exit-notices", libc::MFD_CLOEXEC)
}

/// The program in a file that can be executed.
pub(crate) fn program() -> io::Result<File> {
    let name = c"roci-watcher";
    let flags = libc::MFD_CLOEXEC;
    // Older kernels don't know the flag and need none.
    let mut file = match memory_file(name, flags | MFD_EXEC) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => memory_file(name, flags),
        result => result,
    }?;
    file_size::without_signal(|| file.write_all(PROGRAM))?;
    Ok(file)
}

fn memory_file(name: &std::ffi::CStr, flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: the name ends in zero and lives.
    let result = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    check(result)?;
    // SAFETY: the kernel just returned this descriptor, and it has no other owner.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(result) }))
}

/// A descriptor of this process, which is readable when the process has ended.
pub(crate) fn this_process() -> io::Result<OwnedFd> {
    process::descriptor(std::process::id())
}

/// Whether processes that lose their parent become children of this process.
pub(crate) fn adopts_orphans() -> bool {
    let mut subreaper: c_int = 0;
    // SAFETY: the kernel writes to the live integer.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut subreaper) };
    subreaper != 0 || std::process::id() == 1
}

/// A control message with one descriptor.
#[repr(C)]
struct DescriptorMessage {
    header: libc::cmsghdr,
    descriptor: RawFd,
}

/// Sends a command with a descriptor. Never waits.
pub(crate) fn send_command(
    control: BorrowedFd<'_>,
    command: Command,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut piece = libc::iovec {
        iov_base: (&raw const command).cast_mut().cast(),
        iov_len: size_of_val(&command),
    };
    // SAFETY: headers of zeros are valid: null pointers with length 0, and numbers.
    let (mut header, mut message): (libc::msghdr, DescriptorMessage) =
        unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    if let Some(descriptor) = descriptor {
        let length = std::mem::offset_of!(DescriptorMessage, descriptor) + size_of::<RawFd>();
        message.header.cmsg_len = length as _;
        message.header.cmsg_level = libc::SOL_SOCKET;
        message.header.cmsg_type = libc::SCM_RIGHTS;
        message.descriptor = descriptor.as_raw_fd();
        header.msg_control = (&raw mut message).cast();
        header.msg_controllen = size_of_val(&message) as _;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header points to the live piece and message with their sizes, and the piece to the
    // live command. They are only read.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sendmsg,
            control.as_raw_fd(),
            &raw const header,
            flags,
        )
    };
    check(result).map(drop)
}

/// The stack size in bytes: enough for the few calls of a process that only starts another one.
const STACK_LENGTH: usize = 32 << 10;

/// A stack, with an alignment that fits every architecture.
#[repr(C, align(64))]
struct Stack([u8; STACK_LENGTH]);

impl Stack {
    fn new() -> Box<Self> {
        Box::new(Self([0; STACK_LENGTH]))
    }

    /// Stacks grow downward.
    fn top(self: &mut Box<Self>) -> *mut c_void {
        self.0.as_mut_ptr_range().end.cast()
    }
}

/// What the two new processes do, and their result.
struct SpawnState {
    program: RawFd,
    control: RawFd,
    stack: *mut c_void,
    arguments: [*const libc::c_char; 2],
    /// The number of the error that kept the program from starting.
    error: AtomicI32,
}

/// New processes share this process's memory until they start another program, and this thread
/// waits for that. The exit signal 0 hides them from `wait`.
const CLONE_FLAGS: c_int = libc::CLONE_VM | libc::CLONE_VFORK;

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// `clone` by the name that ThreadSanitizer does not replace: it takes the new process for a fork with memory of its
    /// own, and then stops to look at this process, or ends it at the start of the next thread.
    #[link_name = "__clone"]
    fn clone(
        run: extern "C" fn(*mut c_void) -> c_int,
        stack: *mut c_void,
        flags: c_int,
        argument: *mut c_void,
        ...
    ) -> c_int;
}

#[cfg(not(target_env = "gnu"))]
use libc::clone;

/// Executes a program with this descriptor as its only one, number 0, in a session of its own and
/// with all signals blocked.
///
/// The program is not a child of this process, so a `wait` of the application never returns it:
/// this function starts a process that starts the program and ends.
pub(crate) fn spawn(program: BorrowedFd<'_>, control: BorrowedFd<'_>) -> io::Result<()> {
    let (mut first, mut second) = (Stack::new(), Stack::new());
    let plan = SpawnState {
        program: program.as_raw_fd(),
        control: control.as_raw_fd(),
        stack: second.top(),
        arguments: [c"roci-watcher".as_ptr(), ptr::null()],
        error: AtomicI32::new(0),
    };
    let argument = (&raw const plan).cast_mut().cast();
    // A handler must not run on a borrowed stack, not even one of the C library's own.
    let before = restore(Mask::ALL);
    // SAFETY: the function gets a pointer to the plan and a stack of its own; both live longer than
    // the process uses them, because CLONE_VFORK returns only when it has ended. It runs on this
    // thread's thread-local storage, which is not used by another thread meanwhile.
    let pid = unsafe { clone(start_and_end, first.top(), CLONE_FLAGS, argument) };
    let result = check(pid);
    restore(before);
    result?;
    reap(pid);
    match plan.error.load(Ordering::Acquire) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The first process: starts the second and ends.
extern "C" fn start_and_end(plan: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a pointer to its plan and waits.
    let shared = unsafe { &*plan.cast::<SpawnState>() };
    // SAFETY: as in `spawn`: another stack, the same plan, and this process waits.
    let pid = unsafe { clone(execute, shared.stack, CLONE_FLAGS, plan) };
    if pid < 0 {
        shared.fail();
    }
    0
}

/// The second process: executes the program. It has its own table of descriptors.
extern "C" fn execute(plan: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a pointer to its plan and waits.
    let plan = unsafe { &*plan.cast::<SpawnState>() };
    // SAFETY: takes no pointers. A signal to our process group must not end it.
    unsafe { libc::setsid() };
    // SAFETY: the path ends in zero. It must not keep a file system busy.
    unsafe { libc::chdir(c"/".as_ptr()) };
    // SAFETY: takes no pointers. The program must not be number 0, which is replaced next.
    let program = unsafe { libc::fcntl(plan.program, libc::F_DUPFD_CLOEXEC, 3) };
    // Either call makes number 0 a descriptor that stays open.
    let control = match plan.control {
        // SAFETY: takes no pointers.
        0 => unsafe { libc::fcntl(0, libc::F_SETFD, 0) },
        // SAFETY: takes no pointers.
        control => unsafe { libc::dup2(control, 0) },
    };
    if program >= 0 && control >= 0 {
        let environment = ptr::null::<*const libc::c_char>();
        // SAFETY: the path ends in zero, the arguments in null, and no environment is allowed. It
        // returns only if it fails.
        unsafe {
            libc::syscall(
                libc::SYS_execveat,
                program,
                c"".as_ptr(),
                plan.arguments.as_ptr(),
                &raw const environment,
                libc::AT_EMPTY_PATH,
            )
        };
    }
    plan.fail();
    0
}

impl SpawnState {
    fn fail(&self) {
        let error = io::Error::last_os_error().raw_os_error();
        self.error
            .store(error.unwrap_or(libc::EIO), Ordering::Release);
    }
}

/// Reaps a process that `wait` does not see.
fn reap(pid: libc::pid_t) {
    let nothing = ptr::null_mut::<c_void>();
    let wait = || {
        // SAFETY: null pointers for the status and the resources are allowed.
        unsafe { libc::syscall(libc::SYS_wait4, pid, nothing, libc::__WCLONE, nothing) }
    };
    while wait() < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {}
}

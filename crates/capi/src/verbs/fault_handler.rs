//! The signal handler for faults in copies of registered memory.
//!
//! It handles faults in our own copy instructions ([`program_memory`]) and passes on all others unchanged: to the
//! handler that the program had before, with the same mask, flags and context, or to the default action, with
//! the same core dump and exit status. A program that sets a handler later replaces it, and loses the
//! protection.

use std::ffi::{c_int, c_void};
use std::sync::{Once, OnceLock};

use super::program_memory;

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The actions for these signals before ours.
static FORMER: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; 2];

/// Installs the handler; once in a process.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        for (signal, former) in SIGNALS.into_iter().zip(&FORMER) {
            // Stored before the handler is installed: it may be called at once.
            let action = former.get_or_init(|| action_at(signal));
            set_action(signal, &handler_in_front_of(action));
        }
    });
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: an array of numbers, for which zero is valid.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: fills in the live set.
    unsafe { libc::sigemptyset(&raw mut set) };
    set
}

/// Our handler, with the mask and flags of the former one.
fn handler_in_front_of(former: &libc::sigaction) -> libc::sigaction {
    let mut action = *former;
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags &= !libc::SA_RESETHAND;
    action.sa_flags |= libc::SA_SIGINFO;
    if !is_function(former) {
        // Go's runtime requires it.
        action.sa_flags |= libc::SA_ONSTACK;
        action.sa_mask = no_signals();
    }
    action
}

fn is_function(action: &libc::sigaction) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
}

/// Makes only calls that are safe in a signal handler.
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a live structure to handlers with SA_SIGINFO.
    let by_the_kernel = unsafe { (*info).si_code } > 0;
    // SAFETY: the context that the kernel passed to this handler.
    if by_the_kernel && unsafe { program_memory::recover(context) } {
        return;
    }
    let position = SIGNALS.iter().position(|known| *known == signal);
    let Some(former) = position.and_then(|position| FORMER[position].get()) else {
        return;
    };
    match former.sa_sigaction {
        // Faults can't be ignored.
        libc::SIG_IGN if !by_the_kernel => {}
        libc::SIG_DFL | libc::SIG_IGN => end_by(signal, info),
        _ => call(former, signal, info, context),
    }
}

/// Calls the former handler.
fn call(former: &libc::sigaction, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if former.sa_flags & libc::SA_RESETHAND != 0 {
        set_action(signal, &default_action());
    }
    let handler = std::ptr::with_exposed_provenance::<()>(former.sa_sigaction);
    if former.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
        // SAFETY: the program registered it as a function of this type.
        let handler = unsafe { std::mem::transmute::<*const (), Handler>(handler) };
        // SAFETY: called as the kernel would.
        unsafe { handler(signal, info, context) };
    } else {
        type Handler = unsafe extern "C" fn(c_int);
        // SAFETY: as above.
        let handler = unsafe { std::mem::transmute::<*const (), Handler>(handler) };
        // SAFETY: as above.
        unsafe { handler(signal) };
    }
}

/// Raises the signal again with the default action.
fn end_by(signal: c_int, info: *mut libc::siginfo_t) {
    set_action(signal, &default_action());
    // SAFETY: takes no pointers.
    let process = unsafe { libc::syscall(libc::SYS_getpid) };
    // SAFETY: takes no pointers.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    // SAFETY: reads the structure that the kernel passed. The signal is blocked until the handler returns,
    // and then ends the process at the faulting instruction.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) };
}

fn default_action() -> libc::sigaction {
    // SAFETY: numbers and an optional function pointer, for which zero is valid; it means the default action.
    unsafe { std::mem::zeroed() }
}

fn action_at(signal: c_int) -> libc::sigaction {
    let mut action = default_action();
    // SAFETY: only queries, and writes to the live structure.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    action
}

fn set_action(signal: c_int, action: &libc::sigaction) {
    // SAFETY: reads a live structure. Its handler is a function of this library, which is never
    // unloaded, or none.
    unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) };
}

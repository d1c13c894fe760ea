//! The handler for faults in copies of the program's memory.
//!
//! It acts on faults in our own few instructions ([`foreign`]) and passes on all others as if it
//! were not there: to the handler that the program had before, under the same mask and flags and with
//! the same context, or to the default action, with the same core dump and exit status. A program that
//! sets a handler later replaces it, and so does without the protection.

use std::ffi::{c_int, c_void};
use std::sync::{Once, OnceLock};

use super::foreign;

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// What happened at these signals before.
static FORMER: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; 2];

/// Installs the handler; once in a process.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        for (signal, former) in SIGNALS.into_iter().zip(&FORMER) {
            // Known before the handler is there: it may be called at once.
            let action = former.get_or_init(|| action_at(signal));
            set_action(signal, &handler_in_front_of(action));
        }
    });
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: an array of numbers: zero is a value of all.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: fills in the live set.
    unsafe { libc::sigemptyset(&raw mut set) };
    set
}

/// Our handler, called under the conditions of the former one.
fn handler_in_front_of(former: &libc::sigaction) -> libc::sigaction {
    let mut action = *former;
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags &= !libc::SA_RESETHAND;
    action.sa_flags |= libc::SA_SIGINFO;
    if !is_function(former) {
        // Go's runtime asks for it; it costs nobody anything.
        action.sa_flags |= libc::SA_ONSTACK;
        action.sa_mask = no_signals();
    }
    action
}

fn is_function(action: &libc::sigaction) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
}

/// Only calls that are safe in a signal handler.
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives handlers with SA_SIGINFO a live structure.
    let by_the_kernel = unsafe { (*info).si_code } > 0;
    // SAFETY: the context that the kernel gave this handler.
    if by_the_kernel && unsafe { foreign::recover(context) } {
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

/// Calls the handler that was there before.
fn call(former: &libc::sigaction, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if former.sa_flags & libc::SA_RESETHAND != 0 {
        set_action(signal, &default_action());
    }
    let handler = std::ptr::with_exposed_provenance::<()>(former.sa_sigaction);
    if former.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
        // SAFETY: the program gave it to the kernel as a function of this kind.
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

/// Lets the signal come again where this one came, with the default action.
fn end_by(signal: c_int, info: *mut libc::siginfo_t) {
    set_action(signal, &default_action());
    // SAFETY: takes no pointers.
    let process = unsafe { libc::syscall(libc::SYS_getpid) };
    // SAFETY: takes no pointers.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    // SAFETY: reads the structure that the kernel gave. The signal is blocked until the handler
    // returns, and then ends the process at the instruction that failed.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) };
}

fn default_action() -> libc::sigaction {
    // SAFETY: numbers, a pointer-sized number and an optional function pointer: zero is a value of all,
    // and means the default action.
    unsafe { std::mem::zeroed() }
}

fn action_at(signal: c_int) -> libc::sigaction {
    let mut action = default_action();
    // SAFETY: asks only, and writes to the live structure.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    action
}

fn set_action(signal: c_int, action: &libc::sigaction) {
    // SAFETY: reads a live structure. Its handler is a function of this library, which is never
    // unloaded, or none.
    unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) };
}

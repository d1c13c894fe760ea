//! The runtime of ThreadSanitizer, in a program that was built with it. Its functions are looked up when they are
//! needed, so nothing is linked.

// Its functions come in fours, one for each length of a word.
#![allow(clippy::multiple_unsafe_ops_per_block)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem;
use std::ops::Range;
use std::ptr::{self, NonNull, without_provenance_mut};
use std::sync::OnceLock;

use super::signal::{self, Mask};

/// A switch to a fiber that orders nothing.
const NO_SYNC: c_uint = 1;

/// The memory orders of the atomic functions.
pub(crate) const ACQUIRE: c_int = 2;
pub(crate) const RELEASE: c_int = 3;
pub(crate) const ACQUIRE_RELEASE: c_int = 4;

/// How many calls of a stack are kept.
const MAX_CALLS: usize = 24;

type OfAddress = unsafe extern "C" fn(*mut c_void);
type OfRange = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);
type OfNothing = unsafe extern "C" fn();
type Load<T> = unsafe extern "C" fn(*const T, c_int) -> T;
type Change<T> = unsafe extern "C" fn(*mut T, T, c_int) -> T;

/// The functions of the runtime.
struct Runtime {
    ignore_begin: OfNothing,
    ignore_end: OfNothing,
    acquire: OfAddress,
    release: OfAddress,
    current_fiber: unsafe extern "C" fn() -> *mut c_void,
    create_fiber: unsafe extern "C" fn(c_uint) -> *mut c_void,
    destroy_fiber: OfAddress,
    switch_to_fiber: unsafe extern "C" fn(*mut c_void, c_uint),
    set_fiber_name: unsafe extern "C" fn(*mut c_void, *const c_char),
    read_range: OfRange,
    write_range: OfRange,
    enter_function: OfAddress,
    leave_function: OfNothing,
    load: (Load<u8>, Load<u16>, Load<u32>, Load<u64>),
    change: (Change<u8>, Change<u16>, Change<u32>, Change<u64>),
}

impl Runtime {
    fn find() -> Option<Self> {
        // SAFETY: the types are those that the interface of the runtime has for these names.
        unsafe {
            Some(Self {
                ignore_begin: function(c"__tsan_ignore_thread_begin")?,
                ignore_end: function(c"__tsan_ignore_thread_end")?,
                acquire: function(c"__tsan_acquire")?,
                release: function(c"__tsan_release")?,
                current_fiber: function(c"__tsan_get_current_fiber")?,
                create_fiber: function(c"__tsan_create_fiber")?,
                destroy_fiber: function(c"__tsan_destroy_fiber")?,
                switch_to_fiber: function(c"__tsan_switch_to_fiber")?,
                set_fiber_name: function(c"__tsan_set_fiber_name")?,
                read_range: function(c"__tsan_read_range_pc")?,
                write_range: function(c"__tsan_write_range_pc")?,
                enter_function: function(c"__tsan_func_entry")?,
                leave_function: function(c"__tsan_func_exit")?,
                load: (
                    function(c"__tsan_atomic8_load")?,
                    function(c"__tsan_atomic16_load")?,
                    function(c"__tsan_atomic32_load")?,
                    function(c"__tsan_atomic64_load")?,
                ),
                change: (
                    function(c"__tsan_atomic8_fetch_or")?,
                    function(c"__tsan_atomic16_fetch_or")?,
                    function(c"__tsan_atomic32_fetch_or")?,
                    function(c"__tsan_atomic64_fetch_or")?,
                ),
            })
        }
    }
}

/// A function of the program.
///
/// # Safety
///
/// `F` is the type of a pointer to the function of this name.
unsafe fn function<F>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: a text with its end.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: both are pointers, and the caller knows the type.
    (!found.is_null()).then(|| unsafe { mem::transmute_copy(&found) })
}

#[inline]
fn runtime() -> Option<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    RUNTIME.get_or_init(Runtime::find).as_ref()
}

/// Whether the program has the runtime.
#[inline]
pub(crate) fn is_present() -> bool {
    runtime().is_some()
}

/// Memory accesses of this thread are not looked at until [`stop_ignoring`]. Returns whether that is needed.
#[inline]
pub(crate) fn start_ignoring() -> bool {
    let Some(runtime) = runtime() else {
        return false;
    };
    // SAFETY: a counter of this thread.
    unsafe { (runtime.ignore_begin)() };
    true
}

/// Ends what [`start_ignoring`] has begun in this thread.
pub(crate) fn stop_ignoring() {
    if let Some(runtime) = runtime() {
        // SAFETY: the counter of this thread, which the caller has increased.
        unsafe { (runtime.ignore_end)() };
    }
}

/// What was released at an address is before what this thread does from now on. The address is memory of this process.
pub(crate) fn acquire(address: usize) {
    if let Some(runtime) = runtime() {
        // SAFETY: the runtime looks up what it knows of the address. It does not access the memory.
        unsafe { (runtime.acquire)(without_provenance_mut(address)) };
    }
}

/// What this thread has done is before what others do after they acquire the address. It is memory of this process.
pub(crate) fn release(address: usize) {
    if let Some(runtime) = runtime() {
        // SAFETY: as in `acquire`.
        unsafe { (runtime.release)(without_provenance_mut(address)) };
    }
}

/// Something that accesses memory concurrently with the threads, for the runtime.
#[derive(Debug)]
pub(crate) struct Fiber(NonNull<c_void>);

// SAFETY: a fiber belongs to no thread. `run` takes `&mut self`, so only one thread runs it.
unsafe impl Send for Fiber {}

impl Fiber {
    pub(crate) fn new(name: &CStr) -> Option<Self> {
        let runtime = runtime()?;
        // SAFETY: no flags are known.
        let created = NonNull::new(unsafe { (runtime.create_fiber)(0) })?;
        // SAFETY: the new fiber, and a text that is copied.
        unsafe { (runtime.set_fiber_name)(created.as_ptr(), name.as_ptr()) };
        Some(Self(created))
    }

    /// Does `work` as this fiber, after all that the thread has done if `follows`. The work only calls functions of
    /// this module. What this library does on the way to them is ignored: it uses the thread's stack, and a compiler may
    /// make calls of `memcpy` of it, which the runtime replaces.
    pub(crate) fn run(&mut self, follows: bool, work: impl FnOnce()) {
        let Some(runtime) = runtime() else { return };
        // A handler of the program would run as the fiber.
        let before = signal::restore(Mask::ALL);
        // SAFETY: the fiber of this thread; it is continued below, by the same thread.
        let own = unsafe { (runtime.current_fiber)() };
        // SAFETY: the fiber exists, and no other thread runs it.
        unsafe { (runtime.switch_to_fiber)(self.0.as_ptr(), if follows { 0 } else { NO_SYNC }) };
        // SAFETY: a counter of the fiber, which is decreased below.
        unsafe { (runtime.ignore_begin)() };
        work();
        // SAFETY: the counter of the fiber, and the fiber that this thread had.
        unsafe {
            (runtime.ignore_end)();
            (runtime.switch_to_fiber)(own, NO_SYNC);
        }
        signal::restore(before);
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        if let Some(runtime) = runtime() {
            // SAFETY: it exists, and no thread runs it.
            unsafe { (runtime.destroy_fiber)(self.0.as_ptr()) };
        }
    }
}

/// The fiber that runs reads or writes a range, in this stack of calls, innermost first.
pub(crate) fn access_range(range: &Range<u64>, writes: bool, calls: &[usize]) {
    let Some(runtime) = runtime() else { return };
    let (innermost, outer) = calls.split_first().unwrap_or((&0, &[]));
    let access = if writes {
        runtime.write_range
    } else {
        runtime.read_range
    };
    let length = (range.end - range.start) as usize;
    in_calls(runtime, outer, &|| {
        // SAFETY: the runtime notes the access and does not carry it out.
        unsafe {
            access(
                without_provenance_mut(range.start as usize),
                length,
                without_provenance_mut(*innermost),
            );
        }
    });
}

/// The fiber that runs loads a word atomically.
pub(crate) fn load_word(word: &Range<u64>, calls: &[usize]) {
    let Some(runtime) = runtime().filter(|_| is_writable(word.start)) else {
        return;
    };
    let at = ptr::with_exposed_provenance_mut::<c_void>(word.start as usize);
    let (load8, load16, load32, load64) = runtime.load;
    in_calls(runtime, calls, &|| {
        // SAFETY: an aligned word of memory that can be accessed, as was just seen. The program may change it
        // meanwhile, and so the access is atomic.
        unsafe {
            match word.end - word.start {
                1 => _ = load8(at.cast(), ACQUIRE),
                2 => _ = load16(at.cast(), ACQUIRE),
                4 => _ = load32(at.cast(), ACQUIRE),
                _ => _ = load64(at.cast(), ACQUIRE),
            }
        }
    });
}

/// The fiber that runs changes a word atomically. Its value stays.
pub(crate) fn change_word(word: &Range<u64>, order: c_int, calls: &[usize]) {
    let Some(runtime) = runtime().filter(|_| is_writable(word.start)) else {
        return;
    };
    let at = ptr::with_exposed_provenance_mut::<c_void>(word.start as usize);
    let (change8, change16, change32, change64) = runtime.change;
    in_calls(runtime, calls, &|| {
        // SAFETY: as in `load_word`. No bit is added.
        unsafe {
            match word.end - word.start {
                1 => _ = change8(at.cast(), 0, order),
                2 => _ = change16(at.cast(), 0, order),
                4 => _ = change32(at.cast(), 0, order),
                _ => _ = change64(at.cast(), 0, order),
            }
        }
    });
}

/// Does `access`, which is not ignored, as if these functions had called each other, innermost first.
fn in_calls(runtime: &Runtime, calls: &[usize], access: &dyn Fn()) {
    for call in calls.iter().rev() {
        // SAFETY: the runtime keeps the address until `leave_function`, and shows where in the program it is.
        unsafe { (runtime.enter_function)(without_provenance_mut(*call)) };
    }
    // SAFETY: `Fiber::run` has increased the counter.
    unsafe { (runtime.ignore_end)() };
    access();
    // SAFETY: as it was.
    unsafe { (runtime.ignore_begin)() };
    for _ in calls {
        // SAFETY: one for each `enter_function`.
        unsafe { (runtime.leave_function)() };
    }
}

/// Whether the word at an address can be written now. The system changes it atomically to the value that it has: a program
/// may have unmapped or protected its memory, and then it must not be accessed here.
fn is_writable(address: u64) -> bool {
    const OR_NOTHING_NEVER_EQUAL: c_int = libc::FUTEX_OP_OR << 28 | libc::FUTEX_OP_CMP_LT << 24;
    let nobody: u32 = 0;
    // SAFETY: nobody waits at the first word. The second one is accessed by the system, which checks it.
    let done = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const nobody,
            libc::FUTEX_WAKE_OP,
            0,
            ptr::null::<c_void>(),
            address & !3,
            OR_NOTHING_NEVER_EQUAL,
        )
    };
    done >= 0
}

/// The return addresses of this thread's calls outside of this library, innermost first.
pub(crate) fn calls() -> Vec<usize> {
    let mut found = Found {
        own: own_code(),
        calls: Vec::new(),
    };
    // SAFETY: the function gets the pointer below, while `found` lives.
    unsafe { _Unwind_Backtrace(note_frame, (&raw mut found).cast()) };
    found.calls
}

/// What [`note_frame`] collects.
struct Found {
    own: Range<usize>,
    calls: Vec<usize>,
}

const CONTINUE: c_int = 0;
const END: c_int = 5;

unsafe extern "C-unwind" {
    fn _Unwind_Backtrace(
        note: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

extern "C" fn note_frame(context: *mut c_void, found: *mut c_void) -> c_int {
    // SAFETY: `calls` has given it, and nobody else uses it meanwhile.
    let found = unsafe { &mut *found.cast::<Found>() };
    // SAFETY: the context of the frame.
    let call = unsafe { _Unwind_GetIP(context) };
    let is_own = found.calls.is_empty() && found.own.contains(&call);
    if call == 0 || found.calls.len() >= MAX_CALLS {
        return END;
    }
    if !is_own {
        found.calls.push(call);
    }
    CONTINUE
}

/// Where this library is, if it is not a part of the program itself.
fn own_code() -> Range<usize> {
    static OWN: OnceLock<Range<usize>> = OnceLock::new();
    let find = || {
        let mut own = 0..0;
        // SAFETY: the function gets the pointer that is given here, before this returns.
        unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut own).cast()) };
        own
    };
    OWN.get_or_init(find).clone()
}

unsafe extern "C" fn look_at(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    own: *mut c_void,
) -> c_int {
    // SAFETY: the loader describes an object, and `own_code` has given the pointer to its range.
    let (info, own) = unsafe { (&*info, &mut *own.cast::<Range<usize>>()) };
    // The first object is the program.
    if own.end == 0 {
        *own = 1..1;
        return 0;
    }
    // SAFETY: the headers of the object.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let here = own_code as *const () as usize;
    let code = headers.iter().filter(|it| it.p_type == libc::PT_LOAD);
    let mut code = code.map(|it| {
        let start = info.dlpi_addr as usize + it.p_vaddr as usize;
        start..start + it.p_memsz as usize
    });
    match code.find(|range| range.contains(&here)) {
        Some(found) => {
            *own = found;
            1
        }
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_writable_as_long_as_it_is_mapped_so_and_keeps_its_value() {
        let word = 7_u64;
        assert!(is_writable((&raw const word).addr() as u64));
        assert_eq!(word, 7);
        let text = c"read only";
        assert!(!is_writable(text.as_ptr().addr() as u64));
        assert!(!is_writable(16));
    }

    #[test]
    fn a_program_without_the_runtime_does_nothing() {
        assert!(!is_present());
        assert!(!start_ignoring());
        assert!(Fiber::new(c"nobody").is_none());
    }

    #[test]
    fn the_calls_begin_in_the_program() {
        assert!(!calls().is_empty());
    }
}

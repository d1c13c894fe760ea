//! What ThreadSanitizer is told, in a program that was built with `-fsanitize=thread`. In other programs nothing is done.
//!
//! ThreadSanitizer knows what instrumented code does, and which functions of the C library any code calls. This library
//! is not instrumented: it would see that one thread frees what another one has copied, and not the lock that orders the two. So
//! the accesses of our code are [not looked at](Unobserved), and instead it is told what the device does with the
//! memory of the program.

use std::ffi::CString;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

use crate::sys::thread_sanitizer as runtime;

/// What the program does before a call is before what it, or the device, does after a later one.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Whether the program was built with ThreadSanitizer.
#[inline]
#[must_use]
pub fn is_present() -> bool {
    runtime::is_present()
}

/// While it exists, accesses of this thread are not looked at.
#[derive(Debug)]
pub struct Unobserved {
    is_needed: bool,
}

impl Unobserved {
    /// Begins at once.
    #[inline]
    #[must_use]
    pub fn begin() -> Self {
        Self {
            is_needed: runtime::start_ignoring(),
        }
    }
}

impl Drop for Unobserved {
    #[inline]
    fn drop(&mut self) {
        if self.is_needed {
            runtime::stop_ignoring();
        }
    }
}

/// Ends the innermost [`Unobserved`] of this thread, which is never dropped.
pub(crate) fn end_unobserved() {
    runtime::stop_ignoring();
}

/// The address where calls [begin and end](begin_call).
#[must_use]
pub fn calls_address() -> usize {
    (&raw const CALLS).addr()
}

/// A call begins that is neither a post nor a poll: what the thread has done may be told to others by it.
#[inline]
pub fn begin_call() {
    if is_present() {
        runtime::release(calls_address());
    }
}

/// Such a call ends: the thread may have learned what others have done before theirs.
#[inline]
pub fn end_call() {
    if is_present() {
        runtime::acquire(calls_address());
    }
}

/// A call that is neither a post nor a poll.
#[derive(Debug)]
pub struct OrderedCall(());

impl OrderedCall {
    /// Begins at once.
    #[inline]
    #[must_use]
    pub fn begin() -> Self {
        begin_call();
        Self(())
    }
}

impl Drop for OrderedCall {
    #[inline]
    fn drop(&mut self) {
        end_call();
    }
}

/// What was released at an address of this process is before what the thread or the fiber does from now on.
pub fn acquire(address: usize) {
    runtime::acquire(address);
}

/// What the thread or the fiber has done is before what others do after they acquire the address, which is one of this process.
pub fn release(address: usize) {
    runtime::release(address);
}

/// Something that accesses memory concurrently with the threads.
#[derive(Debug)]
pub struct Fiber(runtime::Fiber);

impl Fiber {
    /// A fiber of this name; `None` without ThreadSanitizer.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let name = CString::new(name).ok()?;
        runtime::Fiber::new(&name).map(Self)
    }

    /// Does `work` as this fiber, after all that the thread has done if `follows`. The work only calls
    /// functions of this module.
    pub fn run(&mut self, follows: bool, work: impl FnOnce()) {
        self.0.run(follows, work);
    }
}

/// The fiber reads bytes, in this stack of [`calls`].
pub fn read(range: &Range<u64>, calls: &[usize]) {
    runtime::access_range(range, false, calls);
}

/// The fiber writes bytes.
pub fn write(range: &Range<u64>, calls: &[usize]) {
    runtime::access_range(range, true, calls);
}

/// The fiber reads an aligned word at once: what was released there is before what follows.
pub fn load_word(word: &Range<u64>, calls: &[usize]) {
    runtime::load_word(word, calls);
}

/// The fiber writes an aligned word at once, and releases what was done before.
pub fn store_word(word: &Range<u64>, calls: &[usize]) {
    runtime::change_word(word, runtime::RELEASE, calls);
}

/// The fiber reads and writes an aligned word at once.
pub fn change_word(word: &Range<u64>, calls: &[usize]) {
    runtime::change_word(word, runtime::ACQUIRE_RELEASE, calls);
}

/// The calls of the program that led here, innermost first; none without ThreadSanitizer.
#[must_use]
pub fn calls() -> Vec<usize> {
    if is_present() {
        runtime::calls()
    } else {
        Vec::new()
    }
}

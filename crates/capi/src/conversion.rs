//! Arguments and return values of C functions, and the guard that keeps a panic from C.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) use abi::Polled;
use net::thread_sanitizer::Unobserved;

use crate::errno::Errno;
use crate::interruption::Uncancelled;

/// An argument as C passes it.
pub(crate) trait FromC: Sized {
    /// What C passes.
    type Raw;

    /// Converts it.
    ///
    /// # Safety
    /// A pointer must be what the header of the C function says: null, or to a live object of that type that
    /// no other thread changes in a way that the header forbids.
    unsafe fn from_c(raw: Self::Raw) -> Result<Self, Errno>;
}

/// A return value for C.
pub(crate) trait ToC {
    /// The value that reports a failure. Sets `errno` where the type needs it.
    fn failure(errno: Errno) -> Self;
}

/// 0, or -1 with `errno` set: the convention of system calls.
#[repr(transparent)]
pub(crate) struct MinusOne(pub(crate) c_int);

impl MinusOne {
    pub(crate) const DONE: Self = Self(0);
}

/// A count, or -1 with `errno` set.
#[repr(transparent)]
pub(crate) struct CountOrMinusOne(pub(crate) isize);

/// A count, or a negative error number.
#[repr(transparent)]
pub(crate) struct CountOrErrno(pub(crate) isize);

impl ToC for c_int {
    fn failure(errno: Errno) -> Self {
        errno.set();
        errno.0
    }
}

impl ToC for MinusOne {
    fn failure(errno: Errno) -> Self {
        errno.set();
        Self(-1)
    }
}

impl ToC for CountOrMinusOne {
    fn failure(errno: Errno) -> Self {
        errno.set();
        Self(-1)
    }
}

impl ToC for CountOrErrno {
    fn failure(errno: Errno) -> Self {
        errno.set();
        Self(-(errno.0 as isize))
    }
}

impl ToC for Polled {
    fn failure(errno: Errno) -> Self {
        errno.set();
        Self(-errno.0)
    }
}

macro_rules! zero_on_failure {
    ($($type:ty)*) => {
        $(impl ToC for $type {
            fn failure(_: Errno) -> Self {
                0
            }
        })*
    };
}

zero_on_failure!(u8 u16 u32 u64);

impl<T> ToC for *mut T {
    fn failure(errno: Errno) -> Self {
        errno.set();
        std::ptr::null_mut()
    }
}

impl<T> ToC for *const T {
    fn failure(errno: Errno) -> Self {
        errno.set();
        std::ptr::null()
    }
}

impl ToC for () {
    fn failure(errno: Errno) -> Self {
        errno.set();
    }
}

macro_rules! passed_by_value {
    ($($type:ty)*) => {
        $(impl FromC for $type {
            type Raw = Self;

            #[inline]
            unsafe fn from_c(raw: Self) -> Result<Self, Errno> {
                Ok(raw)
            }
        })*
    };
}

passed_by_value!(u8 u16 u32 u64 usize c_int i64 *mut c_void *const c_void);

/// A pointer that the function checks itself.
pub(crate) struct Pointer<T>(pub(crate) *mut T);

impl<T> FromC for Pointer<T> {
    type Raw = *mut T;

    #[inline]
    unsafe fn from_c(raw: *mut T) -> Result<Self, Errno> {
        Ok(Self(raw))
    }
}

/// An input structure, copied.
pub(crate) struct Input<T>(pub(crate) T);

impl<T: Copy> FromC for Input<T> {
    type Raw = *mut T;

    #[inline]
    unsafe fn from_c(raw: *mut T) -> Result<Self, Errno> {
        if raw.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: not null, so by the caller's promise a live structure.
        Ok(Self(unsafe { raw.read() }))
    }
}

/// An output parameter. Some functions read it first.
pub(crate) struct Output<T>(*mut T);

impl<T> Output<T> {
    /// Writes it.
    pub(crate) fn put(&mut self, value: T) {
        // SAFETY: not null, so by the promise at `from_c` memory for one value, which no other thread uses
        // during this call.
        unsafe { self.0.write(value) };
    }

    /// Changes a part of it.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut T)) {
        // SAFETY: as for `put`, and the caller has initialized what is changed in part.
        change(unsafe { &mut *self.0 });
    }

    /// The pointer itself, for functions that write a part of it.
    pub(crate) fn pointer(&self) -> *mut T {
        self.0
    }
}

impl<T: Copy> Output<T> {
    /// Its current content.
    pub(crate) fn get(&self) -> T {
        // SAFETY: as for `change`.
        unsafe { self.0.read() }
    }
}

impl<T> FromC for Output<T> {
    type Raw = *mut T;

    #[inline]
    unsafe fn from_c(raw: *mut T) -> Result<Self, Errno> {
        if raw.is_null() {
            Err(Errno::INVALID)
        } else {
            Ok(Self(raw))
        }
    }
}

/// Runs the body of a call; a panic must not reach C.
#[inline]
pub(crate) fn guard<R: ToC>(inside: impl FnOnce() -> Result<R, Errno>) -> R {
    let _uncancelled = Uncancelled::begin();
    let _unobserved = Unobserved::begin();
    // Unwind safety: a panic is a bug of ours; the locks recover from it, and the program gets EFAULT.
    match catch_unwind(AssertUnwindSafe(inside)) {
        Ok(Ok(result)) => result,
        Ok(Err(errno)) => R::failure(errno),
        Err(_) => R::failure(Errno::FAULT),
    }
}

/// Runs one step of a blocking call; `None` if it has to wait longer.
pub(crate) fn guard_wait<R: ToC>(inside: impl FnOnce() -> Result<Option<R>, Errno>) -> Option<R> {
    let mut waits = false;
    let result = guard(|| match inside() {
        Ok(Some(result)) => Ok(result),
        Ok(None) => {
            waits = true;
            Err(Errno::TRY_AGAIN)
        }
        Err(errno) => Err(errno),
    });
    (!waits).then_some(result)
}

//! The door: every call from C comes through here.
//!
//! [`entry!`] turns an ordinary function, whose arguments are references and numbers and whose
//! outcome is a `Result`, into one that C can call: it guards against panics, converts the
//! arguments, and tells a failure in the way that the function's return type stands for.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::errno::Errno;
use crate::interruption::Uncancelled;

/// An argument as C passes it.
pub(crate) trait FromC: Sized {
    /// What C passes.
    type Raw;

    /// Makes sense of it.
    ///
    /// # Safety
    /// A pointer must be what the header of the C function says: null, or to a live object of that
    /// type that nobody else changes in a way that the header forbids.
    unsafe fn from_c(raw: Self::Raw) -> Result<Self, Errno>;
}

/// What C gets back.
pub(crate) trait ToC {
    /// What stands for a failure.
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

/// The number of completions, or a negative one.
#[repr(transparent)]
pub(crate) struct Polled(pub(crate) c_int);

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

macro_rules! zero_if_it_fails {
    ($($type:ty)*) => {
        $(impl ToC for $type {
            fn failure(_: Errno) -> Self {
                0
            }
        })*
    };
}

zero_if_it_fails!(u8 u16 u32 u64);

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

macro_rules! passed_as_they_are {
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

passed_as_they_are!(u8 u16 u32 u64 usize c_int i64 *mut c_void *const c_void);

/// A pointer that is looked at later.
pub(crate) struct Pointer<T>(pub(crate) *mut T);

impl<T> FromC for Pointer<T> {
    type Raw = *mut T;

    #[inline]
    unsafe fn from_c(raw: *mut T) -> Result<Self, Errno> {
        Ok(Self(raw))
    }
}

/// A structure that C has filled in, copied.
pub(crate) struct Given<T>(pub(crate) T);

impl<T: Copy> FromC for Given<T> {
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

/// A place that C wants filled in.
pub(crate) struct Place<T>(*mut T);

impl<T> Place<T> {
    /// Fills it in.
    pub(crate) fn put(&mut self, value: T) {
        // SAFETY: not null, so by the promise at `from_c` a place for one value; C gave it up for
        // this call.
        unsafe { self.0.write(value) };
    }

    /// Fills in a part of it.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut T)) {
        // SAFETY: as for `put`, and what is changed in part was filled in by the caller before.
        change(unsafe { &mut *self.0 });
    }

    /// Where it is, for who fills in a part of it by hand.
    pub(crate) fn pointer(&self) -> *mut T {
        self.0
    }
}

impl<T: Copy> Place<T> {
    /// What is there now.
    pub(crate) fn get(&self) -> T {
        // SAFETY: as for `change`.
        unsafe { self.0.read() }
    }
}

impl<T> FromC for Place<T> {
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

/// Runs the inside of a call; a panic must not reach C.
#[inline]
pub(crate) fn guard<R: ToC>(inside: impl FnOnce() -> Result<R, Errno>) -> R {
    let _uncancelled = Uncancelled::begin();
    // Unwind safety: what a panic leaves behind is what a bug of ours leaves behind; the locks
    // recover from it, and the program gets to know.
    match catch_unwind(AssertUnwindSafe(inside)) {
        Ok(Ok(result)) => result,
        Ok(Err(errno)) => R::failure(errno),
        Err(_) => R::failure(Errno::FAULT),
    }
}

/// Runs a part of a call that waits; nothing if it has to wait longer.
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

/// Defines functions that C can call.
///
/// `export fn` makes it a symbol of the library, under a private name that the table of symbols
/// gives its public name and version; `op fn` is reached through a pointer in a structure. `wait fn`
/// is exported, too, and called again and again while it gives nothing; its first argument is an object
/// around an `Arc`, which it waits at.
macro_rules! entry {
    () => {};
    ($(#[$meta:meta])* wait fn $name:ident(
        $place:ident: &$object:ty $(, $arg:ident: $type:ty)* $(,)?
    ) -> MinusOne
        $body:block $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[unsafe(export_name = concat!("roci_", stringify!($name)))]
        pub(crate) unsafe extern "C" fn $name(
            $place: <&$object as $crate::entry::FromC>::Raw,
            $($arg: <$type as $crate::entry::FromC>::Raw),*
        ) -> $crate::entry::MinusOne {
            $crate::waiting::wait(
                || {
                    // SAFETY: who calls from C promises what the header says of its arguments.
                    let object = unsafe { <&$object as $crate::entry::FromC>::from_c($place) }?;
                    Ok(std::sync::Arc::clone(object))
                },
                |$place| {
                    $(
                        // SAFETY: as above.
                        let $arg = unsafe { <$type as $crate::entry::FromC>::from_c($arg) }?;
                    )*
                    $body
                },
            )
        }
        $crate::entry::entry!($($rest)*);
    };
    ($(#[$meta:meta])* export fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)?
        $body:block $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[unsafe(export_name = concat!("roci_", stringify!($name)))]
        pub(crate) unsafe extern "C" fn $name(
            $($arg: <$type as $crate::entry::FromC>::Raw),*
        ) $(-> $out)? {
            $crate::entry::entry!(@inside ($($arg: $type),*) $body)
        }
        $crate::entry::entry!($($rest)*);
    };
    ($(#[$meta:meta])* op fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)?
        $body:block $($rest:tt)*
    ) => {
        $(#[$meta])*
        pub(crate) unsafe extern "C" fn $name(
            $($arg: <$type as $crate::entry::FromC>::Raw),*
        ) $(-> $out)? {
            $crate::entry::entry!(@inside ($($arg: $type),*) $body)
        }
        $crate::entry::entry!($($rest)*);
    };
    (@inside ($($arg:ident: $type:ty),*) $body:block) => {
        $crate::entry::guard(|| {
            $(
                // SAFETY: who calls from C promises what the header says of its arguments.
                let $arg = unsafe { <$type as $crate::entry::FromC>::from_c($arg) }?;
            )*
            $body
        })
    };
}

pub(crate) use entry;

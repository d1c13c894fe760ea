//! The original functions of the C library.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library, looked up at its first call.
pub(crate) struct Real {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Its address; null if this C library has no such function.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    /// If two threads look it up at once, both find the same address.
    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name is a string, and this library is before the C library in the search order.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls the function of this name that comes after this library: that of the C library or of librdmacm. A row is
/// its declaration and the arguments.
macro_rules! next {
    ($name:literal: ($($type:ty),*) -> $result:ty; $($argument:expr),*) => {{
        static NEXT: $crate::original_functions::Real =
            $crate::original_functions::Real::new($name);
        type Function = unsafe extern "C" fn($($type),*) -> $result;
        let address = NEXT.address();
        if address.is_null() {
            $crate::original_functions::missing::<$result>()
        } else {
            // SAFETY: the function of this name has this declaration.
            let function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Function>(address) };
            // SAFETY: the caller's promises.
            unsafe { function($($argument),*) }
        }
    }};
}

pub(crate) use next;

/// The return value of a function that fails.
pub(crate) trait Failure {
    const FAILURE: Self;
}

impl Failure for c_int {
    const FAILURE: Self = -1;
}

impl Failure for isize {
    const FAILURE: Self = -1;
}

impl Failure for *mut c_void {
    const FAILURE: Self = ptr::null_mut();
}

impl Failure for *mut c_char {
    const FAILURE: Self = ptr::null_mut();
}

/// The result of a function that this C library doesn't have: `ENOSYS`.
#[cold]
pub(crate) fn missing<T: Failure>() -> T {
    // SAFETY: the address of this thread's error number, which is always there.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *errno = libc::ENOSYS };
    T::FAILURE
}

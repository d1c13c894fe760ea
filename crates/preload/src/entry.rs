//! The functions that replace those of the C library.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;

use libc::{mode_t, size_t, ssize_t};

use crate::corrected_results::{as_in_sysfs, outside};
use crate::counter_files;
use crate::original_functions::{Real, missing};
use crate::path_redirects;
use crate::rsocket::{self, table};

/// Defines one function for each row. A row is the C declaration, with `=>` before the path, and at the
/// end the function that corrects the result for a redirected path.
macro_rules! interposed {
    ($(fn $name:ident(
        $($before:ident: $before_type:ty,)* => $path:ident $(, $after:ident: $after_type:ty)*
    ) -> $result:ty $(=> $finish:ident)?;)+) => {$(
        /// # Safety
        /// The requirements of the function of this name in the C library.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            $($before: $before_type,)* $path: *const c_char $(, $after: $after_type)*
        ) -> $result {
            type Function = unsafe extern "C" fn(
                $($before_type,)* *const c_char $(, $after_type)*
            ) -> $result;
            static REAL: Real = Real::new(name(concat!(stringify!($name), "\0")));
            let address = REAL.address();
            if address.is_null() {
                return missing();
            }
            // SAFETY: the function of this name, whose declaration the row repeats.
            let real = unsafe { transmute::<*mut c_void, Function>(address) };
            // SAFETY: the caller's promises, with whatever path.
            let call = |$path| unsafe { real($($before,)* $path $(, $after)*) };
            // SAFETY: a text, or something for which the caller expects an error.
            let redirected = unsafe { path_redirects::is_shown($path) };
            let result = if redirected {
                // SAFETY: it begins like a path of ours, so it is a text.
                unsafe { path_redirects::take($path, call) }
            } else {
                call($path)
            };
            $(
                // SAFETY: the path is what the caller passed, and the result what the function returned.
                let result = unsafe { $finish(result, $path, redirected) };
            )?
            result
        }
    )+};
}

const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends with its only zero"),
    }
}

// Structures are passed on and never read, so any pointer type is correct.
//
// The mode is optional in C. On 64-bit Linux a variadic number is passed in the same register as a fixed one. If the
// caller left it out, an arbitrary value is passed on, and the C library does not read it.
// Compilers call the names with underscores instead of the plain ones: for checked sizes, and in programs that
// were linked before version 2.33 of the C library.
interposed! {
    fn open(=> path, flags: c_int, mode: mode_t) -> c_int => as_in_sysfs;
    fn open64(=> path, flags: c_int, mode: mode_t) -> c_int => as_in_sysfs;
    fn openat(directory: c_int, => path, flags: c_int, mode: mode_t) -> c_int => as_in_sysfs;
    fn openat64(directory: c_int, => path, flags: c_int, mode: mode_t) -> c_int => as_in_sysfs;
    fn __open_2(=> path, flags: c_int) -> c_int => as_in_sysfs;
    fn __open64_2(=> path, flags: c_int) -> c_int => as_in_sysfs;
    fn __openat_2(directory: c_int, => path, flags: c_int) -> c_int => as_in_sysfs;
    fn __openat64_2(directory: c_int, => path, flags: c_int) -> c_int => as_in_sysfs;
    fn fopen(=> path, mode: *const c_char) -> *mut c_void => as_in_sysfs;
    fn fopen64(=> path, mode: *const c_char) -> *mut c_void => as_in_sysfs;

    fn stat(=> path, result: *mut c_void) -> c_int;
    fn stat64(=> path, result: *mut c_void) -> c_int;
    fn lstat(=> path, result: *mut c_void) -> c_int;
    fn lstat64(=> path, result: *mut c_void) -> c_int;
    fn fstatat(directory: c_int, => path, result: *mut c_void, flags: c_int) -> c_int;
    fn fstatat64(directory: c_int, => path, result: *mut c_void, flags: c_int) -> c_int;
    fn __xstat(version: c_int, => path, result: *mut c_void) -> c_int;
    fn __xstat64(version: c_int, => path, result: *mut c_void) -> c_int;
    fn __lxstat(version: c_int, => path, result: *mut c_void) -> c_int;
    fn __lxstat64(version: c_int, => path, result: *mut c_void) -> c_int;
    fn __fxstatat(
        version: c_int, directory: c_int, => path, result: *mut c_void, flags: c_int
    ) -> c_int;
    fn __fxstatat64(
        version: c_int, directory: c_int, => path, result: *mut c_void, flags: c_int
    ) -> c_int;
    fn statx(
        directory: c_int, => path, flags: c_int, mask: c_uint, result: *mut c_void
    ) -> c_int;

    fn access(=> path, mode: c_int) -> c_int;
    fn eaccess(=> path, mode: c_int) -> c_int;
    fn euidaccess(=> path, mode: c_int) -> c_int;
    fn faccessat(directory: c_int, => path, mode: c_int, flags: c_int) -> c_int;

    fn readlink(=> path, buffer: *mut c_char, size: size_t) -> ssize_t;
    fn readlinkat(directory: c_int, => path, buffer: *mut c_char, size: size_t) -> ssize_t;
    fn __readlink_chk(=> path, buffer: *mut c_char, size: size_t, room: size_t) -> ssize_t;
    fn __readlinkat_chk(
        directory: c_int, => path, buffer: *mut c_char, size: size_t, room: size_t
    ) -> ssize_t;
    fn realpath(=> path, resolved: *mut c_char) -> *mut c_char => outside;
    fn __realpath_chk(=> path, resolved: *mut c_char, room: size_t) -> *mut c_char => outside;
    fn canonicalize_file_name(=> path) -> *mut c_char => outside;

    fn opendir(=> path) -> *mut c_void;
    fn scandir(
        => path, list: *mut c_void, choose: *const c_void, compare: *const c_void
    ) -> c_int;
    fn scandir64(
        => path, list: *mut c_void, choose: *const c_void, compare: *const c_void
    ) -> c_int;

    fn chdir(=> path) -> c_int;
    fn getxattr(=> path, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t;
    fn lgetxattr(=> path, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t;
    fn listxattr(=> path, list: *mut c_char, size: size_t) -> ssize_t;
    fn llistxattr(=> path, list: *mut c_char, size: size_t) -> ssize_t;
}

/// Defines one function for each row that reads from a descriptor. A row is the C declaration, where the read begins if
/// the caller says it, and what reads from an rsocket.
macro_rules! reading {
    ($(fn $name:ident($($argument:ident: $type:ty),+)
        $(from $offset:ident)? $(or $of_rsocket:ident($($passed:ident),+))?;)+) => {$(
        /// # Safety
        /// The requirements of the function of this name in the C library.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(descriptor: c_int $(, $argument: $type)+) -> ssize_t {
            $(if let Some(number) = table::socket(descriptor) {
                // SAFETY: the caller's promises.
                return unsafe { rsocket::$of_rsocket(number, $($passed),+) };
            })?
            type Function = unsafe extern "C" fn(c_int $(, $type)+) -> ssize_t;
            static REAL: Real = Real::new(name(concat!(stringify!($name), "\0")));
            let address = REAL.address();
            if address.is_null() {
                return missing();
            }
            #[allow(unused_mut, unused_assignments, reason = "only some rows have an offset")]
            let mut offset: Option<i64> = None;
            $(offset = Some($offset);)?
            counter_files::before_read(descriptor, offset);
            // SAFETY: the function of this name, whose declaration the row repeats.
            let real = unsafe { transmute::<*mut c_void, Function>(address) };
            // SAFETY: the caller's promises.
            unsafe { real(descriptor $(, $argument)+) }
        }
    )+};
}

reading! {
    fn read(buffer: *mut c_void, size: size_t) or read(buffer, size);
    fn __read_chk(buffer: *mut c_void, size: size_t, room: size_t) or read_checked(buffer, size, room);
    fn pread(buffer: *mut c_void, size: size_t, at: i64) from at;
    fn pread64(buffer: *mut c_void, size: size_t, at: i64) from at;
    fn __pread_chk(buffer: *mut c_void, size: size_t, at: i64, room: size_t) from at;
    fn __pread64_chk(buffer: *mut c_void, size: size_t, at: i64, room: size_t) from at;
}

//! Corrects results of redirected calls where the tree's files behave differently from the kernel's.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use crate::{counter_files, path_redirects};

/// An open file: a descriptor or a `FILE *`.
pub(crate) trait Opened: Copy {
    /// Its descriptor; `None` if the call failed.
    fn descriptor(self) -> Option<c_int>;

    /// Closes it, and returns this descriptor instead.
    ///
    /// # Safety
    /// It is open and not shared. The descriptor is open and belongs to the caller.
    unsafe fn replace(self, by: c_int) -> Self;
}

impl Opened for c_int {
    fn descriptor(self) -> Option<c_int> {
        (self >= 0).then_some(self)
    }

    unsafe fn replace(self, by: c_int) -> Self {
        // SAFETY: the caller's promise.
        unsafe { libc::close(self) };
        by
    }
}

/// A `FILE *`.
impl Opened for *mut c_void {
    fn descriptor(self) -> Option<c_int> {
        if self.is_null() {
            return None;
        }
        // SAFETY: not null, so what `fopen` returned.
        Some(unsafe { libc::fileno(self.cast()) })
    }

    unsafe fn replace(self, by: c_int) -> Self {
        // SAFETY: the caller's promise.
        unsafe { libc::fclose(self.cast()) };
        // SAFETY: an open descriptor and a text.
        let file = unsafe { libc::fdopen(by, c"r".as_ptr()) };
        if file.is_null() {
            // SAFETY: it was not moved out.
            unsafe { libc::close(by) };
        }
        file.cast()
    }
}

/// Makes an opened file behave as in sysfs: counters are live, and empty attributes can't be read.
///
/// # Safety
/// The path is null, in the first page, or a text with a zero at its end; the result is new.
pub(crate) unsafe fn as_in_sysfs<T: Opened>(opened: T, path: *const c_char, redirected: bool) -> T {
    // An absolute path that is not redirected is not in the tree.
    // SAFETY: the caller's promise.
    if !redirected && !unsafe { path_redirects::is_relative(path) } {
        return opened;
    }
    // SAFETY: as above.
    if unsafe { counter_files::may_be_counter(path) } {
        if let Some(descriptor) = opened.descriptor() {
            counter_files::make_live(descriptor);
        }
        return opened;
    }
    // SAFETY: as above: a path that is relative or redirected is a text.
    unsafe { rejecting_empty(opened, path) }
}

/// In sysfs, reading the attributes of an empty GID fails with `EINVAL`. In the tree they are empty files, whose
/// descriptor is replaced by one that fails in the same way.
///
/// # Safety
/// The path is a text with a zero at its end; the result is new.
unsafe fn rejecting_empty<T: Opened>(opened: T, path: *const c_char) -> T {
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    let Some(descriptor) = opened.descriptor() else {
        return opened;
    };
    if !ends_with_number(path.to_bytes())
        || !is_empty_file(descriptor)
        || !counter_files::is_in_tree(descriptor, names_attribute)
    {
        return opened;
    }
    // Reading from an epoll descriptor fails with `EINVAL`. The system call is made directly, because another preloaded
    // library may have replaced the C library's function.
    // SAFETY: it takes only a flag.
    let made = unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) };
    let unreadable = made as c_int;
    if unreadable < 0 {
        return opened;
    }
    // SAFETY: the result is new, so it is not shared; the descriptor is ours.
    unsafe { opened.replace(unreadable) }
}

/// Attributes are named after the indexes of GIDs.
fn ends_with_number(path: &[u8]) -> bool {
    path.last().is_some_and(u8::is_ascii_digit)
}

fn names_attribute(path: &[u8]) -> bool {
    const DIRECTORY: &[u8] = b"/gid_attrs/";
    path.windows(DIRECTORY.len()).any(|part| part == DIRECTORY)
}

fn is_empty_file(descriptor: c_int) -> bool {
    // SAFETY: numbers, for which zero is a value.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a live structure for the result; the kernel checks the descriptor.
    let known = unsafe { libc::fstat(descriptor, &raw mut found) } == 0;
    known && found.st_mode & libc::S_IFMT == libc::S_IFREG && found.st_size == 0
}

/// A resolved path without the tree's own path before it.
///
/// # Safety
/// The resolved path is null or a text that may be changed.
pub(crate) unsafe fn outside(
    resolved: *mut c_char,
    _path: *const c_char,
    redirected: bool,
) -> *mut c_char {
    if resolved.is_null() || !redirected {
        return resolved;
    }
    // SAFETY: not null, so a text.
    let text = unsafe { CStr::from_ptr(resolved) }.to_bytes_with_nul();
    if let Some(rest) = path_redirects::behind_tree(text) {
        // SAFETY: the end of the same text, with its zero, moved to its beginning.
        unsafe { ptr::copy(rest.as_ptr().cast(), resolved, rest.len()) };
    }
    resolved
}

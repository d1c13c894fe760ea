//! Redirects paths of device files to the tree that `roci run` wrote.

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::path_resolution::{REDIRECTED_PREFIXES, Walk};

/// The environment variable that names the tree.
const VARIABLE: &CStr = c"ROCI_TREE";

/// Nothing is mapped below this address. Programs that probe the kernel pass such pointers.
const FIRST_PAGE: usize = 4096;

/// Whether a path is redirected.
///
/// # Safety
/// The pointer is that of a text with a zero at its end, or lies in the first page.
#[inline]
pub(crate) unsafe fn is_shown(path: *const c_char) -> bool {
    if path.addr() < FIRST_PAGE {
        return false;
    }
    REDIRECTED_PREFIXES.iter().any(|prefix| {
        // SAFETY: not in the first page, so a text.
        unsafe { begins_with(path, prefix) }
    })
}

/// Whether a path is relative.
///
/// # Safety
/// The pointer is that of a text with a zero at its end, or lies in the first page.
#[inline]
pub(crate) unsafe fn is_relative(path: *const c_char) -> bool {
    // SAFETY: not in the first page, so a text.
    path.addr() >= FIRST_PAGE && !unsafe { begins_with(path, b"/") }
}

/// Whether a text begins with `prefix`. Reads up to the first byte that differs.
///
/// # Safety
/// The pointer is that of a text with a zero at its end.
#[inline]
unsafe fn begins_with(path: *const c_char, prefix: &[u8]) -> bool {
    prefix.iter().enumerate().all(|(index, &wanted)| {
        // SAFETY: all bytes before this one are equal to bytes that are not zero, so that the
        // text has at least one more byte.
        let byte = unsafe { path.add(index) };
        // SAFETY: as above.
        let byte = unsafe { *byte };
        byte as u8 == wanted
    })
}

/// Calls the function with the redirected path, or with the path itself if there is no tree or the path can't be
/// resolved.
///
/// # Safety
/// The pointer is that of a text with a zero at its end.
#[cold]
#[inline(never)]
pub(crate) unsafe fn take<T>(path: *const c_char, call: impl FnOnce(*const c_char) -> T) -> T {
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(path) };
    let mut walk = Walk::new();
    match tree().and_then(|tree| walk.resolve(tree.to_bytes(), text.to_bytes())) {
        Some(elsewhere) => call(elsewhere.as_ptr()),
        None => call(path),
    }
}

/// The part of a path after the tree's own path; `None` if it is not in the tree.
pub(crate) fn behind_tree(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(tree()?.to_bytes())?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// The tree's directory, as the environment named it at the first use.
pub(crate) fn tree() -> Option<&'static CStr> {
    /// Null before the first use.
    static TREE: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
    let mut known = TREE.load(Ordering::Acquire);
    if known.is_null() {
        known = named_by_environment();
        TREE.store(known, Ordering::Release);
    }
    // SAFETY: never null, see below, and a text that is never freed.
    let tree = unsafe { CStr::from_ptr(known) };
    tree.to_bytes().starts_with(b"/").then_some(tree)
}

/// A copy, because a program may change its environment. If two threads copy it at once, one copy leaks. An empty
/// string means that there is no tree.
fn named_by_environment() -> *mut c_char {
    const NONE: &CStr = c"";
    // SAFETY: the name is a text. As for every function that reads the environment, no other thread
    // may be changing it; this is the first look at a device, which programs take early.
    let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    if value.is_null() {
        return NONE.as_ptr().cast_mut();
    }
    // SAFETY: `getenv` returned a text.
    let copy = unsafe { libc::strdup(value) };
    if copy.is_null() {
        NONE.as_ptr().cast_mut()
    } else {
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &CStr) -> bool {
        // SAFETY: a text.
        unsafe { is_shown(path.as_ptr()) }
    }

    #[test]
    fn device_files_are_shown_and_others_are_not() {
        for path in [
            c"/dev/infiniband",
            c"/dev/infiniband/uverbs0",
            c"/sys/class/infiniband/rxe0/ports/1/gids/0",
            c"/sys/class/infiniband_verbs/uverbs0/ibdev",
            c"/sys/class/misc/rdma_cm/abi_version",
            c"/sys/devices/pci5243:00/5243:00:00.0/class",
        ] {
            assert!(shown(path), "{path:?}");
        }
        for path in [
            c"",
            c"/",
            c"/dev/infiniban",
            c"/dev/null",
            c"/sys/class/net/lo",
            c"/sys/class/misc",
            c"/sys/devices/pci0000:00",
            c"dev/infiniband",
            c"/proc/sys/class/infiniband",
        ] {
            assert!(!shown(path), "{path:?}");
        }
    }

    #[test]
    fn addresses_in_the_first_page_are_not_read() {
        for address in [0, 1, FIRST_PAGE - 1] {
            // SAFETY: in the first page.
            assert!(!unsafe { is_shown(ptr::without_provenance(address)) });
        }
    }
}

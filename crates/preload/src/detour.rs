//! Which paths lead elsewhere, and where.

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Paths that begin like this are looked for in the tree. The second one stands for all classes of
/// RDMA devices, such as `infiniband_verbs`.
const SHOWN: [&[u8]; 2] = [b"/dev/infiniband", b"/sys/class/infiniband"];

/// The environment variable that names the tree.
const VARIABLE: &CStr = c"ROCI_TREE";

/// The longest path that the kernel takes, with its zero.
const LONGEST: usize = libc::PATH_MAX as usize;

/// Nothing is mapped below; programs that probe the kernel pass such pointers.
const FIRST_PAGE: usize = 4096;

/// Whether a path is one of those that are shown elsewhere.
///
/// # Safety
/// The pointer is that of a text with a zero at its end, or lies in the first page.
#[inline]
pub(crate) unsafe fn is_shown(path: *const c_char) -> bool {
    if path.addr() < FIRST_PAGE {
        return false;
    }
    SHOWN.iter().any(|beginning| {
        // SAFETY: not in the first page, so a text.
        unsafe { begins_with(path, beginning) }
    })
}

/// Reads no further than to the first letter that differs.
///
/// # Safety
/// The pointer is that of a text with a zero at its end.
#[inline]
unsafe fn begins_with(path: *const c_char, beginning: &[u8]) -> bool {
    beginning.iter().enumerate().all(|(index, &wanted)| {
        // SAFETY: all letters before this one are equal to ones that are not zero, so that the
        // text has at least one more byte.
        let letter = unsafe { path.add(index) };
        // SAFETY: as above.
        let letter = unsafe { *letter };
        letter.cast_unsigned() == wanted
    })
}

/// Calls with the path that a shown one stands for; with the path itself if there is no tree.
///
/// # Safety
/// The pointer is that of a text with a zero at its end.
#[cold]
#[inline(never)]
pub(crate) unsafe fn take<T>(path: *const c_char, call: impl FnOnce(*const c_char) -> T) -> T {
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(path) };
    let mut buffer = [0; LONGEST];
    match tree().and_then(|tree| join(tree, text, &mut buffer)) {
        Some(elsewhere) => call(elsewhere.as_ptr()),
        None => call(path),
    }
}

/// The folder before the path; none if that gets too long, or if the path would leave the folder.
fn join<'b>(tree: &CStr, path: &CStr, buffer: &'b mut [u8; LONGEST]) -> Option<&'b CStr> {
    let (tree, path) = (tree.to_bytes(), path.to_bytes_with_nul());
    if path.windows(3).any(|three| three == b"/..") {
        return None;
    }
    let whole = buffer.get_mut(..tree.len() + path.len())?;
    let (front, rest) = whole.split_at_mut_checked(tree.len())?;
    front.copy_from_slice(tree);
    rest.copy_from_slice(path);
    CStr::from_bytes_with_nul(whole).ok()
}

/// The folder, as the environment named it when it was asked for first.
fn tree() -> Option<&'static CStr> {
    /// Null as long as nobody asked.
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

/// A copy, because a program may change its environment; two threads at once leave one too many.
/// An empty text stands for no folder.
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
    match copy.is_null() {
        true => NONE.as_ptr().cast_mut(),
        false => copy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &CStr) -> bool {
        // SAFETY: a text.
        unsafe { is_shown(path.as_ptr()) }
    }

    fn joined(tree: &CStr, path: &CStr) -> Option<String> {
        let mut buffer = [0; LONGEST];
        let path = join(tree, path, &mut buffer)?;
        Some(path.to_str().expect("plain text").to_owned())
    }

    #[test]
    fn device_files_are_shown_and_others_are_not() {
        for path in [
            c"/dev/infiniband",
            c"/dev/infiniband/uverbs0",
            c"/sys/class/infiniband/rxe0/ports/1/gids/0",
            c"/sys/class/infiniband_verbs/uverbs0/ibdev",
        ] {
            assert!(shown(path), "{path:?}");
        }
        for path in [
            c"",
            c"/",
            c"/dev/infiniban",
            c"/dev/null",
            c"/sys/class/net/lo",
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

    #[test]
    fn the_tree_stands_before_the_path() {
        let path = joined(c"/run/tree", c"/dev/infiniband/uverbs0");
        assert_eq!(path.as_deref(), Some("/run/tree/dev/infiniband/uverbs0"));
    }

    #[test]
    fn a_path_that_leaves_the_tree_or_is_too_long_stays_as_it_is() {
        assert_eq!(joined(c"/run", c"/sys/class/infiniband/../net"), None);
        assert_eq!(joined(c"/run", c"/sys/class/infiniband/.."), None);
        let long = format!("/dev/infiniband/{}\0", "x".repeat(LONGEST - 20));
        let long = CStr::from_bytes_with_nul(long.as_bytes()).expect("one zero");
        assert_eq!(joined(c"/run", long), None);
        assert!(joined(c"", long).is_some());
    }
}

//! Keeps this library in `LD_PRELOAD` when a program sets the variable for other purposes.
//!
//! `ROCI_PRELOAD`, which `roci run` sets, lists the libraries to keep. A program can still unset `LD_PRELOAD` or
//! `ROCI_PRELOAD`.

use std::ffi::{CStr, c_char};

pub(crate) const VARIABLE: &CStr = c"LD_PRELOAD";
pub(crate) const KEPT: &CStr = c"ROCI_PRELOAD";

/// The maximum length of a list. Nothing is allocated, because a child between `fork` and `exec` must not allocate.
const LONGEST: usize = 8192;

/// The maximum number of variables in an environment.
const MOST: usize = 2048;

/// The buffer for a changed list.
pub(crate) struct List([u8; LONGEST]);

impl List {
    pub(crate) const fn new() -> Self {
        Self([0; LONGEST])
    }

    /// `theirs` with ours in front, after `name` and `=` if given. `None` if nothing changes: theirs is empty or has
    /// ours, or the result would be too long.
    pub(crate) fn compose(&mut self, name: &[u8], ours: &[u8], theirs: &[u8]) -> Option<&CStr> {
        let shim = ours.split(|byte| *byte == b':').next()?;
        if theirs.is_empty() || shim.is_empty() || has(theirs, shim) {
            return None;
        }
        let equals: &[u8] = if name.is_empty() { b"" } else { b"=" };
        let mut end = 0;
        for part in [name, equals, ours, b":", theirs, b"\0"] {
            let place = self.0.get_mut(end..end + part.len())?;
            place.copy_from_slice(part);
            end += part.len();
        }
        CStr::from_bytes_until_nul(&self.0).ok()
    }
}

fn has(list: &[u8], entry: &[u8]) -> bool {
    let mut entries = list.split(|byte| b": ".contains(byte));
    entries.any(|it| it == entry)
}

/// Calls a function with an environment that keeps our libraries.
///
/// # Safety
/// The environment is null or an array of texts with a null pointer at its end.
pub(crate) unsafe fn with_ours<T>(
    environment: *const *const c_char,
    call: impl FnOnce(*const *const c_char) -> T,
) -> T {
    let mut list = List::new();
    // SAFETY: the caller's promise.
    let changed = unsafe { change(environment, &mut list) };
    let Some((place, changed)) = changed else {
        return call(environment);
    };
    let mut variables = [std::ptr::null(); MOST];
    for (index, variable) in variables.iter_mut().enumerate() {
        // SAFETY: up to the null pointer at the end, where the loop ends.
        let theirs = unsafe { environment.wrapping_add(index).read() };
        if theirs.is_null() {
            return call(variables.as_ptr());
        }
        *variable = if index == place { changed } else { theirs };
    }
    // More variables than fit.
    call(environment)
}

/// The variable to replace and its new value; `None` if nothing changes.
///
/// # Safety
/// As for [`with_ours`].
unsafe fn change(
    environment: *const *const c_char,
    list: &mut List,
) -> Option<(usize, *const c_char)> {
    // SAFETY: the caller's promise.
    let (_, ours) = unsafe { find(environment, KEPT) }?;
    // SAFETY: as above.
    let (place, theirs) = unsafe { find(environment, VARIABLE) }?;
    let changed = list.compose(VARIABLE.to_bytes(), ours, theirs)?;
    Some((place, changed.as_ptr()))
}

/// The index of a variable and its value.
///
/// # Safety
/// As for [`with_ours`].
unsafe fn find<'e>(environment: *const *const c_char, name: &CStr) -> Option<(usize, &'e [u8])> {
    if environment.is_null() {
        return None;
    }
    let mut place = 0;
    loop {
        // SAFETY: up to the null pointer at the end, where the loop ends.
        let variable = unsafe { environment.wrapping_add(place).read() };
        if variable.is_null() {
            return None;
        }
        // SAFETY: a text, by the caller's promise.
        let variable = unsafe { CStr::from_ptr(variable) }.to_bytes();
        let value = variable.strip_prefix(name.to_bytes());
        if let Some(value) = value.and_then(|rest| rest.strip_prefix(b"=")) {
            return Some((place, value));
        }
        place += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    const OURS: &str = "ROCI_PRELOAD=/o/shim.so:/o/libibverbs.so.1";

    fn kept(environment: &[&str]) -> Vec<String> {
        let texts = environment.iter().map(|text| CString::new(*text));
        let texts: Vec<CString> = texts.collect::<Result<_, _>>().expect("texts");
        let mut pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let read = |mut variable: *const *const c_char| {
            let mut all = Vec::new();
            loop {
                // SAFETY: an array of texts with a null pointer at its end.
                let text = unsafe { variable.read() };
                if text.is_null() {
                    return all;
                }
                // SAFETY: as above.
                let text = unsafe { CStr::from_ptr(text) };
                all.push(text.to_string_lossy().into_owned());
                variable = variable.wrapping_add(1);
            }
        };
        // SAFETY: as above.
        unsafe { with_ours(pointers.as_ptr(), read) }
    }

    #[test]
    fn a_list_that_lacks_ours_gets_it_in_front() {
        let environment = kept(&["A=1", "LD_PRELOAD=/x.so", OURS, "B=2"]);
        let list = "LD_PRELOAD=/o/shim.so:/o/libibverbs.so.1:/x.so";
        assert_eq!(environment, ["A=1", list, OURS, "B=2"]);
    }

    #[test]
    fn a_list_with_ours_or_a_removed_list_is_unchanged() {
        for environment in [
            &["LD_PRELOAD=/x.so /o/shim.so", OURS][..],
            &["LD_PRELOAD=", OURS],
            &["A=1", OURS],
            &["LD_PRELOAD=/x.so"],
            &["LD_PRELOAD=/x.so", "ROCI_PRELOAD="],
            &[],
        ] {
            assert_eq!(kept(environment), environment);
        }
    }

    #[test]
    fn a_list_that_is_too_long_is_unchanged() {
        let long = format!("LD_PRELOAD=/{}", "x".repeat(LONGEST));
        assert_eq!(kept(&[&long, OURS]), [&long, OURS]);
        let many = vec!["A=1"; MOST];
        let many = [&many[..], &["LD_PRELOAD=/x.so", OURS]].concat();
        assert_eq!(kept(&many), many);
    }
}

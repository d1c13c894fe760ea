//! The functions that start programs, and those that change the environment: both keep this library in
//! `LD_PRELOAD`.

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::pid_t;

use crate::ld_preload::{self, List, with_ours};
use crate::original_functions::next;

type Texts = *const *const c_char;

unsafe extern "C" {
    static environ: Texts;
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn execve(path: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    let call = |environment| next!(c"execve": (*const c_char, Texts, Texts) -> c_int; path, arguments, environment);
    // SAFETY: an environment.
    unsafe { with_ours(environment, call) }
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(name: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    let call = |environment| next!(c"execvpe": (*const c_char, Texts, Texts) -> c_int; name, arguments, environment);
    // SAFETY: an environment.
    unsafe { with_ours(environment, call) }
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the caller's promises. As for every use of the environment, no other thread may be
    // changing it.
    unsafe { execve(path, arguments, environ) }
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(name: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: as above.
    unsafe { execvpe(name, arguments, environ) }
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(file: c_int, arguments: Texts, environment: Texts) -> c_int {
    let call = |environment| next!(c"fexecve": (c_int, Texts, Texts) -> c_int; file, arguments, environment);
    // SAFETY: an environment.
    unsafe { with_ours(environment, call) }
}

/// Defines `posix_spawn` and `posix_spawnp`, which differ in how they find the program.
macro_rules! spawning {
    ($($name:ident = $text:literal),+) => {$(
        /// # Safety
        /// The requirements of the function of this name in the C library.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            process: *mut pid_t,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: Texts,
            environment: Texts,
        ) -> c_int {
            let call = |environment| next!($text: (*mut pid_t, *const c_char, *const c_void, *const c_void, Texts, Texts) -> c_int; process, path, actions, attributes, arguments, environment);
            // SAFETY: an environment.
            unsafe { with_ours(environment, call) }
        }
    )+};
}

spawning!(posix_spawn = c"posix_spawn", posix_spawnp = c"posix_spawnp");

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn setenv(name: *const c_char, value: *const c_char, replace: c_int) -> c_int {
    let call = |value| next!(c"setenv": (*const c_char, *const c_char, c_int) -> c_int; name, value, replace);
    if name.is_null() || value.is_null() {
        return call(value);
    }
    // SAFETY: not null, so a text.
    if unsafe { CStr::from_ptr(name) } != ld_preload::VARIABLE {
        return call(value);
    }
    // SAFETY: not null, so a text.
    let theirs = unsafe { CStr::from_ptr(value) };
    let mut list = List::new();
    call(kept(&mut list, theirs).map_or(value, CStr::as_ptr))
}

/// # Safety
/// The requirements of the function of this name in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn putenv(variable: *mut c_char) -> c_int {
    if !variable.is_null() {
        // SAFETY: not null, so a text.
        let text = unsafe { CStr::from_ptr(variable) };
        let value = text.to_bytes_with_nul().strip_prefix(b"LD_PRELOAD=");
        if let Some(Ok(value)) = value.map(CStr::from_bytes_with_nul) {
            // SAFETY: two texts. A copy of the second becomes part of the environment.
            return unsafe { setenv(ld_preload::VARIABLE.as_ptr(), value.as_ptr(), 1) };
        }
    }
    next!(c"putenv": (*mut c_char) -> c_int; variable)
}

fn kept<'l>(list: &'l mut List, theirs: &CStr) -> Option<&'l CStr> {
    // SAFETY: the name is a text; no other thread may be changing the environment meanwhile.
    let ours = unsafe { libc::getenv(ld_preload::KEPT.as_ptr()) };
    if ours.is_null() {
        return None;
    }
    // SAFETY: `getenv` returned a text.
    let ours = unsafe { CStr::from_ptr(ours) };
    list.compose(b"", ours.to_bytes(), theirs.to_bytes())
}

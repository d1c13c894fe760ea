//! Calls about the process and the system: fork, sysfs.

use std::ffi::{c_char, c_int, c_void};

use super::device_list::text_of;
use crate::abi;
use crate::entry::{FromC, MinusOne, Pointer, entry};
use crate::errno::Errno;

entry! {
    /// Nothing to do: a child has its own copy of all memory, and no device.
    export fn ibv_fork_init() -> c_int {
        Ok(0)
    }

    export fn ibv_is_fork_initialized() -> c_int {
        Ok(abi::IBV_FORK_UNNEEDED)
    }

    export fn ibv_dontfork_range(_start: *mut c_void, _length: usize) -> c_int {
        Ok(0)
    }

    export fn ibv_dofork_range(_start: *mut c_void, _length: usize) -> c_int {
        Ok(0)
    }

    export fn ibv_get_sysfs_path() -> *const c_char {
        Ok(c"/sys".as_ptr())
    }

    /// The content of a file, without the newline at its end; its length, or -1.
    export fn ibv_read_sysfs_file(
        directory: *const c_char,
        file: *const c_char,
        into: Pointer<c_char>,
        size: usize,
    ) -> MinusOne {
        let directory = text_of(directory).ok_or(Errno::INVALID)?;
        let file = text_of(file).ok_or(Errno::INVALID)?;
        let mut content = std::fs::read(format!("{directory}/{file}"))?;
        content.truncate(size);
        if content.last() == Some(&b'\n') {
            content.pop();
        }
        let length = content.len();
        if length < size {
            content.push(0);
        }
        // SAFETY: the program says that it has `size` bytes, and these are not more.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr().cast(), into.0, content.len()) };
        Ok(MinusOne(length as c_int))
    }
}

impl FromC for *const c_char {
    type Raw = Self;

    unsafe fn from_c(raw: Self) -> Result<Self, Errno> {
        Ok(raw)
    }
}

//! Finds the functions of libcuda in a program that has loaded it.

use std::ffi::{CStr, c_void};

/// libcuda, as the program has loaded it. It stays loaded.
pub(crate) struct Library(*mut c_void);

impl Library {
    /// The library, or `None` if the program has not loaded it.
    pub(crate) fn of_the_program() -> Option<Self> {
        let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD;
        // SAFETY: the name ends with a zero byte. Nothing is loaded, so no constructor runs.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), flags) };
        (!handle.is_null()).then_some(Self(handle))
    }

    /// The address of a function.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open, and the name ends with a zero byte.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

/// Defines `Functions`, a table of functions with their prototypes of `cuda.h`, and how to find them.
macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// The functions of libcuda that are called. All of them return an error number.
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> std::ffi::c_int,)*
        }

        impl Functions {
            /// `None` if the library lacks one.
            fn find(library: &$crate::loader::Library) -> Option<Self> {
                Some(Self {
                    $($name: {
                        let address = library.symbol($symbol)?;
                        type Function = unsafe extern "C" fn($($argument),*) -> std::ffi::c_int;
                        // SAFETY: the address is that of the function with this name, which has this prototype in
                        // `cuda.h`; an address of a function is as large as one of data.
                        unsafe { std::mem::transmute::<*mut std::ffi::c_void, Function>(address) }
                    },)*
                })
            }
        }
    };
}

pub(crate) use functions;

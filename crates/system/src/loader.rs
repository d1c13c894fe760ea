//! Loading a library of C at run time, and finding its functions.

use std::ffi::{CStr, c_void};

/// Why the system's libraries can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// The library is not installed, or one of its own libraries is missing.
    #[error(
        "{library} can't be loaded: {reason}; install rdma-core (on Debian: `apt install {package}`)"
    )]
    Missing {
        /// The library.
        library: &'static str,
        /// What to install on Debian.
        package: &'static str,
        /// What the loader says.
        reason: String,
    },
    /// The library lacks a function.
    #[error("the system's library has no function `{0}`; install a newer rdma-core")]
    Incomplete(&'static str),
    /// The library is the one of this project, which has software devices only.
    #[error(
        "the libibverbs and librdmacm of this process are Rocinante's own, which have no devices of the system; start the \
         program without `roci run`"
    )]
    Ours,
}

/// A library, and the package of Debian that has it.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    /// The name of the file, with the version of its interface.
    pub(crate) file: &'static CStr,
    pub(crate) library: &'static str,
    pub(crate) package: &'static str,
}

impl Name {
    /// The file of a library that tests use in place of the system's, under this name.
    pub(crate) fn stand_in(self) -> Option<Self> {
        #[cfg(any(test, feature = "fixture"))]
        let file = crate::fixture::stand_in_library();
        #[cfg(not(any(test, feature = "fixture")))]
        let file = None;
        file.map(|file| Self { file, ..self })
    }
}

/// A loaded library. It is never unloaded: providers keep threads and pointers into it.
pub(crate) struct Handle(*mut c_void);

impl Handle {
    pub(crate) fn open(name: Name) -> Result<Self, LibraryError> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
        // SAFETY: the name ends with a zero byte. Constructors of the library run; those of rdma-core and of ours do
        // nothing that this program relies on.
        let handle = unsafe { libc::dlopen(name.file.as_ptr(), flags) };
        if handle.is_null() {
            return Err(LibraryError::Missing {
                library: name.library,
                package: name.package,
                reason: last_error(),
            });
        }
        Ok(Self(handle))
    }

    /// The address of a function, in this library or in one that it needs.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open, and the name ends with a zero byte.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

/// What the loader said last.
fn last_error() -> String {
    // SAFETY: the result is null, or a text that stays until the next call of the loader in this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: not null, so a text that ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// A function that has the type of a field of a table of functions.
pub(crate) trait Function: Sized {
    /// # Safety
    /// The address must be that of a function of this type.
    unsafe fn at(address: *mut c_void) -> Self;
}

/// Defines `Functions`, a table of the functions that are called by name, and how to find them.
macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of the library that are called by name.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            fn find(library: &$crate::loader::Handle) -> Result<Self, $crate::loader::LibraryError> {
                use $crate::loader::{Function, LibraryError};
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        let name = std::ffi::CStr::from_bytes_with_nul(name.as_bytes());
                        let address = name.ok().and_then(|name| library.symbol(name));
                        let address = address.ok_or(LibraryError::Incomplete(stringify!($name)))?;
                        // SAFETY: the address is that of the function with this name, whose prototype in the header is the
                        // type of the field; a test compares the structures with the headers.
                        unsafe { <unsafe extern "C" fn($($argument),*) -> $result>::at(address) }
                    },)*
                })
            }

            /// A library for tests, which replace what they call. All else ends the process.
            #[cfg(test)]
            #[allow(dead_code, reason = "not the tests of every library use it")]
            pub(super) const MISSING: Self = Self {
                $($name: {
                    unsafe extern "C" fn missing($(_: $argument),*) -> $result {
                        panic!(concat!(stringify!($name), " is not replaced"))
                    }
                    missing
                },)*
            };
        }
    };
}

pub(crate) use functions;

macro_rules! function_types {
    ($($($letter:ident)*;)*) => {
        $(impl<R, $($letter),*> Function for unsafe extern "C" fn($($letter),*) -> R {
            unsafe fn at(address: *mut c_void) -> Self {
                // SAFETY: by the caller's promise; a function pointer has the size of an address.
                unsafe { std::mem::transmute::<*mut c_void, Self>(address) }
            }
        })*
    };
}

function_types! {
    ;
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_the_package() {
        let name = Name {
            file: c"libibverbs-of-nobody.so.1",
            library: "libibverbs",
            package: "libibverbs1",
        };
        let error = Handle::open(name).err().expect("it does not exist");
        let text = error.to_string();
        assert!(text.contains("libibverbs-of-nobody.so.1"), "{text}");
        assert!(text.contains("apt install libibverbs1"), "{text}");
    }
}

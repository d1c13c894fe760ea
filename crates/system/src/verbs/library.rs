//! libibverbs, loaded when the first device is opened.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use abi::{
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_gid,
    ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
};

use super::error::LibraryError;

/// The name of the library, with the version of its interface.
const NAME: &CStr = c"libibverbs.so.1";

/// A function of librdmacm. rdma-core has it in another library; ours has all functions in one.
const OF_CONNECTION_MANAGER: &CStr = c"rdma_create_id";

/// A function that has the type of a field of [`Functions`].
trait Function: Sized {
    /// # Safety
    /// The address must be that of a function of this type.
    unsafe fn at(address: *mut c_void) -> Self;
}

macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of the library that are called by name.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            fn find(library: &Handle) -> Result<Self, LibraryError> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        let address = library.symbol(name).ok_or(LibraryError::Incomplete(stringify!($name)))?;
                        // SAFETY: the address is that of the function with this name, whose prototype in `verbs.h` is the
                        // type of the field; a test compares the structures with the header.
                        unsafe { <unsafe extern "C" fn($($argument),*) -> $result>::at(address) }
                    },)*
                })
            }
        }
    };
}

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
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
}

functions! {
    ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list(*mut *mut ibv_device) -> ();
    ibv_get_device_name(*mut ibv_device) -> *const c_char;
    ibv_open_device(*mut ibv_device) -> *mut ibv_context;
    ibv_close_device(*mut ibv_context) -> c_int;
    ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    ibv_query_gid(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
    ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibv_dereg_mr(*mut ibv_mr) -> c_int;
    ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibv_destroy_cq(*mut ibv_cq) -> c_int;
    ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events(*mut ibv_cq, u32) -> ();
    ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ibv_ack_async_event(*mut ibv_async_event) -> ();
    ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_destroy_qp(*mut ibv_qp) -> c_int;
    ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_query_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
}

/// The loaded library. It is never unloaded: providers keep threads and pointers into it.
struct Handle(*mut c_void);

impl Handle {
    fn open(name: &CStr) -> Result<Self, LibraryError> {
        // SAFETY: the name ends with a zero byte. Constructors of the library run; those of rdma-core and of ours do
        // nothing that this program relies on.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(LibraryError::Missing(last_error()));
        }
        Ok(Self(handle))
    }

    /// The address of a function; the name ends with a zero byte.
    fn symbol(&self, name: &str) -> Option<*mut c_void> {
        let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
        // SAFETY: the handle is open, and the name ends with a zero byte.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// Whether it is the library of this project.
    fn is_ours(&self) -> bool {
        // SAFETY: as in `symbol`.
        let address = unsafe { libc::dlsym(self.0, OF_CONNECTION_MANAGER.as_ptr()) };
        !address.is_null()
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

/// The functions of the system's libibverbs, loaded at the first call.
pub(super) fn functions() -> Result<&'static Functions, LibraryError> {
    static LOADED: OnceLock<Result<Functions, LibraryError>> = OnceLock::new();
    LOADED
        .get_or_init(|| load(NAME))
        .as_ref()
        .map_err(Clone::clone)
}

fn load(name: &CStr) -> Result<Functions, LibraryError> {
    let library = Handle::open(name)?;
    if library.is_ours() {
        return Err(LibraryError::Ours);
    }
    Functions::find(&library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_the_package() {
        let error = load(c"libibverbs-of-nobody.so.1")
            .err()
            .expect("it does not exist");
        let text = error.to_string();
        assert!(text.contains("libibverbs-of-nobody.so.1"), "{text}");
        assert!(text.contains("apt install"), "{text}");
    }

    #[test]
    fn a_library_without_verbs_is_refused() {
        let error = load(c"libc.so.6").err();
        assert_eq!(error, Some(LibraryError::Incomplete("ibv_get_device_list")));
    }
}

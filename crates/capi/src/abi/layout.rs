//! Structures that C sees, and what a compiler must make of them.

/// The size of a structure and where its fields are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Its name in C, with `struct` or `union` before it.
    pub name: &'static str,
    /// Its size.
    pub size: usize,
    /// Its fields as C names them, and their offsets.
    pub fields: Vec<(&'static str, usize)>,
}

/// The size of a mutex of the C library, by which architectures differ.
pub(super) const MUTEX: usize = size_of::<libc::pthread_mutex_t>();

/// Defines structures as C has them, and `layouts`, by which a test compares them with the headers.
///
/// What stands behind a name is its size: it is asserted when this crate is compiled, so that a
/// field that was forgotten or has the wrong width is found even where there are no headers.
macro_rules! c_structs {
    ($($(#[$meta:meta])* struct $name:ident [$size:expr] {
        $($field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            #[allow(non_camel_case_types, non_snake_case, reason = "the names that they have in C")]
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)*
            }

            const _: () = assert!(size_of::<$name>() == $size);

            impl Default for $name {
                fn default() -> Self {
                    // SAFETY: it consists of integers, raw pointers, optional function pointers and
                    // arrays of those, for all of which zero is a value.
                    unsafe { std::mem::zeroed() }
                }
            }
        )*

        pub(super) fn layouts() -> Vec<super::layout::Layout> {
            vec![$(super::layout::Layout {
                name: concat!("struct ", stringify!($name)),
                size: size_of::<$name>(),
                fields: vec![$((stringify!($field), std::mem::offset_of!($name, $field)),)*],
            },)*]
        }
    };
}

pub(super) use c_structs;

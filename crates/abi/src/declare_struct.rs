//! Definition and layout of the structures that C sees.

/// The size of a structure and the offsets of its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Its name in C, with `struct` or `union`.
    pub name: &'static str,
    /// Its size.
    pub size: usize,
    /// Its fields as C names them, and their offsets.
    pub fields: Vec<(&'static str, usize)>,
}

/// The size of a mutex of the C library, which differs between architectures.
pub(super) const MUTEX: usize = size_of::<libc::pthread_mutex_t>();

/// Defines structures with the layout of C, and `layouts`, for a test that compares them with the headers.
///
/// The number after a name is its size. It is asserted at compile time, so that a missing field or one of the
/// wrong width is found even without the headers.
macro_rules! c_structs {
    ($($(#[$meta:meta])* struct $name:ident [$size:expr] {
        $($field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            #[allow(non_camel_case_types, non_snake_case, reason = "the names that they have in C")]
            pub struct $name {
                $(pub $field: $type,)*
            }

            const _: () = assert!(size_of::<$name>() == $size);

            impl Default for $name {
                fn default() -> Self {
                    // SAFETY: it consists of integers, raw pointers, optional function pointers and arrays of
                    // those, for all of which zero is valid.
                    unsafe { std::mem::zeroed() }
                }
            }
        )*

        pub(crate) fn layouts() -> Vec<super::declare_struct::Layout> {
            vec![$(super::declare_struct::Layout {
                name: concat!("struct ", stringify!($name)),
                size: size_of::<$name>(),
                fields: vec![$((stringify!($field), std::mem::offset_of!($name, $field)),)*],
            },)*]
        }
    };
}

pub(super) use c_structs;

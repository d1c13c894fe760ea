//! The macro that declares headers.

/// Declares a header: its layout, its asserted size and, for extensions, its kind.
macro_rules! header {
    ($(#[$attribute:meta])* $name:ident, $length:literal, $kind:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        header!($(#[$attribute])* $name, $length { $($field: $type),+ });

        impl $crate::header::ExtensionHeader for $name {
            const KIND: $crate::header::Extension = $crate::header::Extension::$kind;
        }
    };
    ($(#[$attribute:meta])* $name:ident, $length:literal { $($field:ident: $type:ty),+ $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
        #[derive(zerocopy::KnownLayout, zerocopy::Unaligned)]
        #[repr(C)]
        pub struct $name { $($field: $type),+ }

        const _: () = assert!(size_of::<$name>() == $length);
    };
}

pub(super) use header;

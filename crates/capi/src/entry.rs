//! The C entry points.
//!
//! [`entry!`] makes an ordinary function, whose arguments are references and numbers and whose result is a
//! `Result`, callable from C. It stops panics, converts the arguments, and reports a failure in the way of
//! the return type (`conversion`).

pub(crate) use crate::conversion::{
    CountOrErrno, CountOrMinusOne, FromC, Input, MinusOne, Output, Pointer, Polled, guard,
};

/// Defines functions that C can call.
///
/// `export fn` is a symbol of the library, under a private name; the table of symbols gives it its public
/// name and version. `op fn` is reached through a pointer in a structure. `wait fn` is an exported blocking
/// call: its body is repeated while it returns `None`. Its first argument is an object around an `Arc`, which
/// it waits for.
macro_rules! entry {
    () => {};
    ($(#[$meta:meta])* wait fn $name:ident(
        $target:ident: &$object:ty $(, $arg:ident: $type:ty)* $(,)?
    ) -> MinusOne
        $body:block $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[unsafe(export_name = concat!("roci_", stringify!($name)))]
        pub(crate) unsafe extern "C" fn $name(
            $target: <&$object as $crate::entry::FromC>::Raw,
            $($arg: <$type as $crate::entry::FromC>::Raw),*
        ) -> $crate::entry::MinusOne {
            $crate::blocking::wait(
                stringify!($name),
                || {
                    // SAFETY: the C caller promises what the header says about the arguments.
                    let object = unsafe { <&$object as $crate::entry::FromC>::from_c($target) }?;
                    Ok(std::sync::Arc::clone(object))
                },
                |$target| {
                    $(
                        // SAFETY: as above.
                        let $arg = unsafe { <$type as $crate::entry::FromC>::from_c($arg) }?;
                    )*
                    $body
                },
            )
        }
        $crate::entry::entry!($($rest)*);
    };
    ($(#[$meta:meta])* export fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)?
        $body:block $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[unsafe(export_name = concat!("roci_", stringify!($name)))]
        pub(crate) unsafe extern "C" fn $name(
            $($arg: <$type as $crate::entry::FromC>::Raw),*
        ) $(-> $out)? {
            let _ordered = net::thread_sanitizer::OrderedCall::begin();
            $crate::entry::entry!(@inside ($($arg: $type),*) $body)
        }
        $crate::entry::entry!($($rest)*);
    };
    ($(#[$meta:meta])* op fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)?
        $body:block $($rest:tt)*
    ) => {
        $(#[$meta])*
        pub(crate) unsafe extern "C" fn $name(
            $($arg: <$type as $crate::entry::FromC>::Raw),*
        ) $(-> $out)? {
            $crate::entry::entry!(@inside ($($arg: $type),*) $body)
        }
        $crate::entry::entry!($($rest)*);
    };
    (@inside ($($arg:ident: $type:ty),*) $body:block) => {
        $crate::entry::guard(|| {
            $(
                // SAFETY: the C caller promises what the header says about the arguments.
                let $arg = unsafe { <$type as $crate::entry::FromC>::from_c($arg) }?;
            )*
            $body
        })
    };
}

pub(crate) use entry;

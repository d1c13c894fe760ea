//! All codes, kind by kind.

mod async_event;
mod cm_event;
mod completion;
pub mod errno;
mod nak;
mod reject;

use crate::Entry;

/// Every entry there is: a table for each [`CodeKind`](crate::CodeKind), in their order.
pub static CATALOGUE: [&[Entry]; 6] = [
    completion::ENTRIES,
    async_event::ENTRIES,
    nak::ENTRIES,
    cm_event::ENTRIES,
    reject::ENTRIES,
    errno::ENTRIES,
];

/// Declares the table of a kind: each row is a code, its names, its meaning and its causes.
macro_rules! table {
    ($topic:ident; $($code:literal $c_name:literal $(($rust_name:literal))? $meaning:literal
        [$($cause:ident),* $(,)?];)+) => {
        pub(super) static ENTRIES: &[$crate::Entry] = &[$(
            $crate::Entry {
                topic: $crate::CodeKind::$topic,
                code: $code,
                c_name: $c_name,
                rust_name: super::table!(@name $($rust_name)?),
                meaning: $meaning,
                causes: &[$(&$crate::cause::$cause),*],
            },
        )+];
    };
    (@name $name:literal) => { Some($name) };
    (@name) => { None };
}

use table;

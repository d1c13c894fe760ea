//! All codes, kind by kind.

mod completion;
mod connection;
pub mod errno;
mod event;
mod nak;
mod reject;

use crate::topic::Topic;
use crate::{Entry, entries};

/// Every entry there is: a table for each [`Topic`], in their order.
pub static CATALOGUE: [&[Entry]; 6] = [
    completion::ENTRIES,
    event::ENTRIES,
    nak::ENTRIES,
    connection::ENTRIES,
    reject::ENTRIES,
    errno::ENTRIES,
];

/// The entry of a code, if there is one.
#[must_use]
pub fn entry(topic: Topic, code: u32) -> Option<&'static Entry> {
    entries(topic).find(|entry| entry.code == code)
}

/// Declares the table of a kind: each row is a code, its names, its meaning and its causes.
macro_rules! table {
    ($topic:ident; $($code:literal $c_name:literal $(($rust_name:literal))? $meaning:literal
        [$($cause:ident),* $(,)?];)+) => {
        pub(super) static ENTRIES: &[$crate::Entry] = &[$(
            $crate::Entry {
                topic: $crate::Topic::$topic,
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

//! What goes wrong with RDMA, why, and what to do about it: words, and nothing else.
//!
//! There is one catalogue. A program that runs into an error under `ROCI_EXPLAIN=1` is told from it,
//! `roci explain wc 12` prints from it, and `docs/errors.md` is made from it ([`page`]).
//!
//! An [`Entry`] is one code: a completion status, an event, a NAK, an error number. Its [`Cause`]s
//! are what lies behind it, each with its cure. Who knows which cause it was tells that one alone.

#![forbid(unsafe_code)]

pub mod cause;

mod catalogue;
mod lookup;
mod page;

use std::fmt;

pub use catalogue::{CATALOGUE, entry};
pub use lookup::{Topic, Unknown, entries, find};
pub use page::page;

/// One code and all there is to say about it.
#[derive(Debug)]
pub struct Entry {
    /// What kind of code it is.
    pub topic: Topic,
    /// The code.
    pub code: u32,
    /// What C programs call it.
    pub c_name: &'static str,
    /// What the Rust API calls it, where it has it.
    pub rust_name: Option<&'static str>,
    /// What it says.
    pub meaning: &'static str,
    /// What may lie behind it, the likeliest first.
    pub causes: &'static [&'static Cause],
}

/// Something that goes wrong.
#[derive(Debug, PartialEq, Eq)]
pub struct Cause {
    /// What is wrong: a sentence.
    pub reason: &'static str,
    /// What to do: a sentence or two.
    pub remedy: &'static str,
}

impl Entry {
    /// How to ask for it: `wc 12`.
    #[must_use]
    pub fn reference(&self) -> String {
        match self.topic {
            Topic::Nak => format!("nak {:#04x}", self.code),
            topic => format!("{topic} {}", self.code),
        }
    }
}

impl fmt::Display for Entry {
    /// As it is printed in a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.reference(), self.c_name)?;
        if let Some(name) = self.rust_name {
            write!(f, "  ({name})")?;
        }
        write!(f, "\n{}", self.meaning)?;
        for cause in self.causes {
            write!(f, "\n\n- {}\n  {}", cause.reason, cause.remedy)?;
        }
        Ok(())
    }
}

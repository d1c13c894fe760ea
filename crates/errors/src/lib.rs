//! The error catalogue: the meaning, the causes and the remedies of RDMA error codes. It contains only
//! text.
//!
//! The explanations of `ROCI_EXPLAIN=1`, `roci explain wc 12` and `docs/errors.md` ([`page()`]) all use
//! this catalogue. `docs/zh-CN/errors.md` is its translation.
//!
//! An [`Entry`] is one code: a completion status, an event, a NAK, an error number. It lists the
//! possible [`Cause`]s, each with its remedy. Code that knows the exact cause reports only that one.

#![forbid(unsafe_code)]

pub mod cause;

mod catalogue;
mod chinese;
mod code_kind;
mod lookup;
mod markdown;

use std::fmt;

pub use catalogue::{CATALOGUE, errno};
pub use code_kind::CodeKind;
pub use lookup::{Unknown, entries, entry, find};
pub use markdown::{Language, page};

/// One code with its meaning and causes.
#[derive(Debug)]
pub struct Entry {
    /// The kind of code.
    pub topic: CodeKind,
    /// The code.
    pub code: u32,
    /// Its name in C.
    pub c_name: &'static str,
    /// Its name in the Rust API, if it has one.
    pub rust_name: Option<&'static str>,
    /// What it means.
    pub meaning: &'static str,
    /// Possible causes, the most likely first.
    pub causes: &'static [&'static Cause],
}

/// A cause of an error.
#[derive(Debug, PartialEq, Eq)]
pub struct Cause {
    /// What is wrong: a sentence.
    pub reason: &'static str,
    /// What to do: a sentence or two.
    pub remedy: &'static str,
}

impl Entry {
    /// The arguments of `roci explain` for it: `wc 12`.
    #[must_use]
    pub fn reference(&self) -> String {
        match self.topic {
            CodeKind::Nak => format!("nak {:#04x}", self.code),
            topic => format!("{topic} {}", self.code),
        }
    }
}

impl fmt::Display for Entry {
    /// The text for a terminal.
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

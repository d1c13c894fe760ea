//! The receive side of a reliable connection, as its peer hears it.

#[path = "../conversation/mod.rs"]
mod conversation;

mod access;
mod atomics;
mod duplicates;
mod invalid;
mod reads;
mod receives;
mod sequence;
mod strangers;

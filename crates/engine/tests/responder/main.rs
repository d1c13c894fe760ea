//! The receive side of a reliable connection: how the device answers requests.

#[path = "../conversation/mod.rs"]
mod conversation;

mod access;
mod atomics;
mod dropped;
mod duplicates;
mod invalid;
mod not_ready;
mod reads;
mod receives;
mod sequence;

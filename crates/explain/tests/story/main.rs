//! Captures, and what is told of them.

// The fuzz crate itself needs libFuzzer and a nightly compiler; what it does does not.
#[path = "../../../../fuzz/src/captures.rs"]
mod captures;
mod damage;
mod device;
mod files;
mod formats;
mod golden;
mod limits;
mod same_start;
mod size;

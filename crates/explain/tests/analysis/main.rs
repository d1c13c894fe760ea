//! Captures and their analysis.

// The fuzz crate needs libFuzzer and a nightly compiler. Its functions do not.
#[path = "../../../../fuzz/src/captures.rs"]
mod captures;
mod damage;
mod device;
mod files;
mod formats;
mod golden;
mod limits;
mod rejected;
mod same_start;
mod size;
mod story;

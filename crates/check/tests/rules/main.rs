//! The rules, each kept and broken.

mod buffers;
mod ends;
mod lifetimes;
mod program;
mod queues;
mod races;
mod threads;

//! Sockets, interfaces and processes: the parts that talk to the operating system.
//!
//! Everything here works for an ordinary user, without a kernel module and without a daemon:
//! - [`socket`]: UDP sockets that send and receive many packets in one system call, and the interfaces of this machine, as devices;
//! - [`sharing`]: several processes on one address, each with its own queue pair numbers;
//! - [`tap`]: what looks at packets, and what changes them on purpose;
//!
//! and what these rooms stand on:
//! - [`poll`]: waiting for sockets, for a time, and for another thread;
//! - [`restrictions`]: features that a system may forbid, and what happens then; [`restriction_check`] tests for them;
//! - [`fork`]: keeping sockets from forked children;
//! - [`signal`]: the signals of the library's own threads;
//! - [`watcher`]: exit notices to peers when a process dies;
//! - [`stderr`]: messages to the user of a program;
//! - [`thread_sanitizer`]: what ThreadSanitizer is told, in a program that was built with it.

pub mod exit_hooks;
pub mod fatal_signals;
pub mod fork;
pub mod named_file;
pub mod poll;
mod private_file;
pub mod restriction_check;
pub mod restrictions;
pub mod sharing;
pub mod signal;
pub mod socket;
pub mod stderr;
mod sync;
pub mod tap;
pub mod thread_sanitizer;
mod times;
pub mod watcher;

#[allow(unsafe_code, reason = "system calls")]
mod sys;

pub use tap::Direction;

/// Compiles and runs the example of the front page in the registry.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

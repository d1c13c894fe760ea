//! Sockets, interfaces and processes: the parts that talk to the operating system.
//!
//! Everything here works for an ordinary user, without a kernel module and without a daemon:
//! - [`socket`]: UDP sockets that send and receive many packets in one system call;
//! - [`port_sharing`]: several processes on one address, each with its own queue pair numbers;
//! - [`poll`]: waiting for sockets, for a time, and for another thread;
//! - [`interface`]: the interfaces of this machine, as devices;
//! - [`restrictions`]: features that a system may forbid, and what happens then; [`restriction_check`] tests for them;
//! - [`capture`]: every packet in a file that Wireshark reads;
//! - [`fork`]: keeping sockets from forked children;
//! - [`signal`]: the signals of the library's own threads;
//! - [`watcher`]: exit notices to peers when a process dies;
//! - [`stderr`]: messages to the user of a program;
//! - [`fault`]: packets lost, duplicated, corrupted or delayed on purpose.

pub mod capture;
mod direction;
pub mod exit_hooks;
pub mod fatal_signals;
pub mod fault;
pub mod fork;
pub mod interface;
pub mod named_file;
pub mod poll;
pub mod port_sharing;
mod private_file;
pub mod record_log;
pub mod restriction_check;
pub mod restrictions;
pub mod signal;
pub mod socket;
pub mod stderr;
mod sync;
mod times;
pub mod watcher;

#[allow(unsafe_code, reason = "system calls")]
mod sys;

pub use direction::Direction;

/// Compiles and runs the example of the front page in the registry.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! A device, its connection manager and queue pair 1, combined without I/O or clock.
//!
//! The caller passes datagrams and the time to [`Host`] and polls it for datagrams, events and
//! deadlines. The driver runs it over sockets; the simulator and the fuzzers run the same code
//! without sockets.
//!
//! Management datagrams pass through the engine like all others, so captures, faults and checksums
//! apply to them too. All processes at an address share queue pair 1. A message that another
//! process may own is not handled at once: [`Host::hold_for_lookup`] keeps it, and [`Host::poll_lookup`]
//! asks the caller to find its owner, because only the caller knows the other processes.

#![forbid(unsafe_code)]

mod general_services;
mod host;
mod pending_requests;
mod recipient;

pub use host::{Config, Host};
pub use pending_requests::Message;
pub use recipient::{Owner, is_management};

/// Compiles and runs the example of the front page in the registry.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

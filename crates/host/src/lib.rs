//! A device, its connection manager and queue pair 1, joined without I/O or clock.
//!
//! [`Host`] is told datagrams and the time and is asked for datagrams, events and deadlines. The
//! driver runs it over sockets; the simulator and the fuzzers run the same code over none.
//!
//! Management datagrams travel through the engine like all others, so captures, faults and checksums
//! treat them alike. All processes at an address share queue pair 1. A message that another process
//! may own is not handled at once: [`Host::set_aside`] keeps it and [`Host::poll_lookup`] asks the
//! caller to find its owner, because only the caller knows the other processes.

#![forbid(unsafe_code)]

mod general_services;
mod host;
mod pending;
mod routing;

pub use host::{Config, Host};
pub use pending::Message;
pub use routing::{Owner, is_management};

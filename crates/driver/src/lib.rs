//! Runs a device: joins the host (engine, connection manager and queue pair 1) with sockets, threads, the clock,
//! captures and faults.
//!
//! Application threads make progress themselves: posting transmits, polling receives. While no
//! application polls, the device's own thread serves the sockets and the timers, so that the target
//! of a one-sided operation responds while its application sleeps.
//!
//! There is one lock. It is held while the engine handles packets, never while a thread sleeps.
//!
//! The safe API (`rocinante`) and the C libraries are both built on this crate, independently of each other. A [`Driver`] is one open
//! device. It gives access to the engine by number, without handles: a caller that destroys an object which
//! another one uses gets errors, not undefined behaviour. [`rdma_cm`] has the ids and event channels of the
//! connection manager.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod capture_and_faults;
mod check;
pub mod clock;
#[cfg(test)]
mod connected_end;
mod connections;
mod deferred_wakeups;
mod device_state;
mod devices;
mod diagnostics;
mod driver;
mod exit_notices;
mod lanes;
mod notifier;
mod options;
mod packet_wakeups;
mod poll_yield;
mod port;
pub mod rdma_cm;
mod send_backlog;
mod service_reservations;
mod shared;
mod shortcut;
#[cfg(feature = "sim")]
pub mod simulation;
#[cfg(not(feature = "sim"))]
#[path = "no_simulation.rs"]
mod simulation;
mod statistics;
mod task_timers;
mod thread;
#[cfg(feature = "tracing")]
mod trace;
mod wait_set;

pub use check::{CheckOptions, Profile};
pub use devices::{device, device_at, devices, is_simulated};
pub use diagnostics::{Misuse, enable_explanations};
pub use driver::{Driver, PolledQueue};
pub use notifier::Notifier;
pub use options::{DeviceChoice, OpenError, OpenOptions, system_error};
pub use shared::Awaited;
pub use shortcut::Shortcut;
pub use wait_set::WaitSet;

/// Compiles and runs the example of the front page in the registry.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! Runs a device: joins the host (engine, connection manager and queue pair 1) with sockets, threads, the clock,
//! captures and faults.
//!
//! A device has one or several lanes: engines with their own lock, sockets and thread. The lock is held while the engine
//! handles packets, never while a thread sleeps. No thread holds the locks of two lanes, except one that moves queues to a
//! lane that nobody else has yet. `ARCHITECTURE.md` has a picture of threads and locks, and the ways of a post and of a packet.
//!
//! Application threads make progress themselves: posting transmits, polling receives. While no
//! application polls, the lane's own thread serves the sockets and the timers, so that the target
//! of a one-sided operation responds while its application sleeps.
//!
//! The safe API (`rocinante`) and the C libraries are both built on this crate, independently of each other. A [`Driver`] is one open
//! device. It gives access to the engine by number, without handles: a caller that destroys an object which
//! another one uses gets errors, not undefined behaviour. [`rdma_cm`] has the ids and event channels of the
//! connection manager.
//!
//! | module | question |
//! |---|---|
//! | `lane` | what is done under the lock, and after it |
//! | `turn` | which thread serves the sockets, and how long it looks before it sleeps |
//! | `lanes`, `driver::groups` | which lane serves a queue, and how it moves to another one |
//! | `fabric` | what a device runs on: this machine, or a host of a simulated world |
//! | `waiting` | who waits for what, and how it is woken |
//! | `shortcut` | whether packets within this machine go through memory |
//! | `capture_and_faults`, `check`, `diagnostics`, `blocked_calls`, `statistics` | what is told about a device and its program |
//! | `exit_notices` | what peers are told when the process dies |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod blocked_calls;
mod capture_and_faults;
mod check;
pub mod clock;
mod cm_events;
mod devices;
mod diagnostics;
mod driver;
mod exit_notices;
mod fabric;
mod lane;
mod lanes;
mod narrow_path;
mod neighbours;
mod options;
mod probe_datagram;
pub mod rdma_cm;
mod service_reservations;
mod shortcut;
mod statistics;
mod sync;
mod times;
#[cfg(feature = "tracing")]
mod trace;
mod turn;
mod waiting;

pub use blocked_calls::{BlockedCall, Situation};
pub use check::{CheckOptions, Profile};
pub use devices::{device, device_at, devices, is_simulated};
pub use diagnostics::{DeviceMemoryMistake, Misuse, enable_explanations, has_explained};
pub use driver::{Driver, PolledQueue, PostedQueue};
#[cfg(feature = "async")]
pub use driver::{TaskDescriptor, TaskPoll, TaskTimer, TaskWakeups};
#[cfg(feature = "sim")]
pub use fabric::simulation;
pub use lane::{Awaited, Watch};
pub use options::{DeviceChoice, OpenError, OpenOptions, system_error};
pub use shortcut::Shortcut;
pub use waiting::{Notifier, WaitSet};

/// Compiles and runs the example of the front page in the registry.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! A deterministic simulator for the engine and the connection manager: one seed is one run.
//!
//! All devices, the network between them, the clock and the applications are simulated in one thread.
//! The seed decides every random choice, so a failure is reproduced by its seed:
//!
//! ```
//! let summary = sim::run(42, sim::Options::default()).expect("no check fails");
//! let again = sim::run(42, sim::Options::default()).expect("no check fails");
//! assert_eq!(summary.digest, again.digest);
//! ```
//!
//! From the bottom up: [`rng`] is the only source of random numbers, [`network`] loses and corrupts
//! datagrams, [`machine`] is what a host runs, [`world`] executes events in the order of their times,
//! [`packet_observer`] observes all packets, and [`model_memory`] holds memory and its expected content. The
//! scenarios use these, each with a model and its checks. [`links`] measures what senders reach on links with a rate, a queue and losses.
#![forbid(unsafe_code)]

mod check_error;
mod cluster;
mod connections;
mod datagrams;
pub mod digest;
pub mod fuzz_device;
pub mod fuzz_host;
mod fuzz_input;
pub mod fuzz_manager;
pub mod links;
pub mod machine;
pub mod model_memory;
pub mod network;
mod overrun;
pub mod packet_observer;
mod planted_bug;
pub mod rng;
mod run_scenario;
mod run_seed;
mod run_seeds;
mod scenario;
mod simple_connect;
mod summary;
pub mod world;

pub use check_error::CheckError;
pub use connections::EventCounts;
pub use planted_bug::Bug;
pub use run_seed::{Failure, run};
pub use run_seeds::{Campaign, campaign};
pub use scenario::Scenario;
pub use summary::{Options, Summary};

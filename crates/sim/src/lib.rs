//! A deterministic simulator for the engine and the connection manager: one seed is one run.
//!
//! All devices, the network between them, the clock and the applications are simulated in one thread.
//! The seed decides every random choice, so a failure is reproduced by its seed:
//!
//! ```
//! let summary = sim::run(42, sim::Options::default()).expect("the engine keeps its promises");
//! let again = sim::run(42, sim::Options::default()).expect("and does so every time");
//! assert_eq!(summary.digest, again.digest);
//! ```
//!
//! From the bottom up: [`rng`] is the only source of chance, [`network`] loses and spoils datagrams,
//! [`machine`] is what a host runs, [`world`] lets one thing happen after the other, [`tap`] looks at the wire, and [`arena`] is
//! memory next to what it must hold. On these stand the scenarios with their models and checkers.
#![forbid(unsafe_code)]

pub mod arena;
mod campaign;
mod cluster;
mod complaint;
mod connections;
mod datagrams;
pub mod digest;
pub mod hostile;
pub mod hostile_host;
mod input;
pub mod machine;
pub mod network;
mod overrun;
mod plain;
mod plant;
pub mod rng;
mod run;
mod scenario;
pub mod siege;
pub mod tap;
pub mod world;

pub use campaign::{Campaign, campaign};
pub use complaint::Complaint;
pub use connections::Census;
pub use plant::Bug;
pub use run::{Failure, Options, Summary, run};
pub use scenario::Scenario;

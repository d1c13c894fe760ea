//! What senders reach on links with a rate, a queue, a delay and losses, in virtual time.
//!
//! Hosts with our device and models of TCP connections send to one receiver, over one link that all of them share. The same seed
//! gives the same numbers on every machine.

mod bbr;
mod cubic;
mod host;
mod link;
mod report;
mod run;
mod tcp;

pub use link::Link;
pub use report::{Network, Report};
pub use run::{Outcome, Setup, Share};

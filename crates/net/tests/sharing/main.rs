//! Several processes on one address: this test binary starts copies of itself as members.
//!
//! Every test has an address of its own, so that all can run at once.

mod child;
mod forks;
mod listeners;
mod many_members;
mod one_process;
mod processes;
mod shortcuts;
mod traffic;

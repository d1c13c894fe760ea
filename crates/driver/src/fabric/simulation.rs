//! Simulated hosts: a driver without a thread, sockets and clock of its own.
//!
//! A [`World`] has hosts, a network between them and a clock. While a thread has [entered](World::enter) one of its hosts, the
//! devices that it opens are those of the host. They are ordinary drivers above another fabric, on another machine:
//!
//! - the clock is that of the world, and stands still while a program runs;
//! - the packets of a device go to the network of the world instead of sockets;
//! - instead of the lane's thread, [`World::serve`] does what that thread does in one round;
//! - random numbers and the addresses of registered memory come from the seed of the world.
//!
//! So the same seed and the same program give the same packets at the same times. The crate `rocinante` runs programs on it
//! (`rocinante::sim`).

mod current;
mod network;
mod port;
mod world;

pub(crate) use current::place;
pub use current::{Entered, note_wait};
pub use network::Latency;
pub use world::{HostId, World};

//! Hosts that talk to each other, without sockets and with a told time.

mod connections;
mod lookups;
mod packets;
mod station;

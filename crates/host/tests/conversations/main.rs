//! Hosts that talk to each other, without sockets and with a told time.

mod connections;
mod held_lists;
mod lookups;
mod packets;
mod station;

//! The manager against a scripted peer: at a given time the peer sends a message and receives the
//! response.

mod active_side;
mod conversation;
mod datagram_services;
mod disconnect;
mod exit_notices;
mod hostile_peers;
mod ids;
mod passive_side;
mod random_calls;

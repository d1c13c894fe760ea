//! The manager against a scripted peer: at a given time the peer sends a message and receives the
//! answer.

mod active;
mod conversation;
mod disconnect;
mod exit_notices;
mod hostile;
mod ids;
mod passive;
mod random_calls;
mod services;

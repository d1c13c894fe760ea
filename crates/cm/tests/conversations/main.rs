//! Conversations: at this time the peer says this and hears that.

mod active;
mod disorder;
mod exit;
mod hostile;
mod ids;
mod leaving;
mod passive;
mod services;
mod talk;

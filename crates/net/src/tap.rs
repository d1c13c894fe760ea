//! What looks at the packets of a process on their way, and what changes them on purpose.
//!
//! - [`capture`]: every packet in a file that Wireshark reads;
//! - [`fault`]: packets lost, duplicated, corrupted or delayed on purpose;
//! - [`record_log`]: what the processes of a checked run tell each other.

pub mod capture;
mod direction;
pub mod fault;
pub mod record_log;

pub use direction::Direction;

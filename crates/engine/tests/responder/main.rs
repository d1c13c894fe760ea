//! The receive side of a reliable connection: how the device answers requests.

#[path = "../conversation/mod.rs"]
mod conversation;

mod access_errors;
mod atomics;
mod congestion_marks;
mod dropped_packets;
mod duplicates;
mod held_lists;
mod invalid_requests;
mod not_ready_incidents;
mod reads;
mod receives;
mod request_order;

//! The send side of a reliable connection: what the device sends, and how it handles responses.

#[path = "../conversation/mod.rs"]
mod conversation;

mod acknowledgement;
mod batches;
mod completion;
mod counters;
mod drain;
mod flow_control;
mod held_lists;
mod pacing;
mod posting;
mod prolonged_retries;
mod reads;
mod rnr_nak;
mod segmentation;
mod sharing;
mod timeout;

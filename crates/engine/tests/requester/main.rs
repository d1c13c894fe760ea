//! The send side of a reliable connection, as its peer hears it.

#[path = "../conversation/mod.rs"]
mod conversation;

mod acknowledgement;
mod batches;
mod completion;
mod drain;
mod flow_control;
mod not_ready;
mod posting;
mod reads;
mod segmentation;
mod timeout;

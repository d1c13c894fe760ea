//! The format in which devices publish their counters.
//!
//! Each lane of an open device has a statistics page: a file in the runtime directory that it maps and writes every few
//! milliseconds. Other processes read the file. A page consists of 64-bit words in the byte order of the machine:
//! a [header](layout) with the [numbers of objects](ObjectCounts), the [counters](DeviceCounter) of the device, and
//! a [record](QueuePairRecord) for each queue pair. When a device is closed, its counters are added to a file of the same format, which has no queue pairs.
//!
//! This crate has no I/O and allocates nothing, so that the preloaded library can use it in every program.

#![forbid(unsafe_code)]

mod counter;
mod counter_file;
pub mod layout;
mod object_counts;
mod queue_pair;

pub use counter::{DEVICE_COUNTERS, DeviceCounter, DeviceCounters, MESSAGES, MessageCounter};
pub use counter_file::{CounterFile, GENERAL, HARDWARE, MESSAGE_FILES};
pub use object_counts::{OBJECT_KINDS, ObjectCounts, ObjectKind};
pub use queue_pair::{Level, PacketPath, QUEUE_PAIR_COUNTERS, QueuePairRecord};

//! The format in which devices publish their counters.
//!
//! Each lane of an open device has a statistics page: a file of 16 KiB in the runtime directory that it maps, and writes at most every
//! 10 ms and at the latest 100 ms after a change. Other processes read the file. A page consists of 64-bit words in the byte order of the
//! machine: a [header](layout) with the [numbers of objects](ObjectCounts), the [counters](DeviceCounter) of the lane, and a
//! [record](QueuePairRecord) for each of its first [74](layout::MAX_RECORDS) queue pairs. The last digits of its first word are the version of the
//! format. A sequence number tells a reader whether the page changed while it was read. The lanes of a device share its objects, and each counts those
//! that were created minus those that were destroyed under its lock, so the sum over its lanes is how many there are.
//!
//! Counters of an address must not decrease. So the counters of a closed device are added to a file of the same format without queue pairs,
//! one for each network namespace and first GID. The page of a killed process counts until the sweep of stale files does the same for it.
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

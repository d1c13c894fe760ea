//! Finds mistakes of RDMA programs.
//!
//! A device records [`Observation`](engine::Observation)s: what the program asks of it, and what it does with the program's memory.
//! A [`Checker`] compares them with the [`Rule`]s of the verbs, and reports each violation as a [`Finding`].
//!
//! A request uses local and remote memory (`local_buffers`, `remote_accesses`) from its post until the program has polled a
//! completion that covers it, because only then the program knows that it has been executed. A message from the peer can
//! carry this knowledge, too. So the checker finds a mistake whenever the program allows one, even if the requests
//! happen to be executed in the intended order.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Nothing in this crate may be excepted from the bans in clippy.toml.
#![forbid(clippy::disallowed_methods, clippy::disallowed_types)]

mod checker;
mod device_profile;
mod finding;
mod local_buffers;
mod observed_objects;
mod process_order;
mod remote_accesses;
mod request_name;
mod rule;
mod thread_order;

pub use checker::Checker;
pub use device_profile::{Profile, UnknownProfile};
pub use finding::Finding;
pub use request_name::DeviceId;
pub use rule::{Level, Rule};
pub use thread_order::{Actor, Deed, MemoryAccess, SyncPoint};

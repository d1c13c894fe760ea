//! libibverbs: one file for each type of object.
//!
//! The handle of each object is below the calls that use it: `context` is at the bottom, `open_device`, which has
//! the table of operations, at the top.

pub(crate) mod address_handle;
pub(crate) mod alloc_buf;
pub(crate) mod async_event;
mod changed_mappings;
pub(crate) mod completion_channel;
pub(crate) mod completion_event;
pub(crate) mod completion_queue;
pub(crate) mod completion_queue_ex;
pub(crate) mod context;
pub(crate) mod create_queue_pair;
pub(crate) mod device_list;
pub(crate) mod device_memory;
pub(crate) mod dma_buf;
pub(crate) mod event_target;
pub(crate) mod fault_handler;
pub(crate) mod fork_and_sysfs;
pub(crate) mod gpu_memory;
pub(crate) mod kernel_structs;
pub(crate) mod mapped_pages;
pub(crate) mod memory_region;
pub(crate) mod memory_window;
pub(crate) mod multicast;
pub(crate) mod open_device;
pub(crate) mod post_receive;
pub(crate) mod post_send;
pub(crate) mod program_memory;
pub(crate) mod protection_domain;
pub(crate) mod query;
pub(crate) mod queue_pair;
pub(crate) mod queue_pair_attributes;
pub(crate) mod queue_pair_ex;
pub(crate) mod rates;
pub(crate) mod shared_receive_queue;
pub(crate) mod strings;
pub(crate) mod xrc;
pub(crate) mod xrc_target;

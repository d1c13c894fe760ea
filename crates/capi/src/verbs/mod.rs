//! libibverbs: one file for each kind of object.

pub(crate) mod address;
pub(crate) mod async_event;
pub(crate) mod channel;
pub(crate) mod completion;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod device_memory;
pub(crate) mod domain;
pub(crate) mod extended_completion;
pub(crate) mod extended_send;
pub(crate) mod marshal;
pub(crate) mod memory;
pub(crate) mod modify;
pub(crate) mod multicast;
pub(crate) mod pages;
pub(crate) mod process;
pub(crate) mod query;
pub(crate) mod queue_pair;
pub(crate) mod rates;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod shared_receive;
pub(crate) mod strings;
pub(crate) mod window;
pub(crate) mod xrc;

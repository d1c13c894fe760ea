//! The RDMA devices of the system: NICs, and the kernel's software devices rxe and siw.
//!
//! [`Tree::devices`] lists them, from the files that the kernel shows in `/sys`. Under `roci run` these files
//! describe the devices of this project; such devices are left out, because they are listed elsewhere.
//!
//! [`verbs`] opens and uses them, through the system's libibverbs. It is loaded when the first device is opened. [`rdma_cm`]
//! connects their queue pairs, through the system's librdmacm, which is loaded when the first id is created. A library that turns out to be our
//! own is refused: a libibverbs that also has the functions of librdmacm, and a librdmacm that does not use the loaded libibverbs.
//!
//! Memory is registered as an `engine::Buffer`, whose bytes programs access by atomic copies only, because a NIC writes at any moment. A
//! region that can't be deregistered leaves its memory allocated.
//!
//! Tests need no device of the kernel: `fixture::use_library` loads our own library in place of the system's. The package `capi` runs the
//! tests of the safe API (`crates/verbs/tests/any_device`) in this way.

mod device;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
mod kind;
#[allow(unsafe_code, reason = "libraries of C are loaded at run time")]
mod loader;
mod node_type;
mod port;
#[allow(unsafe_code, reason = "librdmacm is written in C")]
pub mod rdma_cm;
mod tree;
#[allow(unsafe_code, reason = "libibverbs is written in C")]
pub mod verbs;

pub use device::Device;
pub use kind::Kind;
pub use loader::LibraryError;
pub use node_type::NodeType;
pub use port::{GidEntry, GidType, LinkLayer, Port, PortState};
pub use tree::{ROOT_VARIABLE, Tree};

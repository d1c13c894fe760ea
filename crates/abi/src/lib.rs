//! The structures of `infiniband/verbs.h` and `rdma/rdma_cma.h`, as C lays them out.
//!
//! Hand-written, with integers instead of enums: C may put any number there. Sizes are asserted at
//! compile time, and a test of the C libraries (`crates/capi/tests/capi/layout.rs`) compares every offset with the distribution's headers.
//!
//! The C libraries of this project implement these structures. `rocinante-system` calls the system's libraries with them.

#![allow(unsafe_code, reason = "C structures begin as zero bytes")]
#![allow(missing_docs, reason = "the manual pages of rdma-core describe them")]

mod attributes;
mod cma;
mod completion;
mod constants;
mod context;
mod declare_struct;
mod device;
mod kernel;
mod objects;
mod queue_pair;
mod work_request;

pub use attributes::*;
pub use cma::*;
pub use completion::*;
pub use constants::*;
pub use context::*;
pub use device::*;
pub use kernel::*;
pub use objects::*;
pub use queue_pair::*;
pub use work_request::*;

pub use declare_struct::Layout;

/// Every structure, to be compared with the C compiler's layout.
#[must_use]
pub fn layouts() -> Vec<Layout> {
    [
        attributes::layouts(),
        cma::layouts(),
        completion::layouts(),
        context::layouts(),
        device::layouts(),
        kernel::layouts(),
        objects::layouts(),
        queue_pair::layouts(),
        work_request::layouts(),
    ]
    .concat()
}

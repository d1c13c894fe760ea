//! The structures of `infiniband/verbs.h` and `rdma/rdma_cma.h`, as C lays them out.
//!
//! Hand-written, with integers instead of enums: C may put any number there. Sizes are asserted at
//! compile time; `tests/capi/layout.rs` compares every offset with the distribution's headers.

mod attributes;
mod cma;
mod completion;
mod constants;
mod context;
mod device;
mod kernel;
mod layout;
mod objects;
mod queue_pair;
mod work_request;

pub(crate) use attributes::*;
pub(crate) use cma::*;
pub(crate) use completion::*;
pub(crate) use constants::*;
pub(crate) use context::*;
pub(crate) use device::*;
pub(crate) use kernel::*;
pub(crate) use objects::*;
pub(crate) use queue_pair::*;
pub(crate) use work_request::*;

pub use layout::Layout;

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

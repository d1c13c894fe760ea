//! TCP sockets of a program over RDMA: `roci run --rsocket`.
//!
//! A socket is the kernel's until it listens or connects. Then an rsocket is made for it, and the calls on
//! its descriptor go to the `r*` functions of librdmacm. The kernel's socket stays open under the descriptor: it
//! keeps the number, the flags and the options, and it is there for TCP if the peer has no rsocket.
//!
//! Not covered are calls that the C library makes internally (`fprintf` to a socket), sockets of the parent in a child after
//! `fork`, and programs that call the kernel directly.

// In unit tests, these must not replace the functions that the tests use.
#[cfg(not(test))]
mod batches;
#[cfg(not(test))]
mod connections;
#[cfg(not(test))]
mod data;
#[cfg(not(test))]
mod descriptors;
#[cfg_attr(test, expect(dead_code, reason = "its callers are left out of tests"))]
mod names;
pub(crate) mod table;
#[cfg(not(test))]
mod waiting;

#[cfg(not(test))]
pub(crate) use data::{read, read_checked};

//! Shows programs the device files of a device that lives in user space.
//!
//! Some programs look for RDMA devices in `/dev/infiniband` and `/sys/class/infiniband*` instead of calling
//! libibverbs. `roci run` writes these files into a directory (the tree), names it in `ROCI_TREE`,
//! and preloads this library. The library replaces the functions of the C library that take a path. It redirects
//! such paths to the tree, and passes on every other call unchanged. Without the variable it
//! does nothing.
//!
//! Counter files have the values of the moment when they are read (`counter_files`).
//!
//! With `ROCI_RSOCKET=1`, the TCP sockets of the program are rsockets (`rsocket`).
//!
//! When a program sets `LD_PRELOAD` for programs that it starts, this library stays in the list.
//!
//! A program must not notice this library: nothing here locks or panics, it prints only when a socket falls back to TCP, and
//! an ordinary call costs only a comparison of the first bytes of its path, or of a number for its descriptor.
//!
//! Not covered are calls that the C library makes internally (such as `glob`, `nftw`), and
//! programs that call the kernel directly. A path that can't be read crashes here, where the kernel
//! would return `EFAULT`; only addresses in the first page are passed on unread.

#![allow(unsafe_code, reason = "replaces functions of the C library")]

mod bounded_string;
#[cfg_attr(test, expect(dead_code, reason = "its callers are left out of tests"))]
mod counter_files;
mod device_counters;
#[cfg_attr(test, expect(dead_code, reason = "its callers are left out of tests"))]
mod path_redirects;
mod system_calls;
// In unit tests, these must not replace the functions that the tests use.
#[cfg(not(test))]
mod corrected_results;
#[cfg(not(test))]
mod entry;
#[cfg(not(test))]
mod exec_and_environment;
mod ld_preload;
#[cfg(not(test))]
mod original_functions;
mod path_resolution;
mod rsocket;

//! Shows programs the device files of a device that lives in user space.
//!
//! Some programs look for RDMA devices in `/dev/infiniband` and `/sys/class/infiniband*` instead of asking
//! the library. `roci run` writes what they want to see there into a folder, names the folder in `ROCI_TREE`,
//! and preloads this library. It replaces the functions of the C library that take a path, and looks for the
//! path in the folder if it is one of those; every other call it passes on as it is. Without the variable it
//! does nothing.
//!
//! Programs that set `LD_PRELOAD` for what they start keep this library there, too.
//!
//! A program that runs under this library must not notice it: nothing here locks, prints or panics,
//! and all that an ordinary call costs is a look at the first letters of its path.
//!
//! What is not covered: calls that the C library makes inside of itself (such as `glob`, `nftw`), and
//! programs that call the kernel directly. A path that can't be read crashes here, where the kernel
//! would have said `EFAULT`; only addresses in the first page are passed on unread.

#![allow(unsafe_code, reason = "replaces functions of the C library")]

#[cfg_attr(test, expect(dead_code, reason = "its callers are left out of tests"))]
mod detour;
// Unit tests must not put these before the functions that the tests themselves use.
#[cfg(not(test))]
mod entry;
mod keep;
#[cfg(not(test))]
mod real;
#[cfg(not(test))]
mod result;
#[cfg(not(test))]
mod start;
mod walk;

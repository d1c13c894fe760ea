//! Drop-in libibverbs and librdmacm on a RoCEv2 device in user space.
//!
//! One shared object with two names: `libibverbs.so.1`, and `librdmacm.so.1` as a link to it, so
//! that the loader maps one object with one set of statics. Unmodified programs find it through the
//! library path.
//!
//! The layers, from the outside in:
//!
//! - [`symbols`]: the table of all symbols, their versions and how each is implemented. The linker's input
//!   and `MATRIX.md` are made from it.
//! - `entry`: the C entry points. Each is a function in an `entry!` block, which stops panics, converts
//!   pointers to references, and reports a failure in the way of the return type (`conversion`). Blocking calls
//!   (`blocking`) check at intervals whether the thread is cancelled.
//! - `abi`, a crate of its own: the structures of the C headers, checked against a C compiler.
//! - `object`: an object is the structure that C sees, followed by our own fields; a handle is a pointer to
//!   it.
//! - `verbs`: libibverbs, one file for each type of object. `ibv_post_send` and `ibv_wr_*` build the same
//!   requests of the engine and post them under one lock.
//! - `rdmacm` and `rsocket`: librdmacm.
//!
//! Each `ibv_context` has an `Arc<Driver>` of its own. Objects keep it open, so that a program
//! may close the device first. Errors become errno values here (`errno`); the other crates have typed errors.
//!
//! # How it is tested
//!
//! `tests/programs` are C programs, each for one family of calls, made of small cases. All cases must pass on
//! our library; `cargo xtask interop --only "C libraries"` runs the same binaries on rdma-core's libraries
//! and compares what they print (`docs/interop.md`). Those in `tests/programs/ours` would crash rdma-core's
//! libraries, and run on ours only.
//!
//! # To run a program
//!
//! Cargo makes `librocinante_c.so`. A directory with the two links `libibverbs.so.1` and `librdmacm.so.1` to it,
//! named in `LD_LIBRARY_PATH`, is all a program needs:
//!
//! ```text
//! ln -s …/target/release/librocinante_c.so directory/libibverbs.so.1
//! ln -s libibverbs.so.1 directory/librdmacm.so.1
//! LD_LIBRARY_PATH=directory ibv_devinfo
//! ```

#![allow(unsafe_code, reason = "C programs pass pointers")]

pub mod symbols;

mod blocking;
mod clock;
mod conversion;
mod entry;
mod errno;
mod exit_report;
mod interruption;
mod multi_call_lock;
mod object;
mod process_exit;
mod rdmacm;
mod rsocket;
mod stubs;
mod verbs;

use ::abi;
pub use abi::{Layout, layouts};

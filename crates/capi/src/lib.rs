//! Drop-in libibverbs and librdmacm on a RoCEv2 device in user space.
//!
//! One shared object with two names: `libibverbs.so.1`, and `librdmacm.so.1` as a link to it, so
//! that the loader maps one object with one set of statics. Unmodified programs find it through the
//! library path.
//!
//! The layers, from the outside in:
//!
//! - [`symbols`]: the one table of all symbols, their versions, and how each is there. The linker's
//!   view and `MATRIX.md` follow from it.
//! - `entry`: the door. Every call from C is a function in an `entry!` block: panics stop there,
//!   pointers become references, a failure becomes what the return type stands for.
//!   Calls that wait (`waiting`) come out of it now and then, and keep what they wait at.
//! - `abi`: the structures of the C headers, checked against a C compiler.
//! - `object`: an object is its C part with our part behind it; a handle is a pointer to both.
//! - `verbs`: libibverbs, one file for each kind of object. `ibv_post_send` and `ibv_wr_*` build
//!   the same requests of the engine and hand them over under one lock.
//! - `rdmacm` and `rsocket`: librdmacm.
//!
//! Each `ibv_context` is a `rocinante::Context` of its own. Objects keep it open, so that a program
//! may close the device first. Errors are errno values here and nowhere else in the workspace
//! (`errno`).
//!
//! # How it is tested
//!
//! `tests/programs` are C programs, each for one family of calls, made of small cases. All cases must
//! hold on ours; `cargo xtask interop --only "C libraries"` runs the same binaries on rdma-core's
//! libraries and compares what they print (`docs/interop.md`). Those in `tests/programs/ours` do what would
//! crash there, and run on ours only.
//!
//! # To run a program
//!
//! Cargo makes `librocinante_c.so`. A folder with the two links `libibverbs.so.1` and
//! `librdmacm.so.1` to it, named in `LD_LIBRARY_PATH`, is all that a program needs:
//!
//! ```text
//! ln -s …/target/release/librocinante_c.so folder/libibverbs.so.1
//! ln -s libibverbs.so.1 folder/librdmacm.so.1
//! LD_LIBRARY_PATH=folder ibv_devinfo
//! ```

pub mod symbols;

mod abi;
mod absence;
mod clock;
mod entry;
mod errno;
mod interruption;
mod object;
mod rdmacm;
mod rsocket;
mod stub;
mod turn;
mod verbs;
mod waiting;

pub use abi::{Layout, layouts};

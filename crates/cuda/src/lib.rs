//! Memory of NVIDIA GPUs, for programs that register it.
//!
//! The driver's library, libcuda, is never loaded for a program: [`memory_at`] uses it only if the program itself has loaded it.
//! Addresses are recognised by `cuPointerGetAttribute`. Bytes go through pinned memory of the process, in a context of our own that
//! does not wait for the program's kernels (`channel`).
//!
//! Addresses of libcuda and of registered memory are raw, so all of the crate may have `unsafe` code; each block has its proof.

#![allow(
    unsafe_code,
    reason = "libcuda is written in C, and registered memory is copied by its address"
)]

mod channel;
mod copy;
mod driver;
mod loader;
mod memory;
mod pointer;

pub use memory::Memory;

/// Why memory of a GPU can't be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not all of the range is memory of one GPU.
    #[error(
        "only {there} of the {length} bytes at {address:#x} are memory that the program has allocated on one GPU"
    )]
    OutOfRange {
        /// The address of the first byte.
        address: u64,
        /// The length of the range.
        length: u64,
        /// How many bytes from the address on are such memory.
        there: u64,
    },
    /// A function of libcuda failed.
    #[error("{function} returned {error}")]
    Failed {
        /// The name of the function.
        function: &'static str,
        /// The name of the error, as libcuda has it.
        error: String,
    },
}

/// The memory of a GPU at an address; `None` if the address is not one of a GPU, or the program does not use libcuda.
///
/// Memory that the processor can access as well, managed memory for example, is not meant by this: whether an address is accessible
/// has to be checked first.
pub fn memory_at(address: u64, length: u64) -> Result<Option<Memory>, Error> {
    let Some(driver) = driver::Driver::of_the_program() else {
        return Ok(None);
    };
    let Some(ordinal) = pointer::gpu_of(driver, address) else {
        return Ok(None);
    };
    let there = pointer::extent_at(driver, address, length);
    if there < length {
        return Err(Error::OutOfRange {
            address,
            length,
            there,
        });
    }
    let channel = channel::Channel::of(driver, ordinal)?;
    Ok(Some(Memory::new(address, channel)))
}

/// Whether the program has loaded libcuda.
#[must_use]
pub fn is_in_use() -> bool {
    driver::Driver::of_the_program().is_some()
}

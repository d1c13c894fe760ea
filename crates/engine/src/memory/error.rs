//! Errors of registering memory, binding windows and accessing memory.

use wire::Key;

use crate::system_refusal::SystemRefusal;

/// The memory is not mapped, or not accessible in this way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotAccessible;

/// Why a registration, a window or a key is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// All keys are in use, or the limit is reached.
    #[error("the device has no memory key left: deregister something first")]
    Exhausted,
    /// No region or window has this key.
    #[error("no memory has the key {0}: it was never assigned, or the memory is deregistered")]
    UnknownKey(Key),
    /// Remote write and atomic access require local write.
    #[error("remote write and remote atomic access require local write access")]
    NeedsLocalWrite,
    /// The range wraps around the address space.
    #[error("{length} bytes at {address:#x} exceed the address space")]
    AddressOverflow {
        /// The address of the first byte.
        address: u64,
        /// The requested length.
        length: u64,
    },
    /// Windows are still bound to the region.
    #[error("{0} memory windows are still bound to the region: unbind or free them first")]
    WindowsBound(u32),
    /// The protection domain does not exist.
    #[error("no such protection domain: it was destroyed or belongs to another device")]
    UnknownDomain,
    /// The window cannot be bound.
    #[error("the window cannot be bound: {0}")]
    Bind(#[from] BindError),
    /// A device of the system refused it.
    #[error(transparent)]
    System(#[from] SystemRefusal),
}

/// Why a window could not be bound or invalidated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The key names no window of this protection domain.
    #[error("the key names no memory window of this protection domain")]
    NotAWindow,
    /// The key names no region of this protection domain.
    #[error("the key to bind to names no memory region of this protection domain")]
    NotARegion,
    /// The owner of the region uses the memory itself.
    #[error("the program uses the memory of the region itself: bind the window afterwards")]
    RegionInUse,
    /// The region was registered without the right to bind windows.
    #[error("the region was registered without window-bind access")]
    RegionForbidsBinding,
    /// The window would grant write access that the region does not have.
    #[error("a window with remote write or atomic access needs a region with local write access")]
    RegionNotWritable,
    /// The range exceeds the region.
    #[error("the range to bind exceeds the region")]
    OutOfRange,
    /// This call does not bind this type of window.
    #[error("this type of window is not bound by this call")]
    WrongKind,
    /// A type-1 window has the addresses of its region.
    #[error("a type-1 window can't be zero-based: bind a type-2 window, or leave the flag out")]
    ZeroBased,
    /// A type-2 window is already bound. It must be invalidated first.
    #[error("the window is already bound: invalidate it first")]
    AlreadyBound,
    /// The window is bound to another queue pair.
    #[error("the window is bound through another queue pair")]
    OtherQueuePair,
}

//! Why memory is not registered, and windows are not bound.

use wire::Key;

/// Why a registration, a window or a key was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// All keys are in use.
    #[error("the device has no memory key left: deregister something first")]
    Exhausted,
    /// No such region or window.
    #[error("no memory has the key {0}: it was never given out or is already gone")]
    UnknownKey(Key),
    /// Remote write and atomic access require local write.
    #[error("remote write and remote atomic access require local write access")]
    NeedsLocalWrite,
    /// The range wraps around the address space.
    #[error("{length} bytes from {address:#x} on reach beyond the end of the address space")]
    AddressOverflow {
        /// The first byte.
        address: u64,
        /// The length that was asked for.
        length: u64,
    },
    /// Windows are still bound to the region.
    #[error("{0} memory windows are still bound to the region: unbind or free them first")]
    WindowsBound(u32),
    /// No such protection domain.
    #[error("no such protection domain: it was destroyed or belongs to another device")]
    UnknownDomain,
    /// The binding can't be made.
    #[error("the window can't be bound: {0}")]
    Bind(#[from] BindError),
}

/// Why a window could not be bound or invalidated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The key names no window of this domain.
    #[error("the key names no memory window of this protection domain")]
    NotAWindow,
    /// The region's key is not one, or is in another domain.
    #[error("the key to bind to names no memory region of this protection domain")]
    NotARegion,
    /// The region was registered without the right to bind windows.
    #[error("the region was registered without window-bind access")]
    RegionForbidsBinding,
    /// The window's rights exceed the region's.
    #[error("a window that lets peers write needs a region with local write access")]
    RegionNotWritable,
    /// The range is not inside the region.
    #[error("the range to bind lies outside of the region")]
    OutOfRange,
    /// The kind of window does not fit the verb.
    #[error("this kind of window is not bound this way")]
    WrongKind,
    /// A type-2 window is bound already: invalidate it first.
    #[error("the window is bound already: invalidate it first")]
    AlreadyBound,
    /// It is bound through another queue pair.
    #[error("the window is bound through another queue pair")]
    OtherQueuePair,
}

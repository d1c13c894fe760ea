//! Errors of creating and destroying objects.

use crate::system_refusal::SystemRefusal;

/// Why an object could not be created or destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The limit on objects of this kind is reached.
    #[error("the device has no room for another one: destroy something first")]
    Exhausted,
    /// The object does not exist.
    #[error("no such object: it was destroyed or belongs to another device")]
    Unknown,
    /// The parent process opened the device.
    #[error("the device was opened before a fork and stays with the parent: open it again")]
    OpenedBeforeFork,
    /// Other objects still use it.
    #[error("{0} other objects still use it: destroy them first")]
    InUse(u32),
    /// A size is zero or above the device's limit.
    #[error("{what} is out of range: 1 to {max} are possible")]
    OutOfRange {
        /// The name of the size.
        what: &'static str,
        /// The maximum.
        max: u32,
    },
    /// The arguments contradict each other.
    #[error("{0}")]
    Mismatch(&'static str),
    /// A device of the system refused it.
    #[error(transparent)]
    System(#[from] SystemRefusal),
}

//! Errors of setting up a queue pair.

use engine::{ModifyError, ObjectError};

/// Why a queue pair could not be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// It could not be created.
    #[error(transparent)]
    Create(#[from] ObjectError),
    /// An attribute was rejected.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The GID table has no such entry.
    #[error("GID index {0} is empty: look at the GID table for the index to use")]
    EmptyGid(u8),
}

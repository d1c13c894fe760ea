//! The readiness of a socket.

/// What a socket is ready for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Readiness {
    pub(super) reading: bool,
    pub(super) writing: bool,
    /// Whether there is unread data.
    pub(super) unread: bool,
    pub(super) hung_up: bool,
    pub(super) error: bool,
    /// Changes after something arrived, and after a call that returned EAGAIN.
    pub(super) changes: u64,
}

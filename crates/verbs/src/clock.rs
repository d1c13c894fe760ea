//! The one place where the clock is read.

use std::time::Instant;

/// Now.
pub(crate) fn now() -> Instant {
    Instant::now()
}

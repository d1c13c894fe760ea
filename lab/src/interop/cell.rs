//! The result of one run in a table.

use std::time::Duration;

/// How one direction of a row ended.
pub(crate) enum Cell {
    Good(Duration),
    /// What failed.
    Bad(String),
    /// Not run for lack of time.
    LeftOut,
}

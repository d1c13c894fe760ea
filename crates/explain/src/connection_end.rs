//! The two ends of a connection.

use serde::Serialize;

/// One of the two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The end that sent the first packet of the capture.
    Left,
    /// The other end.
    Right,
}

impl Side {
    /// Both, in the order of [`Connection::ends`](crate::Connection::ends).
    pub const BOTH: [Side; 2] = [Side::Left, Side::Right];

    /// The index in [`Connection::ends`](crate::Connection::ends).
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The other one.
    #[inline]
    #[must_use]
    pub const fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

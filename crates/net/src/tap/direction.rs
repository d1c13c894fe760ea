//! Which way a datagram goes.

/// Seen from this machine: out to the network, or in from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From us to the network.
    Transmit,
    /// From the network to us.
    Receive,
}

//! Positions in a stream of requests.

/// The position in a stream: a PSN that does not wrap.
pub(super) type StreamPosition = u64;

/// The position of the first packet. Earlier packets have smaller positions.
pub(super) const BEGIN: StreamPosition = 1 << 40;

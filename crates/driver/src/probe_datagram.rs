//! A datagram that finds out whether a port is open.

/// Every RoCE device drops it: there is no queue pair 0 for ordinary packets, and its ICRC is wrong.
///
/// It is as long as the shortest packet. When the Soft-RoCE of Linux 6.1 drops a datagram that is shorter than the base
/// transport header, it uses a pointer that was never set, and the kernel panics (seen with IPv6).
///
/// The crate `explain` knows it, too, and leaves it out of its analysis.
pub(crate) const PROBE_DATAGRAM: [u8; 16] = [0; 16];

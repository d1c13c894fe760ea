//! How long the threads of a device wait. Every time in this crate is one of these or a multiple of one, apart from those of simulated networks.
//!
//! Counts of other things are where they are used. Times that the specification or the program sets are in the engine and the connection
//! manager.

use std::time::Duration;

/// How long to look for packets before a sleep. A reply of a process on this machine takes some 3 µs through shared memory and 7 µs through
/// sockets, and to go to sleep and wake up takes longer than that. (Measured between two processes on 16 cores, with messages of
/// 64 bytes. Other lengths of the look itself were not compared.)
pub(crate) const LOOK: Duration = Duration::from_micros(12);

/// How long the lane's thread leaves the sockets to a program that polled, at most. A program that polls again does so
/// within microseconds, also after a message that it handles; one that does not poll again gets its packets this much later. Not measured:
/// it is some 16 looks, so a program that does a little between two polls keeps the sockets.
pub(crate) const STANDBY: Duration = Duration::from_micros(200);

/// What lasts this long does not wait for a thread that runs: it has other work, or the CPU. Not measured: a thread that runs answers
/// much sooner, and one that waits for the CPU waits for a time slice of Linux, which is some milliseconds.
pub(crate) const LONG: Duration = Duration::from_millis(1);

/// How long what the kernel says about this machine is believed: who captures or shapes packets on loopback, and that descriptors are closed. To
/// ask costs a tenth of a millisecond, so it takes 0.2 % of a busy thread. A capture takes effect within twice this time.
pub(crate) const RECHECK: Duration = Duration::from_millis(50);

/// How long to wait for an ICMP error. Not measured: a local network delivers it within a few milliseconds.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_millis(50);

/// How often something is said to a person, or tried for one. Linux also reports one closed port each second to each peer.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(1);

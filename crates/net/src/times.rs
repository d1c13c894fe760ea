//! How long processes wait for each other. The times of this crate are these or multiples of them; none changes what is correct, only how
//! soon it happens. Apart from where it says so, nobody has compared them with others.

use std::time::Duration;

/// How soon a held lock of a file is tried again: it is held for as long as it takes to write some kilobytes.
pub(crate) const LOCK_RETRY_INTERVAL: Duration = Duration::from_micros(100);

/// How soon something is tried again that another process does when it runs next: it opens a pipe, or empties a mailbox.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// Within this time a process that can run has run, also beside others that compute. A stopped one has not. (After two of seven members were
/// killed, all was repaired within 3 ms.)
pub(crate) const SCHEDULED: Duration = Duration::from_millis(20);

/// The time between two checks whether the processes of other members still run. A packet for a
/// dead member is lost until the check, and a requester retransmits for longer than this.
pub(crate) const LIVENESS_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// How long the end of a program, or another process, is held up by something that may never come.
pub(crate) const GIVE_UP_AFTER: Duration = Duration::from_secs(1);

/// How long a file of processes that can't be checked is kept without a change: far longer than a process needs to start.
pub(crate) const FOREIGN_LIFETIME: Duration = Duration::from_secs(60 * 60);

/// How long counters are kept that nobody reads or writes, and the longest delay that anybody asks for.
pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

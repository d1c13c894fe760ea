//! How findings name requests, queue pairs and byte ranges.

use std::fmt;
use std::ops::Range;

use engine::Work;
use wire::Qpn;

/// A device of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// A queue pair of the process.
pub(crate) type QueuePairId = (DeviceId, Qpn);

/// How a request is called in a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestName {
    pub(crate) operation: &'static str,
    pub(crate) id: u64,
    /// `None` for a receive in a shared receive queue.
    pub(crate) queue_pair: Option<QueuePairId>,
}

impl fmt::Display for RequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, id, .. } = self;
        match self.queue_pair {
            Some((_, number)) => write!(f, "{operation} (wr_id {id:#x}) of {}", qp(number)),
            None => write!(f, "{operation} (wr_id {id:#x}) of a shared receive queue"),
        }
    }
}

pub(crate) fn qp(number: Qpn) -> String {
    format!("QP {:#08x}", number.value())
}

/// A range of bytes for a sentence.
pub(crate) fn bytes(range: &Range<u64>) -> String {
    let length = counted(range.end - range.start, "byte");
    format!("{length} at {:#x}", range.start)
}

/// A number of things.
pub(crate) fn counted(count: u64, name: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {name}{plural}")
}

pub(crate) const fn operation(work: &Work) -> &'static str {
    match work {
        Work::Send | Work::SendImmediate(_) | Work::SendInvalidate(_) => "SEND",
        Work::Write(_) | Work::WriteImmediate(..) => "RDMA WRITE",
        Work::Read(_) => "RDMA READ",
        Work::CompareSwap { .. } => "compare-and-swap",
        Work::FetchAdd { .. } => "fetch-and-add",
        Work::AtomicWrite(_) => "atomic write",
        Work::Flush { .. } => "flush",
        Work::LocalInvalidate(_) => "invalidation",
        Work::BindWindow { .. } => "window bind",
    }
}

/// The bytes that two ranges share.
pub(crate) fn common(a: &Range<u64>, b: &Range<u64>) -> Option<Range<u64>> {
    let common = a.start.max(b.start)..a.end.min(b.end);
    (common.start < common.end).then_some(common)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_has_no_plural() {
        let counts = [0, 1, 2].map(|count| counted(count, "byte"));
        assert_eq!(counts, ["0 bytes", "1 byte", "2 bytes"]);
    }
}

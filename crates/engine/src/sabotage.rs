//! Known protocol bugs, to be planted one at a time.
//!
//! A simulator that never fails proves nothing. Its tests plant each of these bugs and demand that
//! it is found. Without the cargo feature `sabotage` no bug can be planted and the checks vanish.

/// A bug that a careless implementation of the protocol might have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bug {
    /// Sequence numbers are compared as plain numbers: the wrap at 2^24 goes wrong.
    NoPsnWrap,
    /// A SEND seen before consumes another receive.
    DuplicateSendExecuted,
    /// An atomic seen before is executed again instead of answered from the saved result.
    AtomicNotReplayed,
    /// A request ahead of the expected one is taken as if nothing were missing.
    GapAccepted,
    /// The ICRC is not compared.
    IcrcUnchecked,
    /// After a receiver-not-ready NAK the request is repeated at once.
    RnrTimerIgnored,
    /// A read that lost a response is asked for again from its first address.
    PartialReadRestartsWrongly,
    /// A completion overtakes the one before it.
    CompletionOutOfOrder,
    /// A fenced request does not wait for the reads before it.
    FenceIgnored,
    /// A duplicate is not acknowledged again.
    DuplicateNotAcknowledged,
    /// The remote key's rights are not looked at.
    RightsUnchecked,
    /// A read response with one missing before it is taken.
    ResponseGapAccepted,
    /// The retry counter never runs out.
    RetriesForEver,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 13] = [
        Bug::NoPsnWrap,
        Bug::DuplicateSendExecuted,
        Bug::AtomicNotReplayed,
        Bug::GapAccepted,
        Bug::IcrcUnchecked,
        Bug::RnrTimerIgnored,
        Bug::PartialReadRestartsWrongly,
        Bug::CompletionOutOfOrder,
        Bug::FenceIgnored,
        Bug::DuplicateNotAcknowledged,
        Bug::RightsUnchecked,
        Bug::ResponseGapAccepted,
        Bug::RetriesForEver,
    ];
}

/// The bug that is planted in a device, if any.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sabotage {
    #[cfg(feature = "sabotage")]
    planted: Option<Bug>,
}

impl Sabotage {
    #[cfg(feature = "sabotage")]
    pub(crate) fn plant(&mut self, bug: Bug) {
        self.planted = Some(bug);
    }

    #[cfg(feature = "sabotage")]
    #[inline]
    pub(crate) fn has(self, bug: Bug) -> bool {
        self.planted == Some(bug)
    }

    #[cfg(not(feature = "sabotage"))]
    #[inline]
    pub(crate) fn has(self, _bug: Bug) -> bool {
        false
    }
}

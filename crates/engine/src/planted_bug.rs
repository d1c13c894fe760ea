//! Known protocol bugs that tests plant, one at a time.
//!
//! A simulator that never fails proves nothing. Its tests plant each of these bugs and require that
//! the simulator detects it. Without the cargo feature `planted-bugs` no bug can be planted, and the
//! checks for them are compiled out.

/// A bug that an implementation of the protocol might have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bug {
    /// PSNs are compared as plain numbers, which fails at the wrap at 2^24.
    NoPsnWrap,
    /// A duplicate SEND consumes another receive.
    DuplicateSendExecuted,
    /// A duplicate atomic is executed again instead of answered from the saved result.
    AtomicNotReplayed,
    /// A request ahead of the expected PSN is executed.
    GapAccepted,
    /// The ICRC is not checked.
    IcrcUnchecked,
    /// After an RNR NAK the request is retransmitted at once.
    RnrTimerIgnored,
    /// A read that lost a response is requested again from its first address.
    PartialReadRestartsWrongly,
    /// A completion is reported before the one that precedes it.
    CompletionOutOfOrder,
    /// A fenced request does not wait for earlier reads.
    FenceIgnored,
    /// A duplicate is not acknowledged.
    DuplicateNotAcknowledged,
    /// The rights of an R_Key are not checked.
    RightsUnchecked,
    /// A read response is accepted although an earlier one is missing.
    ResponseGapAccepted,
    /// Retries never end.
    RetriesForEver,
}

impl Bug {
    /// All bugs.
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

/// The planted bug of a device, if any.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PlantedBug {
    #[cfg(feature = "planted-bugs")]
    bug: Option<Bug>,
}

impl PlantedBug {
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn plant(&mut self, bug: Bug) {
        self.bug = Some(bug);
    }

    #[cfg(feature = "planted-bugs")]
    #[inline]
    pub(crate) fn is(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether there is one.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn is_any(self) -> bool {
        self.bug.is_some()
    }

    #[cfg(not(feature = "planted-bugs"))]
    #[inline]
    pub(crate) fn is_any(self) -> bool {
        false
    }

    #[cfg(not(feature = "planted-bugs"))]
    #[inline]
    pub(crate) fn is(self, _bug: Bug) -> bool {
        false
    }
}

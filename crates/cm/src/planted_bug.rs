//! Known protocol bugs that tests plant, one at a time.
//!
//! The simulator's tests plant each bug and require that a run fails. Without the cargo feature
//! `planted-bugs` no bug can be planted, and the checks for them are compiled out.

/// A bug that a connection manager might have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A rejection is not remembered: a duplicate request is delivered to the application again.
    RejectForgotten,
    /// Destroying an id skips time-wait: a late copy of its request counts as new.
    NoTimewait,
    /// A duplicate REP is not answered, so a lost RTU is never retransmitted.
    ReadyNotSentAgain,
    /// A DREQ is ignored after our own DREQ was sent.
    CrossedDisconnectsIgnored,
    /// A listener's backlog count is never decremented.
    BacklogLeaks,
    /// A message without a response is not retransmitted.
    NoRetransmissions,
    /// Each side expects the PSNs that it should send.
    SequenceNumbersSwapped,
    /// The exit notice of a half-open request is kept when the connection is established.
    ExitNoticeNotUpdated,
}

impl Bug {
    /// All bugs.
    pub const ALL: [Bug; 8] = [
        Bug::RejectForgotten,
        Bug::NoTimewait,
        Bug::ReadyNotSentAgain,
        Bug::CrossedDisconnectsIgnored,
        Bug::BacklogLeaks,
        Bug::NoRetransmissions,
        Bug::SequenceNumbersSwapped,
        Bug::ExitNoticeNotUpdated,
    ];
}

/// The planted bug of a manager, if any.
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
    pub(crate) fn is(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) fn is(self, _bug: Bug) -> bool {
        false
    }
}

//! Known bugs of connection managers, to be planted one at a time.
//!
//! The simulator's tests plant each of these and demand that it is found. Without the cargo feature
//! `sabotage` no bug can be planted and the checks vanish.

/// A bug that a careless connection manager might have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A refusal is not remembered: a repeated request comes to the application again.
    RefusalForgotten,
    /// A connection of a destroyed id leaves nothing behind: a late copy of its request is new.
    NoTimewait,
    /// A repeated REP is not answered: the passive side never learns of a lost RTU.
    ReadyNotRepeated,
    /// Who has said good-bye does not listen to the peer's.
    CrossedFarewellsIgnored,
    /// Places in the waiting room of a listener are not given back.
    BacklogLeaks,
    /// A message that gets no answer is not repeated.
    NothingRepeated,
    /// Each side expects the sequence numbers that it should send.
    SequenceNumbersSwapped,
    /// The exit notice of a half-open request is kept when the connection is established.
    ExitNoticeNotUpdated,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 8] = [
        Bug::RefusalForgotten,
        Bug::NoTimewait,
        Bug::ReadyNotRepeated,
        Bug::CrossedFarewellsIgnored,
        Bug::BacklogLeaks,
        Bug::NothingRepeated,
        Bug::SequenceNumbersSwapped,
        Bug::ExitNoticeNotUpdated,
    ];
}

/// The bug that is planted in a manager, if any.
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
    pub(crate) fn has(self, bug: Bug) -> bool {
        self.planted == Some(bug)
    }

    #[cfg(not(feature = "sabotage"))]
    pub(crate) fn has(self, _bug: Bug) -> bool {
        false
    }
}

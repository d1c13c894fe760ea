//! The kinds of code that the catalogue explains.

use std::fmt;

/// The kinds of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodeKind {
    /// The status of a completion.
    Completion,
    /// An asynchronous event of a device.
    Event,
    /// A negative acknowledgement of a responder.
    Nak,
    /// An event of the connection manager.
    Connection,
    /// Why a connection was rejected.
    Reject,
    /// The error number of a call, or the status of an address event.
    Errno,
}

impl CodeKind {
    /// All of them.
    pub const ALL: [CodeKind; 6] = [
        CodeKind::Completion,
        CodeKind::Event,
        CodeKind::Nak,
        CodeKind::Connection,
        CodeKind::Reject,
        CodeKind::Errno,
    ];

    /// Its title.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            CodeKind::Completion => "Completion statuses",
            CodeKind::Event => "Asynchronous events",
            CodeKind::Nak => "Negative acknowledgements on the wire",
            CodeKind::Connection => "Events of the connection manager",
            CodeKind::Reject => "Reasons of rejected connections",
            CodeKind::Errno => "Error numbers of calls",
        }
    }

    /// The word for it on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            CodeKind::Completion => "wc",
            CodeKind::Event => "event",
            CodeKind::Nak => "nak",
            CodeKind::Connection => "cm",
            CodeKind::Reject => "reject",
            CodeKind::Errno => "errno",
        }
    }
}

impl fmt::Display for CodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

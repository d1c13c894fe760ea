//! The kinds of code that the catalogue explains.

use std::fmt;

/// The kinds of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
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

impl Topic {
    /// All of them.
    pub const ALL: [Topic; 6] = [
        Topic::Completion,
        Topic::Event,
        Topic::Nak,
        Topic::Connection,
        Topic::Reject,
        Topic::Errno,
    ];

    /// Its title.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Topic::Completion => "Completion statuses",
            Topic::Event => "Asynchronous events",
            Topic::Nak => "Negative acknowledgements on the wire",
            Topic::Connection => "Events of the connection manager",
            Topic::Reject => "Reasons of rejected connections",
            Topic::Errno => "Error numbers of calls",
        }
    }

    /// The word for it on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Topic::Completion => "wc",
            Topic::Event => "event",
            Topic::Nak => "nak",
            Topic::Connection => "cm",
            Topic::Reject => "reject",
            Topic::Errno => "errno",
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

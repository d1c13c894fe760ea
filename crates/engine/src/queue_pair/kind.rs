//! The kinds of queue pair: which service each gives.

use wire::Transport;

/// The service that a queue pair gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reliable connection: everything arrives, once and in order.
    Rc,
    /// Unreliable connection: messages may be lost.
    Uc,
    /// Unreliable datagram: single packets to anybody.
    Ud,
    /// The sending end of an extended reliable connection.
    XrcInitiator,
    /// The receiving end of an extended reliable connection, on shared receive queues.
    XrcTarget,
    /// Queue pair 1, by which connections are managed: datagrams with a well-known key.
    Management,
}

impl Kind {
    pub(super) const fn transport(self) -> Transport {
        match self {
            Kind::Rc => Transport::Rc,
            Kind::Uc => Transport::Uc,
            Kind::Ud | Kind::Management => Transport::Ud,
            Kind::XrcInitiator | Kind::XrcTarget => Transport::Xrc,
        }
    }

    pub(super) const fn is_datagram(self) -> bool {
        matches!(self, Kind::Ud | Kind::Management)
    }

    pub(super) const fn is_reliable(self) -> bool {
        matches!(self, Kind::Rc | Kind::XrcInitiator | Kind::XrcTarget)
    }
}

//! Queue pair types.

use wire::Transport;

/// The type of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reliable connection: every message arrives once and in order.
    Rc,
    /// Unreliable connection: messages may be lost.
    Uc,
    /// Unreliable datagram: single packets to any queue pair.
    Ud,
    /// The sending side of an extended reliable connection.
    XrcInitiator,
    /// The receiving side of an extended reliable connection, with shared receive queues.
    XrcTarget,
    /// Queue pair 1: management datagrams with a well-known Q_Key.
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

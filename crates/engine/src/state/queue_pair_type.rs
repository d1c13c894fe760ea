//! Queue pair types.

use std::fmt;

use wire::Transport;

/// The type of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueuePairType {
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

impl fmt::Display for QueuePairType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueuePairType::Rc => "RC",
            QueuePairType::Uc => "UC",
            QueuePairType::Ud => "UD",
            QueuePairType::XrcInitiator => "XRC send",
            QueuePairType::XrcTarget => "XRC receive",
            QueuePairType::Management => "management",
        })
    }
}

impl QueuePairType {
    pub(crate) const fn transport(self) -> Transport {
        match self {
            QueuePairType::Rc => Transport::Rc,
            QueuePairType::Uc => Transport::Uc,
            QueuePairType::Ud | QueuePairType::Management => Transport::Ud,
            QueuePairType::XrcInitiator | QueuePairType::XrcTarget => Transport::Xrc,
        }
    }

    pub(crate) const fn is_datagram(self) -> bool {
        matches!(self, QueuePairType::Ud | QueuePairType::Management)
    }

    pub(crate) const fn is_reliable(self) -> bool {
        matches!(
            self,
            QueuePairType::Rc | QueuePairType::XrcInitiator | QueuePairType::XrcTarget
        )
    }
}

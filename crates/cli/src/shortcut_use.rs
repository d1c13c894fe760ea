//! Whether packets between queue pairs of this machine use the shortcut through memory.

use net::socket::interface::LoopbackUse;
use rocinante::{OpenOptions, Shortcut};

/// Whether packets between queue pairs of this machine go through memory or sockets, and why.
pub(crate) struct ShortcutUse {
    /// `memory` or `sockets`.
    pub(crate) through: &'static str,
    reason: &'static str,
}

impl ShortcutUse {
    /// The value for a device that is opened now.
    pub(crate) fn now() -> Self {
        let shortcut = OpenOptions::from_env().shortcut;
        let (through, reason) = match (shortcut, net::socket::interface::loopback_use()) {
            (Shortcut::Never, _) => ("sockets", "ROCI_SHORTCUT is 0"),
            (Shortcut::Always, _) => ("memory", "ROCI_SHORTCUT is set"),
            (_, None) => ("memory", "no program captures or shapes loopback"),
            (_, Some(LoopbackUse::Captured)) => ("sockets", "a packet socket captures on loopback"),
            (_, Some(LoopbackUse::Shaped)) => ("sockets", "a queueing discipline shapes loopback"),
            (_, Some(LoopbackUse::Unknown)) => {
                let reason = "the system does not tell whether a program captures on loopback";
                ("sockets", reason)
            }
        };
        Self { through, reason }
    }

    /// One sentence, without its final stop.
    pub(crate) fn text(&self) -> String {
        let Self { through, reason } = self;
        format!("Packets between processes of this machine go through {through}, because {reason}")
    }
}

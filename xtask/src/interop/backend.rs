//! The two kinds of machine that a kernel can run in.

use std::io;

use clap::ValueEnum;

use super::command_channel::CommandChannel;
use super::network::{self, FIRST_CONTROL_PORT};
use super::qemu;

/// What runs the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Backend {
    /// Debian's own kernel in an emulated machine: slow, but the kernel that distributions ship
    #[default]
    Qemu,
    /// The same source built as User Mode Linux, which runs as a process: slow to build once, then fast
    Uml,
}

impl Backend {
    /// The word on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Backend::Qemu => "qemu",
            Backend::Uml => "uml",
        }
    }

    /// What it is called in a sentence.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Backend::Qemu => "QEMU with Debian's own kernel",
            Backend::Uml => "User Mode Linux, built from Debian's source",
        }
    }

    pub(crate) fn connect(self, channel: usize) -> io::Result<CommandChannel> {
        match self {
            Backend::Qemu => CommandChannel::at_serial_port(&qemu::socket(channel)),
            Backend::Uml => {
                let port = FIRST_CONTROL_PORT + u16::try_from(channel).expect("channels are few");
                CommandChannel::at_address(network::control_address(port))
            }
        }
    }
}

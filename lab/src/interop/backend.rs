//! The two ways to run a kernel.

use clap::ValueEnum;

/// How the kernel runs.
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

    /// Its name in a sentence.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Backend::Qemu => "QEMU with Debian's own kernel",
            Backend::Uml => "User Mode Linux, built from Debian's source",
        }
    }
}

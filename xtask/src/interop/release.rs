//! The releases of Debian whose kernels we talk to, named by the kernel.

use clap::ValueEnum;

/// A release, older ones first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, ValueEnum)]
pub(crate) enum Release {
    /// Debian 12
    #[default]
    #[value(name = "6.1")]
    Bookworm,
    /// Debian 13: with FLUSH and ATOMIC WRITE
    #[value(name = "6.12")]
    Trixie,
}

impl Release {
    /// Whose programs run on our side: the oldest, because a C library runs programs of older ones.
    pub(crate) const OURS: Release = Release::Bookworm;

    /// The kernel's version, which is also the word on the command line.
    pub(crate) fn kernel(self) -> &'static str {
        match self {
            Release::Bookworm => "6.1",
            Release::Trixie => "6.12",
        }
    }

    /// What the archive calls it.
    pub(crate) fn suite(self) -> &'static str {
        match self {
            Release::Bookworm => "bookworm",
            Release::Trixie => "trixie",
        }
    }

    /// Its directory below ours.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Release::Bookworm => "",
            Release::Trixie => "6.12",
        }
    }
}

//! The releases of Debian whose kernels are the peer, named by the kernel's version.

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
    /// The release whose programs run on our side: the oldest, because a C library runs programs of older releases.
    pub(crate) const OURS: Release = Release::Bookworm;

    /// The kernel's version, which is also the word on the command line.
    pub(crate) fn kernel(self) -> &'static str {
        match self {
            Release::Bookworm => "6.1",
            Release::Trixie => "6.12",
        }
    }

    /// Its name in Debian's archive.
    pub(crate) fn suite(self) -> &'static str {
        match self {
            Release::Bookworm => "bookworm",
            Release::Trixie => "trixie",
        }
    }

    /// Its subdirectory of the build directory.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Release::Bookworm => "",
            Release::Trixie => "6.12",
        }
    }
}

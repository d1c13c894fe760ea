//! The architectures whose packages Debian's archive has and we use.

/// An architecture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Architecture {
    /// The kernel that we talk to, and this machine.
    Amd64,
    /// A machine that we run in.
    Arm64,
}

impl Architecture {
    /// What the archive calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Architecture::Amd64 => "amd64",
            Architecture::Arm64 => "arm64",
        }
    }

    /// The package that names the newest kernel of the release.
    pub(crate) fn newest_kernel(self) -> &'static str {
        match self {
            Architecture::Amd64 => "linux-image-amd64",
            Architecture::Arm64 => "linux-image-arm64",
        }
    }
}

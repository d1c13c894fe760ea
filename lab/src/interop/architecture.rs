//! The architectures of the packages that are used.

/// An architecture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Architecture {
    /// The peer's kernel, and this machine.
    Amd64,
    /// The emulated machine of `cargo xtask targets --full`.
    Arm64,
}

impl Architecture {
    /// Its name in Debian's archive.
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

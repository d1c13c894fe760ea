//! The releases of Debian that a package can be for.

use clap::ValueEnum;

/// A release, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Debian 11
    Bullseye,
    /// Debian 12
    Bookworm,
    /// Debian 13
    Trixie,
}

impl Suite {
    /// What a changelog calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bullseye => "bullseye",
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }

    /// The version of a package for it: below the same version without a release, and the newer release
    /// above the older one, so that systems are upgraded in the right order.
    pub(super) fn version(self, upstream: &str) -> String {
        match self {
            Self::Bullseye => format!("{upstream}~deb11"),
            Self::Bookworm => format!("{upstream}~deb12"),
            Self::Trixie => format!("{upstream}~deb13"),
        }
    }

    /// The minor number of its glibc.
    fn glibc(self) -> u32 {
        match self {
            Self::Bullseye => 31,
            Self::Bookworm => 36,
            Self::Trixie => 41,
        }
    }

    /// Fails if it has not the glibc that was linked with.
    pub(super) fn admits(self, minor: u32) -> Result<(), String> {
        let (name, has) = (self.name(), self.glibc());
        if minor > has {
            return Err(format!(
                "what was built here needs glibc 2.{minor}, and {name} has 2.{has}: build the \
                 package on {name}, in a container for example"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_glibc_than_a_release_has_is_rejected() {
        assert_eq!(Suite::Bookworm.admits(36), Ok(()));
        let rejection = Suite::Bookworm.admits(39).expect_err("too new");
        assert!(rejection.contains("needs glibc 2.39"), "{rejection}");
        assert_eq!(Suite::Trixie.admits(39), Ok(()));
        assert_eq!(Suite::Bullseye.admits(31), Ok(()));
        assert!(Suite::Bullseye.admits(32).is_err());
    }
}

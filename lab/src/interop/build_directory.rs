//! The directories of the build.

use std::path::PathBuf;
use std::{env, fs};

use super::architecture::Architecture;
use super::release::Release;

/// The build directory: it contains this program and what it needs.
pub(crate) struct BuildDirectory {
    built: PathBuf,
    directory: PathBuf,
    /// The Debian release of the packages.
    pub(crate) debian: Release,
    /// The architecture of the packages.
    pub(crate) architecture: Architecture,
}

impl BuildDirectory {
    /// Finds it, and creates the directory for this release.
    pub(crate) fn find(debian: Release) -> Result<Self, String> {
        Self::create(debian, Architecture::Amd64, debian.directory())
    }

    /// The directory for packages of arm64.
    pub(crate) fn find_arm64() -> Result<Self, String> {
        Self::create(Release::Bookworm, Architecture::Arm64, "arm64")
    }

    fn create(debian: Release, architecture: Architecture, name: &str) -> Result<Self, String> {
        let program = env::current_exe()
            .map_err(|error| format!("the path of this program is unknown: {error}"))?;
        let built = program.parent().ok_or("a program is in a directory")?;
        let target = built.parent().ok_or("the build directory has a parent")?;
        let directory = target.join("interop").join(name);
        fs::create_dir_all(&directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        Ok(Self {
            built: built.to_owned(),
            directory,
            debian,
            architecture,
        })
    }

    /// The `roci` that was built with us.
    pub(crate) fn roci(&self) -> PathBuf {
        self.built.join("roci")
    }

    /// A program of the tutorial that was built with us.
    pub(crate) fn example(&self, name: &str) -> PathBuf {
        self.built.join("examples").join(name)
    }

    /// The directory in which cargo builds for another target.
    pub(crate) fn built_for(&self, target: &str) -> PathBuf {
        self.built.with_file_name(target).join("debug")
    }

    /// The directory of the release build.
    pub(crate) fn release(&self) -> PathBuf {
        self.built.with_file_name("release")
    }

    /// A file in the directory for this release.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

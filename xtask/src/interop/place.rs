//! Where things are kept on this disk.

use std::path::PathBuf;
use std::{env, fs};

use super::release::Release;

/// The build folder: this program is in it, and what it needs is beside it.
pub(crate) struct Place {
    built: PathBuf,
    folder: PathBuf,
    /// Whose packages are here.
    pub(crate) debian: Release,
}

impl Place {
    /// Finds it, and makes a folder for what is ours and of this release.
    pub(crate) fn find(debian: Release) -> Result<Self, String> {
        let program = env::current_exe().map_err(|error| format!("where am I? {error}"))?;
        let built = program.parent().ok_or("a program is in a folder")?;
        let target = built.parent().ok_or("the build folder has a parent")?;
        let folder = target.join("interop").join(debian.folder());
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self {
            built: built.to_owned(),
            folder,
            debian,
        })
    }

    /// The `roci` that was built with us.
    pub(crate) fn roci(&self) -> PathBuf {
        self.built.join("roci")
    }

    /// Where a release build of the same things is.
    pub(crate) fn release(&self) -> PathBuf {
        self.built.with_file_name("release")
    }

    /// Something of ours.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

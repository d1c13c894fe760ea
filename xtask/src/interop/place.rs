//! Where things are kept on this disk.

use std::env;
use std::path::{Path, PathBuf};

/// The build folder: this program is in it, and what it needs is beside it.
pub(crate) struct Place {
    built: PathBuf,
    folder: PathBuf,
}

impl Place {
    pub(crate) fn find() -> Result<Self, String> {
        let program = env::current_exe().map_err(|error| format!("where am I? {error}"))?;
        let built = program.parent().ok_or("a program is in a folder")?;
        let target = built.parent().ok_or("the build folder has a parent")?;
        Ok(Self {
            built: built.to_owned(),
            folder: target.join("interop"),
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

    /// Where everything of ours is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

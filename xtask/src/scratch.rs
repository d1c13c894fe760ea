//! Temporary directories.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// A directory for this run alone, with a short name: sockets live in it.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Makes it; its name contains the purpose. Dropping it removes it.
    pub fn new(purpose: &str) -> Result<Self, String> {
        let path = PathBuf::from(format!("/tmp/roci-{purpose}-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| format!("{} can't be made: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

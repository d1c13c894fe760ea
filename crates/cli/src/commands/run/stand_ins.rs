//! The directory of stand-in tools, which comes first in `PATH`.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Context as _;

use super::content_directory::Contents;
use crate::stand_in::NAMES;

/// The directory. Creates it if there is none yet.
pub(super) fn directory() -> anyhow::Result<PathBuf> {
    let program = env::current_exe().context("the path of the roci executable is unknown")?;
    let mut contents = Contents::default();
    for name in NAMES {
        contents.link(name, &program);
    }
    contents.publish("bin")
}

/// The path of the stand-in with this name, if there is one.
pub(super) fn named(name: &OsStr) -> anyhow::Result<Option<PathBuf>> {
    if NAMES.iter().any(|ours| name == *ours) {
        Ok(Some(directory()?.join(name)))
    } else {
        Ok(None)
    }
}

//! The folder with the tools that answer for our devices, for the front of `PATH`.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Context as _;

use super::folder::Contents;
use crate::stand_in::NAMES;

/// The folder, made if it is not there yet.
pub(super) fn folder() -> anyhow::Result<PathBuf> {
    let program = env::current_exe().context("the path of the roci executable is unknown")?;
    let mut contents = Contents::default();
    for name in NAMES {
        contents.link(name, &program);
    }
    contents.publish("bin")
}

/// Where the tool with this name is, if it is one of ours.
pub(super) fn named(name: &OsStr) -> anyhow::Result<Option<PathBuf>> {
    if NAMES.iter().any(|ours| name == *ours) {
        Ok(Some(folder()?.join(name)))
    } else {
        Ok(None)
    }
}

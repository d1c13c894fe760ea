//! The file in which a user's links are stored.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Interface;
use super::error::DeviceError;
use super::link::Link;
use super::select_devices::{build, select};
use crate::{named_file, private_file};

/// The links of a user: a text file with one line per link, which may also be edited by hand. Empty
/// lines and lines that begin with `#` are ignored.
#[derive(Clone, Debug)]
pub struct Links {
    path: PathBuf,
}

impl Links {
    /// The file of this user: `roci/links` in `$XDG_CONFIG_HOME`, or else in `~/.config`. `None` if
    /// the user has no home.
    pub fn of_user() -> Option<Self> {
        let directory = |variable| {
            let path = PathBuf::from(std::env::var_os(variable)?);
            // XDG base directories: a relative path must be ignored.
            path.is_absolute().then_some(path)
        };
        let config =
            directory("XDG_CONFIG_HOME").or_else(|| Some(directory("HOME")?.join(".config")))?;
        Some(Self::at(config.join("roci/links")))
    }

    /// The links in a given file.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Links { path: path.into() }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All links, in the order of the file. Without a file there are none.
    pub fn list(&self) -> Result<Vec<Link>, DeviceError> {
        let text = match named_file::read_text(&self.path) {
            Ok(text) => text,
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            Err(error) => return Err(self.failed(error)),
        };
        let lines = (1..).zip(text.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|(line, text)| {
                Link::parse(text).map_err(|error| DeviceError::BadLink {
                    path: self.path.clone(),
                    line,
                    error: Box::new(error),
                })
            })
            .collect()
    }

    /// Adds a link, if these interfaces have its target.
    pub fn add(&self, link: &Link, interfaces: &[Interface]) -> Result<(), DeviceError> {
        build(interfaces, link.wanted())?;
        let _guard = self.lock()?;
        let mut links = self.list()?;
        if links.iter().any(|known| known.name() == link.name()) {
            let name = link.name().to_owned();
            return Err(DeviceError::LinkExists { name });
        }
        links.push(link.clone());
        // Two links must not share an address.
        select(interfaces, &links, None)?;
        self.write(&links)
    }

    /// Removes the link of this name.
    pub fn remove(&self, name: &str) -> Result<(), DeviceError> {
        let _guard = self.lock()?;
        let links = self.list()?;
        let (removed, kept): (Vec<_>, Vec<_>) =
            links.iter().cloned().partition(|link| link.name() == name);
        if removed.is_empty() {
            return Err(DeviceError::NoSuchLink {
                name: name.to_owned(),
                known: links.iter().map(|link| link.name().to_owned()).collect(),
            });
        }
        self.write(&kept)
    }

    /// Prevents other processes from changing the file at the same time.
    fn lock(&self) -> Result<File, DeviceError> {
        let parent = self.path.parent().unwrap_or(Path::new("."));
        let locked = || {
            fs::create_dir_all(parent)?;
            let directory = File::open(parent)?;
            directory.lock()?;
            Ok(directory)
        };
        locked().map_err(|error| self.failed(error))
    }

    /// A reader sees the old file or the new one, never a part of it.
    fn write(&self, links: &[Link]) -> Result<(), DeviceError> {
        let mut text = "# NAME=INTERFACE or NAME=ADDRESS+ADDRESS, one device a line\n".to_owned();
        for link in links {
            text.push_str(&format!("{link}\n"));
        }
        private_file::replace(&self.path, |file| file.write_all(text.as_bytes()))
            .map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> DeviceError {
        DeviceError::LinkFile {
            path: self.path.clone(),
            error,
        }
    }
}

/// Whether the file does not exist. A home that is not a directory, or that this user may not read,
/// has no links either.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

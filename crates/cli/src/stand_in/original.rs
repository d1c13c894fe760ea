//! The tool of the distribution, for the devices of the kernel.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A tool of the same name that comes later in `PATH`.
pub(super) struct Original {
    path: PathBuf,
    /// The directories after it in `PATH`. Its own `PATH` has only these, so that two stand-ins never call each other in a loop.
    rest: OsString,
}

impl Original {
    pub(super) fn find(name: &str) -> Option<Self> {
        let ours = env::current_exe().ok()?.canonicalize().ok()?;
        let list = env::var_os("PATH")?;
        let directories: Vec<PathBuf> = env::split_paths(&list).collect();
        let is_another = |directory: &PathBuf| {
            let found = directory.join(name).canonicalize();
            found.is_ok_and(|path| path.is_file() && path != ours)
        };
        let at = directories.iter().position(is_another)?;
        Some(Self {
            path: directories[at].join(name),
            rest: env::join_paths(&directories[at + 1..]).ok()?,
        })
    }

    /// Whether it exits with success.
    pub(super) fn accepts(&self, arguments: &[&str]) -> bool {
        let mut command = self.command();
        command.args(arguments).stdin(Stdio::null());
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    /// Replaces this process by the tool. Returns only if that fails.
    pub(super) fn take_over(&self, arguments: &[String]) -> io::Error {
        self.command().args(arguments).exec()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.env("PATH", &self.rest);
        command
    }
}

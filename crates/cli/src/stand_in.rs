//! Stand-ins: tools that programs and test suites call, with answers about our devices.
//!
//! `roci run` puts a directory in front of `PATH` in which these names are links to `roci`. The originals
//! ask the kernel, which does not know our devices.

mod original;
mod rdma;
mod show_gids;

use std::env;
use std::path::Path;
use std::process::ExitCode;

/// The names under which `roci` acts as another tool.
pub(crate) const NAMES: [&str; 2] = [RDMA, SHOW_GIDS];

const RDMA: &str = "rdma";
const SHOW_GIDS: &str = "show_gids";

/// Acts as the tool under whose name `roci` was called. Returns `None` if that is its own name.
pub(crate) fn run() -> Option<anyhow::Result<ExitCode>> {
    let mut words = env::args_os();
    let called = words.next()?;
    let name = Path::new(&called).file_name()?.to_str()?;
    let arguments: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    match name {
        RDMA => Some(rdma::run(&arguments)),
        SHOW_GIDS => Some(show_gids::run(&arguments)),
        _ => None,
    }
}
